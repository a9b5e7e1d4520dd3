package tokenizer

import (
	"sort"
	"unicode/utf8"
)

// A runeSet is a character class that no union of categories describes: ranges of code points, sorted by their first.
type runeSet [][2]rune

// parseRunes reads the inside of a character class that consists of characters and a-z ranges only.
func parseRunes(text string) runeSet {
	var set runeSet
	rs := []rune(text)
	for i := 0; i < len(rs); i++ {
		if i+2 < len(rs) && rs[i+1] == '-' {
			set = append(set, [2]rune{rs[i], rs[i+2]})
			i += 2
			continue
		}
		set = append(set, [2]rune{rs[i], rs[i]})
	}
	sort.Slice(set, func(a, b int) bool { return set[a][0] < set[b][0] })
	return set
}

// has walks the ranges, which are few.
func (set runeSet) has(r rune) bool {
	for _, p := range set {
		if r < p[0] {
			return false
		}
		if r <= p[1] {
			return true
		}
	}
	return false
}

// runIn matches an optional character of lead and one or more characters in set or, with negated, outside of it.
func (t *categories) runIn(lead class, set runeSet, negated bool) matcher {
	body := func(s string, i int) int {
		start := i
		for i < len(s) {
			r, n := utf8.DecodeRuneInString(s[i:])
			if set.has(r) == negated {
				break
			}
			i += n
		}
		if i == start {
			return -1
		}
		return i
	}
	return func(s string, i int) int {
		if j := t.one(s, i, lead); j >= 0 {
			if end := body(s, j); end >= 0 {
				return end
			}
		}
		return body(s, i)
	}
}
