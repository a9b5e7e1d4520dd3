package jinja

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// spec is one directive of the % operator.
type spec struct {
	left, plus, space, zero bool
	width, prec             int // prec -1: none
	verb                    byte
}

// maxWidth bounds width and precision; the budget alone would let one field take all of it.
const maxWidth = 1 << 16

// percent is format % v: the directives s, r, d, i, f, e, x and %% with their flags, width and precision.
func (in *interp) percent(format string, v Value) (Value, error) {
	values := []Value{v}
	if l, ok := v.(*List); ok && l.Tuple {
		values = l.Items
	}
	b := &buffer{in: in}
	for {
		text, rest, found := strings.Cut(format, "%")
		if err := b.add(text); err != nil {
			return nil, err
		}
		if !found {
			break
		}
		if strings.HasPrefix(rest, "%") {
			format, text = rest[1:], "%"
		} else {
			s, after, err := parseSpec(rest)
			if err != nil {
				return nil, err
			}
			if len(values) == 0 {
				return nil, typeErrorf("not enough arguments for format string")
			}
			if text, err = in.directive(s, values[0]); err != nil {
				return nil, err
			}
			format, values = after, values[1:]
		}
		if err := b.add(text); err != nil {
			return nil, err
		}
	}
	if len(values) > 0 && !subscriptable(v) {
		return nil, typeErrorf("not all arguments converted during string formatting")
	}
	return b.String(), nil
}

// subscriptable tells what % takes for a mapping: nobody minds when a format uses nothing of one.
func subscriptable(v Value) bool {
	switch v := v.(type) {
	case *Dict, *rangeValue, Undefined:
		return true
	case *List:
		return !v.Tuple
	}
	return false
}

// parseSpec reads flags, width, precision and verb.
func parseSpec(s string) (spec, string, error) {
	sp := spec{prec: -1}
	for s != "" && strings.IndexByte("-+ 0", s[0]) >= 0 {
		switch s[0] {
		case '-':
			sp.left = true
		case '+':
			sp.plus = true
		case ' ':
			sp.space = true
		case '0':
			sp.zero = true
		}
		s = s[1:]
	}
	size := func() int {
		n := 0
		for s != "" && s[0] >= '0' && s[0] <= '9' && n <= maxWidth {
			n = n*10 + int(s[0]-'0')
			s = s[1:]
		}
		return n
	}
	sp.width = size()
	if strings.HasPrefix(s, ".") {
		s = s[1:]
		sp.prec = size()
	}
	switch {
	case sp.width > maxWidth || sp.prec > maxWidth:
		return sp, "", typeErrorf("format width or precision over %d", maxWidth)
	case s == "":
		return sp, "", typeErrorf("incomplete format")
	case strings.IndexByte("srdifex", s[0]) < 0:
		return sp, "", &UnsupportedError{What: "the format directive %" + s[:1]}
	}
	sp.verb = s[0]
	return sp, s[1:], nil
}

// directive formats one value.
func (in *interp) directive(sp spec, v Value) (string, error) {
	if sp.verb == 's' || sp.verb == 'r' {
		b := &buffer{in: in}
		var err error
		if sp.verb == 's' {
			err = b.print(v)
		} else {
			err = b.repr(v)
		}
		text := b.String()
		if sp.prec >= 0 && sp.prec < utf8.RuneCountInString(text) {
			text = substring(text, 0, sp.prec)
		}
		sp.zero = false
		return sp.pad(text), err
	}
	n, ok := number(v)
	if !ok {
		return "", badOperand(v, "%"+string(sp.verb)+" format: a number is required, not")
	}
	if sp.verb == 'f' || sp.verb == 'e' {
		prec := sp.prec
		if prec < 0 {
			prec = 6
		}
		return sp.pad(sp.sign(strconv.FormatFloat(asFloat(n), sp.verb, prec, 64))), nil
	}
	if f, isFloat := n.(float64); isFloat {
		if sp.verb == 'x' || math.IsNaN(f) || math.Abs(f) >= 1<<63 {
			return "", typeErrorf("%%%c format: an integer is required, not float", sp.verb)
		}
		n = int64(f)
	}
	base := 10
	if sp.verb == 'x' {
		base = 16
	}
	digits := strconv.FormatInt(n.(int64), base)
	if gap := sp.prec - len(strings.TrimPrefix(digits, "-")); gap > 0 {
		neg := strings.HasPrefix(digits, "-")
		digits = strings.Repeat("0", gap) + strings.TrimPrefix(digits, "-")
		if neg {
			digits = "-" + digits
		}
	}
	return sp.pad(sp.sign(digits)), nil
}

// sign puts in front of a number what the flags want there.
func (sp spec) sign(s string) string {
	switch {
	case strings.HasPrefix(s, "-"):
	case sp.plus:
		return "+" + s
	case sp.space:
		return " " + s
	}
	return s
}

// pad fills up to the width; zeros go between the sign and the digits.
func (sp spec) pad(s string) string {
	gap := sp.width - utf8.RuneCountInString(s)
	switch {
	case gap <= 0:
		return s
	case sp.left:
		return s + strings.Repeat(" ", gap)
	case sp.zero:
		sign := ""
		if s != "" && strings.IndexByte("+- ", s[0]) >= 0 {
			sign, s = s[:1], s[1:]
		}
		return sign + strings.Repeat("0", gap) + s
	}
	return strings.Repeat(" ", gap) + s
}
