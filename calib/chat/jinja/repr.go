package jinja

import (
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// str is str() of Python, the way {{ x }} prints.
func (in *interp) str(v Value) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case Undefined:
		return "", nil
	}
	b := &buffer{in: in}
	err := b.repr(v)
	return b.String(), err
}

// repr appends repr() of Python.
func (b *buffer) repr(v Value) error {
	if err := b.in.enter(); err != nil {
		return err
	}
	defer b.in.leave()
	switch v := v.(type) {
	case nil:
		return b.add("None")
	case bool:
		if v {
			return b.add("True")
		}
		return b.add("False")
	case int64:
		return b.add(strconv.FormatInt(v, 10))
	case float64:
		return b.add(floatRepr(v))
	case string:
		return b.add(strRepr(v))
	case Undefined:
		return b.add("Undefined")
	case *List:
		return b.listRepr(v)
	case *Dict:
		return b.dictRepr(v)
	case *view:
		if err := b.add(v.name + "("); err != nil {
			return err
		}
		if err := b.repr(&List{Items: v.items}); err != nil {
			return err
		}
		return b.add(")")
	case *rangeValue:
		s := "range(" + strconv.FormatInt(v.start, 10) + ", " + strconv.FormatInt(v.stop, 10)
		if v.step != 1 {
			s += ", " + strconv.FormatInt(v.step, 10)
		}
		return b.add(s + ")")
	case *namespace:
		if err := b.add("<Namespace "); err != nil {
			return err
		}
		if err := b.repr(v.vars); err != nil {
			return err
		}
		return b.add(">")
	}
	// Python would print an address, which no template can mean.
	return typeErrorf("a %s cannot be printed", typeName(v))
}

// listRepr prints a list, or a tuple with the comma that a single element needs.
func (b *buffer) listRepr(l *List) error {
	open, end := "[", "]"
	if l.Tuple {
		open, end = "(", ")"
	}
	if err := b.add(open); err != nil {
		return err
	}
	for i, v := range l.Items {
		if i > 0 {
			if err := b.add(", "); err != nil {
				return err
			}
		}
		if err := b.repr(v); err != nil {
			return err
		}
	}
	if l.Tuple && len(l.Items) == 1 {
		end = ",)"
	}
	return b.add(end)
}

// dictRepr prints the pairs in their order.
func (b *buffer) dictRepr(d *Dict) error {
	if err := b.add("{"); err != nil {
		return err
	}
	for i, k := range d.keys {
		if i > 0 {
			if err := b.add(", "); err != nil {
				return err
			}
		}
		if err := b.repr(k); err != nil {
			return err
		}
		if err := b.add(": "); err != nil {
			return err
		}
		if err := b.repr(d.vals[i]); err != nil {
			return err
		}
	}
	return b.add("}")
}

// floatRepr is the shortest decimal that reads back, with Python's switch to exponents at 1e16 and below 1e-4.
func floatRepr(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.ContainsRune(s, '.') {
		s += ".0"
	}
	return s
}

// strRepr quotes as Python does: single quotes unless only double ones avoid an escape.
func strRepr(s string) string {
	quote := byte('\'')
	if strings.ContainsRune(s, '\'') && !strings.ContainsRune(s, '"') {
		quote = '"'
	}
	var b strings.Builder
	b.WriteByte(quote)
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(hexEscape(r))
		}
	}
	b.WriteByte(quote)
	return b.String()
}

// hexEscape is the shortest of \xhh, \uhhhh and \Uhhhhhhhh.
func hexEscape(r rune) string {
	h := strconv.FormatInt(int64(r), 16)
	switch {
	case r < 0x100:
		return `\x` + strings.Repeat("0", 2-len(h)) + h
	case r < 0x10000:
		return `\u` + strings.Repeat("0", 4-len(h)) + h
	}
	return `\U` + strings.Repeat("0", 8-len(h)) + h
}

type badEscape string

func (e badEscape) Error() string { return "bad escape in a string: " + string(e) }

var simpleEscapes = map[byte]string{
	'\n': "", '\\': `\`, '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v",
}

var hexDigits = map[byte]int{'x': 2, 'u': 4, 'U': 8}

// unescape resolves the escapes of a Python string literal; unknown ones keep their backslash.
func unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			i++
			continue
		}
		c := s[i+1]
		if text, ok := simpleEscapes[c]; ok {
			b.WriteString(text)
			i += 2
			continue
		}
		digits, base := hexDigits[c], 16
		start := i + 2
		switch {
		case c == 'N':
			return "", badEscape(`\N`)
		case c >= '0' && c <= '7':
			digits, base, start = 1, 8, i+1
			for digits < 3 && start+digits < len(s) && s[start+digits] >= '0' && s[start+digits] <= '7' {
				digits++
			}
		case digits == 0:
			b.WriteByte('\\')
			i++
			continue
		}
		if start+digits > len(s) {
			return "", badEscape(s[i:])
		}
		n, err := strconv.ParseUint(s[start:start+digits], base, 32)
		if err != nil || !utf8.ValidRune(rune(n)) || n > unicode.MaxRune {
			return "", badEscape(s[i : start+digits])
		}
		b.WriteRune(rune(n))
		i = start + digits
	}
	return b.String(), nil
}
