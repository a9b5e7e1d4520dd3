package tokenizer

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// A sink takes the pieces that a step produces, from left to right. first says that the piece begins where the whole
// text begins.
type sink func(piece string, first bool)

// A step is one pre-tokenizer: it cuts a piece into smaller ones and may rewrite them. Empty pieces are dropped.
type step interface {
	apply(piece string, first bool, to sink)
}

// splitStep cuts at the matches of a pattern.
type splitStep struct{ splitter }

// apply cuts and changes nothing.
func (p *splitStep) apply(piece string, first bool, to sink) {
	p.split(piece, func(start, end int) { to(piece[start:end], first && start == 0) })
}

// prependScheme says before which pieces Metaspace puts its replacement for the blank.
type prependScheme uint8

// The schemes by their names in files.
const (
	prependAlways prependScheme = iota
	prependFirst                // only before the piece that begins the text
	prependNever
)

// prependSchemes by the names that files use.
var prependSchemes = map[string]prependScheme{"always": prependAlways, "first": prependFirst, "never": prependNever}

// metaspaceStep replaces blanks by a visible character, as SentencePiece does, and cuts before each of those.
type metaspaceStep struct {
	replacement string
	prepend     prependScheme
	cut         *splitter // nil when the pieces stay whole
}

// newMetaspace builds the step; cut is its option split.
func newMetaspace(replacement string, prepend prependScheme, cut bool) *metaspaceStep {
	m := &metaspaceStep{replacement: replacement, prepend: prepend}
	if cut {
		m.cut = &splitter{find: findLiteral(replacement), how: mergedWithNext}
	}
	return m
}

// apply replaces, prepends, cuts.
func (m *metaspaceStep) apply(piece string, first bool, to sink) {
	piece = strings.ReplaceAll(piece, " ", m.replacement)
	wanted := m.prepend == prependAlways || m.prepend == prependFirst && first
	if wanted && !strings.HasPrefix(piece, m.replacement) {
		piece = m.replacement + piece
	}
	if m.cut == nil {
		to(piece, first)
		return
	}
	m.cut.split(piece, func(start, end int) { to(piece[start:end], first && start == 0) })
}

// byteLevelStep cuts by the GPT-2 pattern. That every byte then becomes one visible character is left to the model,
// which works on bytes, unless a later step has to see those characters.
type byteLevelStep struct {
	prefixSpace bool
	cut         *splitter // nil when another step has split already
	visible     bool      // write bytes as their visible characters
}

// apply puts the prefix before every piece it gets, even in the middle of a text: so does the library.
func (b *byteLevelStep) apply(piece string, first bool, to sink) {
	if b.prefixSpace && !strings.HasPrefix(piece, " ") {
		piece = " " + piece
	}
	if b.cut == nil {
		b.out(piece, first, to)
		return
	}
	b.cut.split(piece, func(start, end int) { b.out(piece[start:end], first && start == 0, to) })
}

// out passes a piece on, as visible characters when that was asked for.
func (b *byteLevelStep) out(piece string, first bool, to sink) {
	if b.visible {
		piece = loadAlphabet().show(piece)
	}
	to(piece, first)
}

// findRuns finds runs of characters of one kind: Whitespace's \w+|[^\w\s]+.
func findWordRuns(t *categories) finder {
	kind := func(r rune) int {
		switch {
		case t.isWord(r):
			return 1
		case t.is(r, classSpace):
			return 0
		}
		return 2
	}
	return func(s string, i int) (int, int) {
		start, found := -1, 0
		for i < len(s) {
			r, n := utf8.DecodeRuneInString(s[i:])
			k := kind(r)
			if start < 0 && k != 0 {
				start, found = i, k
			} else if start >= 0 && k != found {
				return start, i
			}
			i += n
		}
		return start, i
	}
}

