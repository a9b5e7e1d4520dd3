package tokenizer

import (
	"unicode/utf8"

	"github.com/llmquant/quantize/formats/safeio"
)

// A scanner finds the matches of one split pattern from left to right, as a regular expression engine would: at each
// position the first alternative that matches wins.
type scanner struct {
	matchers []matcher
	// first lists, for every byte a match may begin with, the alternatives worth trying there, in order. It only saves
	// calls: an alternative is left out when it can't match there.
	first [256][]uint8
}

// maxAlternatives bounds the bars of a pattern; the longest known one has eleven alternatives.
const maxAlternatives = 32

// newScanner builds the scanner of a pattern whose alternatives are all known.
func newScanner(pattern string) (*scanner, error) {
	parts := alternativesOf(pattern)
	if len(parts) > maxAlternatives {
		return nil, safeio.Unsupportedf("the split pattern %q", clip(pattern))
	}
	t := loadCategories()
	sc := &scanner{}
	for _, part := range parts {
		m := findAlternative(t, part)
		if m == nil {
			return nil, safeio.Unsupportedf("the split pattern %q (its part %q is not known)", clip(pattern), clip(part))
		}
		sc.matchers = append(sc.matchers, m)
	}
	sc.index()
	return sc, nil
}

// findAlternative builds the matcher of an alternative, nil when it is not in the table.
func findAlternative(t *categories, text string) matcher {
	for _, a := range alternatives {
		if a.text == text {
			return a.build(t)
		}
	}
	return nil
}

// index fills first by trying every alternative on short probes that begin with each ASCII byte. An alternative that
// matches none of them needs that byte to be followed by something no probe has, which does not occur: matchers
// decide on the class of the next characters, and the probes hold one of each kind.
func (sc *scanner) index() {
	probes := [...]string{"", "a", "A", "1", "123", "!", " ", " a", "\n", "\u0301", "一", "ſ", "e", "E", "re", "ve", "ll", "s", "t", "m", "d"}
	for b := range sc.first {
		for k, m := range sc.matchers {
			if b >= utf8.RuneSelf || matchesAny(m, byte(b), probes[:]) {
				sc.first[b] = append(sc.first[b], uint8(k))
			}
		}
	}
}

// matchesAny reports whether m matches one of the probes behind b.
func matchesAny(m matcher, b byte, probes []string) bool {
	for _, p := range probes {
		if m(string(rune(b))+p, 0) > 0 {
			return true
		}
	}
	return false
}

// next returns the first match at or after i; start is -1 when there is none.
func (sc *scanner) next(s string, i int) (start, end int) {
	for i < len(s) {
		for _, k := range sc.first[s[i]] {
			if end := sc.matchers[k](s, i); end > i {
				return i, end
			}
		}
		if s[i] < utf8.RuneSelf {
			i++
			continue
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		i += n
	}
	return -1, -1
}

// clip shortens file content for a message.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
