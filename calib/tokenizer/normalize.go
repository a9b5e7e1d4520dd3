package tokenizer

import (
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A normalizer rewrites text before it is split. It gets and returns valid UTF-8.
type normalizer func(s string) string

// sequence applies normalizers in order; nil when there are none.
func sequence(list []normalizer) normalizer {
	switch len(list) {
	case 0:
		return nil
	case 1:
		return list[0]
	}
	return func(s string) string {
		for _, n := range list {
			s = n(s)
		}
		return s
	}
}

// prependText puts a prefix before every text that is not empty.
func prependText(prefix string) normalizer {
	return func(s string) string {
		if s == "" {
			return s
		}
		return prefix + s
	}
}

// replaceText replaces a literal text everywhere, from left to right.
func replaceText(old, with string) normalizer {
	return func(s string) string { return strings.ReplaceAll(s, old, with) }
}

// stripSpace removes white space at the ends.
func stripSpace(left, right bool) normalizer {
	t := loadCategories()
	space := func(r rune) bool { return t.is(r, classSpace) }
	return func(s string) string {
		if left {
			s = strings.TrimLeftFunc(s, space)
		}
		if right {
			s = strings.TrimRightFunc(s, space)
		}
		return s
	}
}

// form is one of the four Unicode normalization forms as the reference computes them. x/text knows a later Unicode
// version, and it breaks up runs of more than 30 combining marks with U+034F; so it serves as the quick check and as
// the source of decompositions and combining classes, and the composition itself is done here.
type form struct {
	norm    norm.Form
	compose bool
}

// forms by the names that files use.
var forms = map[string]form{
	"NFC":  {norm.NFC, true},
	"NFD":  {norm.NFD, false},
	"NFKC": {norm.NFKC, true},
	"NFKD": {norm.NFKD, false},
}

// apply normalizes s. Text that x/text calls normal is returned as it is: the inert characters, which the reference
// leaves alone, can only make more text normal.
func (f form) apply(s string) string {
	at := f.norm.QuickSpanString(s)
	if at == len(s) {
		return s
	}
	// QuickSpan ends before the first character that may change; step back to where composition can't reach from.
	for at > 0 {
		_, n := utf8.DecodeLastRuneInString(s[:at])
		at -= n
		if s[at] < utf8.RuneSelf || f.norm.PropertiesString(s[at:]).BoundaryBefore() {
			break
		}
	}
	w := composer{form: f, pairs: loadCompositions()}
	w.out.Grow(len(s) + len(s)/8)
	w.out.WriteString(s[:at])
	for at < len(s) {
		if s[at] < utf8.RuneSelf {
			w.starter(rune(s[at]))
			at++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[at:])
		w.add(s[at:at+n], r)
		at += n
	}
	w.settle()
	w.flush()
	return w.out.String()
}

// mark is a decomposed character that waits for canonical ordering.
type mark struct {
	r   rune
	ccc uint8
}

// composer collects one starter and the marks behind it, orders and composes them, and writes the result.
type composer struct {
	form
	pairs map[[2]rune]rune
	out   strings.Builder
	marks []mark // marks[0] is the starter when there is one
}

// add decomposes one character given as text.
func (w *composer) add(text string, r rune) {
	if inert.has(r) {
		w.starter(r)
		return
	}
	if k := r - hangulBase; 0 <= k && k < hangulCount {
		w.starter(hangulL + k/(hangulVs*hangulTs))
		w.starter(hangulV + k/hangulTs%hangulVs)
		if k%hangulTs != 0 {
			w.starter(hangulT + k%hangulTs)
		}
		return
	}
	p := w.norm.PropertiesString(text)
	d := p.Decomposition()
	if d == nil {
		w.put(r, p.CCC())
		return
	}
	for len(d) > 0 {
		r, n := utf8.DecodeRune(d)
		w.put(r, w.norm.Properties(d).CCC())
		d = d[n:]
	}
}

// put takes one fully decomposed character.
func (w *composer) put(r rune, ccc uint8) {
	if ccc == 0 {
		w.starter(r)
		return
	}
	w.marks = append(w.marks, mark{r, ccc})
}

// starter begins a new group, unless the waiting group is a starter alone that composes with r.
func (w *composer) starter(r rune) {
	w.settle()
	if w.compose && len(w.marks) == 1 && w.marks[0].ccc == 0 {
		if c, ok := w.composed(w.marks[0].r, r); ok {
			w.marks[0].r = c
			return
		}
	}
	w.flush()
	w.marks = append(w.marks, mark{r, 0})
}

// settle orders the waiting marks by combining class, keeping the order of equals, and composes what composes.
func (w *composer) settle() {
	if len(w.marks) < 2 {
		return
	}
	sortMarks(w.marks)
	if !w.compose || w.marks[0].ccc != 0 {
		return
	}
	kept := w.marks[:1]
	last := uint8(0) // class of the last mark kept: a mark of the same class behind it is blocked
	for _, m := range w.marks[1:] {
		if last < m.ccc {
			if c, ok := w.composed(kept[0].r, m.r); ok {
				kept[0].r = c
				continue
			}
		}
		kept = append(kept, m)
		last = m.ccc
	}
	w.marks = kept
}

// flush writes the waiting group, which is settled.
func (w *composer) flush() {
	for _, m := range w.marks {
		w.out.WriteRune(m.r)
	}
	w.marks = w.marks[:0]
}

// sortMarks is a stable counting sort by combining class: linear however long the run is.
func sortMarks(marks []mark) {
	sorted := true
	for i := 1; i < len(marks); i++ {
		sorted = sorted && marks[i-1].ccc <= marks[i].ccc
	}
	if sorted {
		return
	}
	var start [257]int
	for _, m := range marks {
		start[int(m.ccc)+1]++
	}
	for c := 1; c < len(start); c++ {
		start[c] += start[c-1]
	}
	in := append([]mark(nil), marks...)
	for _, m := range in {
		marks[start[m.ccc]] = m
		start[m.ccc]++
	}
}

// Hangul syllables compose by arithmetic.
const (
	hangulBase  = 0xac00
	hangulCount = 11172
	hangulL     = 0x1100
	hangulV     = 0x1161
	hangulT     = 0x11a7
	hangulLs    = 19
	hangulVs    = 21
	hangulTs    = 28
)

// composed returns the primary composite of a and b.
func (w *composer) composed(a, b rune) (rune, bool) {
	if l, v := a-hangulL, b-hangulV; 0 <= l && l < hangulLs && 0 <= v && v < hangulVs {
		return hangulBase + (l*hangulVs+v)*hangulTs, true
	}
	if s, t := a-hangulBase, b-hangulT; 0 <= s && s < hangulCount && s%hangulTs == 0 && 0 < t && t < hangulTs {
		return a + t, true
	}
	c, ok := w.pairs[[2]rune{a, b}]
	return c, ok
}

// loadCompositions collects the primary composites from x/text, which offers decompositions only: a character whose
// canonical decomposition, put together again by NFC, gives the character back.
var loadCompositions = sync.OnceValue(func() map[[2]rune]rune {
	pairs := make(map[[2]rune]rune, 1024)
	var buf [utf8.UTFMax]byte
	for r := rune(0xc0); r < 0x30000; r++ {
		if r == hangulBase {
			r += hangulCount
		}
		d := norm.NFC.Properties(buf[:utf8.EncodeRune(buf[:], r)]).Decomposition()
		if d == nil || inert.has(r) {
			continue
		}
		last, n := utf8.DecodeLastRune(d)
		first := []rune(norm.NFC.String(string(d[:len(d)-n])))
		if len(first) == 1 && norm.NFC.String(string(first[0])+string(last)) == string(r) {
			pairs[[2]rune{first[0], last}] = r
		}
	}
	return pairs
})