// isNumeric is the test of the Digits step. The library asks its compiler's Unicode tables, one version ahead of the
// patterns' tables: two more scripts.
func isNumeric(t *categories) func(rune) bool {
	return func(r rune) bool {
		return t.is(r, classN) || '\U00011de0' <= r && r <= '\U00011de9' || '\U00016ff4' <= r && r <= '\U00016ff6'
	}
}

// isPunctuation is the test of the Punctuation step: P and the ASCII symbols, by tables of Unicode 8. younger lists
// what later versions added to P or took out of it.
func isPunctuation(t *categories) func(rune) bool {
	younger := runeSet{
		{0x61d, 0x61d}, {0x9fd, 0x9fd}, {0xa76, 0xa76}, {0xc77, 0xc77}, {0xc84, 0xc84}, {0x1b4e, 0x1b4f}, {0x1b7d, 0x1b7f},
		{0x2e43, 0x2e4f}, {0x2e52, 0x2e5d}, {0x10d6e, 0x10d6e}, {0x10ead, 0x10ead}, {0x10f55, 0x10f59}, {0x10f86, 0x10f89},
		{0x113d4, 0x113d5}, {0x113d7, 0x113d8}, {0x1144b, 0x1144f}, {0x1145a, 0x1145d}, {0x11660, 0x1166c}, {0x116b9, 0x116b9},
		{0x1183b, 0x1183b}, {0x11944, 0x11946}, {0x119e2, 0x119e2}, {0x11a3f, 0x11a46}, {0x11a9a, 0x11a9c}, {0x11a9e, 0x11aa2},
		{0x11b00, 0x11b09}, {0x11be1, 0x11be1}, {0x11c41, 0x11c45}, {0x11c70, 0x11c71}, {0x11ef7, 0x11ef8}, {0x11f43, 0x11f4f},
		{0x11fff, 0x11fff}, {0x12ff1, 0x12ff2}, {0x16d6d, 0x16d6f}, {0x16e97, 0x16e9a}, {0x16fe2, 0x16fe2}, {0x1e5ff, 0x1e5ff},
		{0x1e95e, 0x1e95f},
	}
	return func(r rune) bool {
		if r < utf8.RuneSelf {
			return t.is(r, classP|classS)
		}
		return t.is(r, classP) && !younger.has(r) || r == 0x166d || r == 0x111c9
	}
}

// rawStep turns visible characters back into the bytes they stand for, in front of the model.
type rawStep struct{}

// apply hands on the bytes, which need not be valid UTF-8: a later step may have cut inside of a character.
func (rawStep) apply(piece string, first bool, to sink) {
	raw, _ := loadAlphabet().raw(piece) // every character came from the alphabet
	to(raw, first)
}

// alphabet is GPT-2's way to write bytes as visible characters.
type alphabet struct {
	visible [256]string
	bytes   map[rune]byte
}

// loadAlphabet builds the alphabet once; it is constant from then on.
var loadAlphabet = sync.OnceValue(newAlphabet)

// newAlphabet maps printable Latin-1 to itself and all other bytes to U+0100 and up, in order.
func newAlphabet() *alphabet {
	a := &alphabet{bytes: make(map[rune]byte, 256)}
	next := rune(0x100)
	for b := range a.visible {
		r := rune(b)
		if printable := b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae; !printable {
			r = next
			next++
		}
		a.visible[b] = string(r)
		a.bytes[r] = byte(b)
	}
	return a
}

// show writes every byte of s as its visible character.
func (a *alphabet) show(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for _, c := range []byte(s) {
		b.WriteString(a.visible[c])
	}
	return b.String()
}

// raw undoes show; ok is false when s has a character outside of the alphabet.
func (a *alphabet) raw(s string) (raw string, ok bool) {
	b := make([]byte, 0, len(s))
	for _, r := range s {
		c, known := a.bytes[r]
		if !known {
			return "", false
		}
		b = append(b, c)
	}
	return string(b), true
}
