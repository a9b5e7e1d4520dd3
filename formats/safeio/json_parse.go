package safeio

import (
	"strings"
	"unicode/utf16"
)

// MaxJSONDepth bounds the nesting of arrays and objects.
const MaxJSONDepth = 64

// maxDocument keeps offsets within 32 bits (keySet); every limit for a file is far below.
const maxDocument = 1 << 30

// ParseJSON checks a whole document and returns its root. It is stricter than encoding/json where two readers of the
// same file could see two models: keys are exact and never repeat (escapes decoded first), text is valid UTF-8, \u
// escapes form whole characters, nesting ends at MaxJSONDepth and nothing but white space follows the value.
// Errors are of class ErrCorrupt (ErrLimit for the depth) and carry the byte offset.
func ParseJSON[T string | []byte](document T) (Value, error) {
	if int64(len(document)) > maxDocument {
		return Value{}, &Error{Op: "parse JSON", Off: -1, Err: Limitf("a document of %d bytes is over the limit of %d", len(document), maxDocument)}
	}
	p := parser{s: string(document)}
	if at := validRunes(p.s); at >= 0 {
		return Value{}, p.fail(at, "invalid UTF-8")
	}
	start := skipSpace(p.s, 0)
	end, err := p.value(start, 0)
	if err != nil {
		return Value{}, err
	}
	if rest := skipSpace(p.s, end); rest != len(p.s) {
		return Value{}, p.fail(rest, "text after the end of the document")
	}
	return Value{p.s[start:end]}, nil
}

type parser struct{ s string }

func (p *parser) fail(at int, what string) error {
	return &Error{Op: "parse JSON", Off: int64(at), Err: Corruptf("%s", what)}
}

// value checks the value at i and returns the index behind it.
func (p *parser) value(i, depth int) (int, error) {
	if i >= len(p.s) {
		return 0, p.fail(i, "unexpected end of the document")
	}
	switch c := p.s[i]; {
	case c == '{':
		return p.object(i, depth+1)
	case c == '[':
		return p.array(i, depth+1)
	case c == '"':
		return p.str(i)
	case c == '-' || isDigit(c):
		return p.number(i)
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if strings.HasPrefix(p.s[i:], word) {
			return i + len(word), nil
		}
	}
	return 0, p.fail(i, "expected a value")
}

func (p *parser) object(i, depth int) (int, error) {
	if depth > MaxJSONDepth {
		return 0, p.tooDeep(i)
	}
	var keys keySet
	i = skipSpace(p.s, i+1)
	if p.at(i) == '}' {
		return i + 1, nil
	}
	for {
		if p.at(i) != '"' {
			return 0, p.fail(i, "expected a key in double quotes")
		}
		end, err := p.str(i)
		if err != nil {
			return 0, err
		}
		if !keys.add(p.s, i) {
			return 0, p.fail(i, "duplicate key "+clip(p.s[i:end]))
		}
		if i = skipSpace(p.s, end); p.at(i) != ':' {
			return 0, p.fail(i, "expected ':' after a key")
		}
		if i, err = p.value(skipSpace(p.s, i+1), depth); err != nil {
			return 0, err
		}
		next, done, err := p.next(i, '}')
		if err != nil || done {
			return next, err
		}
		i = next
	}
}

func (p *parser) array(i, depth int) (int, error) {
	if depth > MaxJSONDepth {
		return 0, p.tooDeep(i)
	}
	i = skipSpace(p.s, i+1)
	if p.at(i) == ']' {
		return i + 1, nil
	}
	for {
		var err error
		if i, err = p.value(i, depth); err != nil {
			return 0, err
		}
		next, done, err := p.next(i, ']')
		if err != nil || done {
			return next, err
		}
		i = next
	}
}

// next reads the ',' or the closing bracket behind an element.
func (p *parser) next(i int, closing byte) (at int, done bool, err error) {
	i = skipSpace(p.s, i)
	switch p.at(i) {
	case closing:
		return i + 1, true, nil
	case ',':
		return skipSpace(p.s, i+1), false, nil
	}
	return 0, false, p.fail(i, "expected ',' or '"+string(closing)+"'")
}

func (p *parser) tooDeep(i int) error {
	return &Error{Op: "parse JSON", Off: int64(i), Err: Limitf("nested deeper than %d levels", MaxJSONDepth)}
}

// at returns the byte at i, 0 behind the end: no token of JSON is a NUL.
func (p *parser) at(i int) byte {
	if i < len(p.s) {
		return p.s[i]
	}
	return 0
}

func (p *parser) str(i int) (int, error) {
	for i++; i < len(p.s); {
		switch c := p.s[i]; {
		case c == '"':
			return i + 1, nil
		case c < 0x20:
			return 0, p.fail(i, "control character inside a string")
		case c != '\\':
			i++
		default:
			n, err := p.escape(i)
			if err != nil {
				return 0, err
			}
			i += n
		}
	}
	return 0, p.fail(i, "unterminated string")
}

// escape checks the escape at i and returns its length: 2, 6, or 12 for a surrogate pair.
func (p *parser) escape(i int) (int, error) {
	c := p.at(i + 1)
	if c != 'u' {
		if escapes[c] == 0 {
			return 0, p.fail(i, "unknown escape")
		}
		return 2, nil
	}
	hi := p.hex(i + 2)
	switch {
	case hi < 0:
		return 0, p.fail(i, "expected four hexadecimal digits after \\u")
	case !utf16.IsSurrogate(hi):
		return 6, nil
	}
	// Half a pair has no UTF-8 form; encoding/json reads U+FFFD, others fail or keep it.
	if p.at(i+6) != '\\' || p.at(i+7) != 'u' || utf16.DecodeRune(hi, p.hex(i+8)) == '\uFFFD' {
		return 0, p.fail(i, "unpaired surrogate")
	}
	return 12, nil
}

func (p *parser) hex(i int) rune {
	if i+4 > len(p.s) {
		return -1
	}
	return rune(hex4(p.s[i : i+4]))
}

func (p *parser) number(i int) (int, error) {
	start := i
	if p.s[i] == '-' {
		i++
	}
	switch {
	case p.at(i) == '0':
		i++
	case isDigit(p.at(i)):
		i = p.digits(i)
	default:
		return 0, p.fail(start, "malformed number")
	}
	if p.at(i) == '.' {
		if !isDigit(p.at(i + 1)) {
			return 0, p.fail(start, "malformed number")
		}
		i = p.digits(i + 1)
	}
	if c := p.at(i); c == 'e' || c == 'E' {
		if i++; p.at(i) == '+' || p.at(i) == '-' {
			i++
		}
		if !isDigit(p.at(i)) {
			return 0, p.fail(start, "malformed number")
		}
		i = p.digits(i)
	}
	return i, nil
}

func (p *parser) digits(i int) int {
	for isDigit(p.at(i)) {
		i++
	}
	return i
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
