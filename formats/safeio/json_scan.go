package safeio

import (
	"iter"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// The functions of this file walk text that ParseJSON accepted: they do not check again, and no index can leave the text.

// span locates one member inside an object's text: quotes included in the key.
type span struct{ key, keyEnd, val, end int }

func (v Value) members() iter.Seq[span] {
	return func(yield func(span) bool) {
		if v.Kind() != Object {
			return
		}
		s := v.text
		for i := skipSpace(s, 1); s[i] != '}'; {
			m := span{key: i, keyEnd: skipString(s, i)}
			m.val = skipSpace(s, skipSpace(s, m.keyEnd)+1)
			m.end = skipValue(s, m.val)
			if !yield(m) {
				return
			}
			if i = skipSpace(s, m.end); s[i] == ',' {
				i = skipSpace(s, i+1)
			}
		}
	}
}

func skipSpace(s string, i int) int {
	for i < len(s) && isSpace(s[i]) {
		i++
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// skipString returns the index behind the closing quote of the string that starts at i.
func skipString(s string, i int) int {
	for i++; s[i] != '"'; i++ {
		if s[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// skipValue returns the index behind the value that starts at i.
func skipValue(s string, i int) int {
	switch s[i] {
	case '"':
		return skipString(s, i)
	case '{', '[':
		return skipContainer(s, i)
	}
	for i < len(s) && !isSpace(s[i]) && s[i] != ',' && s[i] != '}' && s[i] != ']' {
		i++
	}
	return i
}

func skipContainer(s string, i int) int {
	for depth := 0; ; i++ {
		switch s[i] {
		case '"':
			i = skipString(s, i) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
}

// unquote decodes a string literal; without escapes it is a part of the document and costs nothing.
func unquote(lit string) string {
	body := lit[1 : len(lit)-1]
	at := strings.IndexByte(body, '\\')
	if at < 0 {
		return body
	}
	var b strings.Builder
	b.Grow(len(body))
	for at >= 0 {
		b.WriteString(body[:at])
		body = unescape(&b, body[at+1:])
		at = strings.IndexByte(body, '\\')
	}
	b.WriteString(body)
	return b.String()
}

// escapes maps the letter after a backslash to the byte it stands for; 0 is no escape.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// unescape decodes one escape whose text behind the backslash starts at s and returns the rest.
func unescape(b *strings.Builder, s string) string {
	if s[0] != 'u' {
		b.WriteByte(escapes[s[0]])
		return s[1:]
	}
	r := rune(hex4(s[1:5]))
	s = s[5:]
	if utf16.IsSurrogate(r) {
		r = utf16.DecodeRune(r, rune(hex4(s[2:6])))
		s = s[6:]
	}
	b.WriteString(string(r))
	return s
}

// hex4 reads four hexadecimal digits, -1 when they are not.
func hex4(s string) int64 {
	n, err := strconv.ParseUint(s, 16, 16)
	if err != nil || len(s) != 4 {
		return -1
	}
	return int64(n)
}

// Quote writes s as a JSON string: only what JSON demands is escaped. Invalid UTF-8 becomes U+FFFD.
func Quote(s string) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	b.Grow(len(s) + 2)
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteByte(byte(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r < 0x20:
			b.WriteString(`\u00`)
			b.WriteByte(digits[r>>4])
			b.WriteByte(digits[r&15])
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// validRunes reports the index of the first byte of s that is not valid UTF-8, -1 when all is.
func validRunes(s string) int {
	if utf8.ValidString(s) {
		return -1
	}
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}
