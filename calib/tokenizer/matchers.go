package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// A matcher reports the end of the match of one alternative of a pattern that starts exactly at i < len(s), or -1.
// It returns what a backtracking engine would find first, at least one character long, and never looks at more of s
// than a constant times what can be consumed from i on.
//
// All matchers get valid UTF-8.
type matcher func(s string, i int) int

// literal matches a fixed text.
func literal(text string) matcher {
	return func(s string, i int) int {
		if strings.HasPrefix(s[i:], text) {
			return i + len(text)
		}
		return -1
	}
}

// exactly matches n characters of c.
func (t *categories) exactly(c class, n int) matcher { return t.repeat(c, n, n) }

// repeat matches at least low and at most high characters of c, greedily.
func (t *categories) repeat(c class, low, high int) matcher {
	return func(s string, i int) int {
		for n := range high {
			j := t.one(s, i, c)
			if j < 0 {
				if n < low {
					return -1
				}
				break
			}
			i = j
		}
		return i
	}
}

// runOf matches one or more characters of c.
func (t *categories) runOf(c class) matcher {
	return func(s string, i int) int {
		if end := t.run(s, i, c); end > i {
			return end
		}
		return -1
	}
}

// prefixed matches an optional character of lead and then one or more of body. Where both classes hold the first
// character, giving it to lead is tried first.
func (t *categories) prefixed(lead, body class) matcher {
	return func(s string, i int) int {
		if j := t.one(s, i, lead); j >= 0 {
			if end := t.run(s, j, body); end > j {
				return end
			}
		}
		if end := t.run(s, i, body); end > i {
			return end
		}
		return -1
	}
}

// spaced matches an optional U+0020 and then one or more characters of body, which does not hold U+0020, followed by
// at most most of the bytes in tail.
func (t *categories) spaced(body class, tail string, most int) matcher {
	return func(s string, i int) int {
		if s[i] == ' ' {
			i++
		}
		end := t.run(s, i, body)
		if end == i {
			return -1
		}
		for n := 0; n < most && end < len(s) && strings.IndexByte(tail, s[end]) >= 0; n++ {
			end++
		}
		return end
	}
}

// punctuationWord matches one ASCII punctuation character and one or more ASCII letters (DeepSeek V3).
func punctuationWord(s string, i int) int {
	const punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
	if strings.IndexByte(punctuation, s[i]) < 0 {
		return -1
	}
	end := i + 1
	for end < len(s) && isASCIILetter(s[end]) {
		end++
	}
	if end == i+1 {
		return -1
	}
	return end
}

// isASCIILetter is [A-Za-z].
func isASCIILetter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }

// contraction matches an apostrophe and s, t, m, d, re, ve or ll in any case. With fold the letters compare by Unicode
// case folding, which only adds U+017F (ſ) for s.
func contraction(fold bool) matcher {
	return func(s string, i int) int {
		if s[i] != '\'' || i+1 >= len(s) {
			return -1
		}
		switch s[i+1] | 0x20 {
		case 's', 't', 'm', 'd':
			return i + 2
		case 'r', 'v':
			if i+2 < len(s) && s[i+2]|0x20 == 'e' {
				return i + 3
			}
		case 'l':
			if i+2 < len(s) && s[i+2]|0x20 == 'l' {
				return i + 3
			}
		}
		if fold && strings.HasPrefix(s[i+1:], "ſ") {
			return i + 1 + len("ſ")
		}
		return -1
	}
}

// lineEnds matches white space up to and including the last line end of the run: \s*[\r\n]+.
func (t *categories) lineEnds(s string, i int) int {
	end := t.run(s, i, classSpace)
	for end > i && s[end-1] != '\n' && s[end-1] != '\r' {
		end--
	}
	if end == i {
		return -1
	}
	return end
}

// spaceBeforeSpace matches \s+(?!\S): the whole run of white space at the end of the text, all but its last character
// anywhere else.
func (t *categories) spaceBeforeSpace(s string, i int) int {
	end := t.run(s, i, classSpace)
	if end == len(s) && end > i {
		return end
	}
	if end > i {
		_, n := utf8.DecodeLastRuneInString(s[i:end])
		end -= n
	}
	if end == i {
		return -1
	}
	return end
}

// spaceAtEnd matches \s+$ inside pieces from which line ends were split off before: white space that ends the piece.
// Elsewhere it must not walk the run again for each of its characters, so it only matches where the run begins.
func (t *categories) spaceAtEnd(s string, i int) int {
	if i > 0 {
		if r, _ := utf8.DecodeLastRuneInString(s[:i]); t.is(r, classSpace) {
			return -1
		}
	}
	if end := t.run(s, i, classSpace); end == len(s) && end > i {
		return end
	}
	return -1
}

// caseWord matches a word that changes from upper to lower case at most once (o200k, Tekken):
//
//	[^\r\n\p{L}\p{N}]? U* L+ suffix?   (lower = true)
//	[^\r\n\p{L}\p{N}]? U+ L* suffix?   (lower = false)
//
// U and L share the caseless letters and marks, so a greedy U* may have to give characters back to L+.
func (t *categories) caseWord(lower bool, suffix matcher) matcher {
	body := t.upperLower
	if lower {
		body = t.lowerWord
	}
	return func(s string, i int) int {
		end := -1
		if j := t.one(s, i, ^(classNewline | classL | classN)); j >= 0 {
			end = body(s, j)
		}
		if end < 0 {
			end = body(s, i)
		}
		if end >= 0 && end < len(s) && suffix != nil {
			if more := suffix(s, end); more >= 0 {
				return more
			}
		}
		return end
	}
}

// lowerWord matches U*L+: after the longest U* there either is more L, or U* gives back everything behind and
// including its last caseless character, and L+ takes just that one.
func (t *categories) lowerWord(s string, i int) int {
	shared := -1 // end of the last caseless character of U*
	for i < len(s) {
		j := t.one(s, i, classUpper)
		if j < 0 {
			break
		}
		if r, _ := utf8.DecodeRuneInString(s[i:]); t.is(r, classCaseless) {
			shared = j
		}
		i = j
	}
	if end := t.run(s, i, classLower); end > i {
		return end
	}
	return shared
}

// upperLower matches U+L*: nothing has to be given back.
func (t *categories) upperLower(s string, i int) int {
	end := t.run(s, i, classUpper)
	if end == i {
		return -1
	}
	return t.run(s, end, classLower)
}

// phrase matches letters with their marks, words joined by single blanks (EXAONE 4):
// [^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+
func (t *categories) phrase(s string, i int) int {
	if j := t.one(s, i, ^(classNewline | classL | classN)); j >= 0 {
		i = j
	}
	end := -1
	for {
		j := t.one(s, i, classL)
		if j < 0 {
			return end
		}
		end = t.run(s, j, classM)
		if i = end; i < len(s) && s[i] == ' ' {
			i++
		}
	}
}
