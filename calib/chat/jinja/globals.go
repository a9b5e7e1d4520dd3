package jinja

import (
	"strings"
	"time"
)

// maxRange is the sandbox's bound on range().
const maxRange = 100_000

// globals are the functions a template can call by name. Jinja's cycler, joiner and lipsum are not among them.
var globals = map[string]*function{
	"range":           {"range", rangeFunc},
	"dict":            {"dict", dictFunc},
	"namespace":       {"namespace", namespaceFunc},
	"raise_exception": {"raise_exception", raiseFunc},
	"strftime_now":    {"strftime_now", strftimeFunc},
}

// rangeFunc is range() with the bound of the sandbox. Arguments beyond any sensible size are refused before they can
// overflow in arithmetic.
func rangeFunc(_ *interp, a args) (Value, error) {
	if len(a.pos) < 1 || len(a.pos) > 3 || len(a.kw) > 0 {
		return nil, typeErrorf("range expected 1 to 3 arguments")
	}
	r := &rangeValue{step: 1}
	var n [3]int64
	for i, v := range a.pos {
		var err error
		if n[i], err = intArg(v, 0); err != nil {
			return nil, err
		}
	}
	switch len(a.pos) {
	case 1:
		r.stop = n[0]
	case 3:
		r.step = n[2]
		fallthrough
	default:
		r.start, r.stop = n[0], n[1]
	}
	if r.step == 0 {
		return nil, typeErrorf("range() arg 3 must not be zero")
	}
	const far = 1 << 40
	for _, x := range []int64{r.start, r.stop, r.step} {
		if x > far || x < -far {
			return nil, typeErrorf("range() argument out of bounds")
		}
	}
	if r.n = rangeLen(r.start, r.stop, r.step); r.n > maxRange {
		return nil, typeErrorf("range too big: the sandbox allows %d elements", maxRange)
	}
	return r, nil
}

// dictFunc is dict(mapping_or_pairs, **kwargs).
func dictFunc(in *interp, a args) (Value, error) {
	d := NewDict()
	if len(a.pos) > 1 {
		return nil, typeErrorf("dict expected at most 1 argument, got %d", len(a.pos))
	}
	for _, v := range a.pos {
		if src, ok := v.(*Dict); ok {
			for i, k := range src.keys {
				if err := d.put(k, src.vals[i]); err != nil {
					return nil, err
				}
			}
			continue
		}
		items, err := in.iterate(v)
		if err != nil {
			return nil, err
		}
		for _, it := range items {
			pair, err := in.iterate(it)
			if err != nil || len(pair) != 2 {
				return nil, typeErrorf("a dict is made of pairs")
			}
			if err := d.put(pair[0], pair[1]); err != nil {
				return nil, err
			}
		}
	}
	for i, n := range a.names {
		d.Set(n, a.kw[i])
	}
	return d, in.charge(64 * d.Len())
}

// namespaceFunc makes the one kind of object a template can change.
func namespaceFunc(in *interp, a args) (Value, error) {
	v, err := dictFunc(in, a)
	if err != nil {
		return nil, err
	}
	d := v.(*Dict)
	for _, k := range d.keys {
		if s, ok := k.(string); ok && strings.HasPrefix(s, "_") {
			return nil, typeErrorf("namespace attribute %q begins with an underscore", s)
		}
	}
	return &namespace{d}, nil
}

// raiseFunc is how a template refuses its input.
func raiseFunc(in *interp, a args) (Value, error) {
	got, err := a.bind("raise_exception", []string{"message"})
	if err != nil {
		return nil, err
	}
	msg, err := in.str(orNone(got[0]))
	if err != nil {
		return nil, err
	}
	return nil, &RaisedError{msg}
}

// strftimeFunc prints the fixed date: two runs on different days must give the same text.
func strftimeFunc(in *interp, a args) (Value, error) {
	got, err := a.bind("strftime_now", []string{"format"})
	if err != nil {
		return nil, err
	}
	format, err := strArg(got[0], "")
	if err != nil {
		return nil, err
	}
	b := &buffer{in: in}
	err = strftime(b, in.now, format)
	return b.String(), err
}

// directives maps the C directives whose text Go's time package can lay out.
var directives = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'd': "02", 'e': "_2", 'H': "15", 'I': "03", 'j': "002",
	'm': "01", 'M': "04", 'p': "PM", 'S': "05", 'y': "06", 'Y': "2006", 'h': "Jan", 'F': "2006-01-02", 'D': "01/02/06",
	'T': "15:04:05", 'R': "15:04", 'f': "000000", 'x': "01/02/06", 'X': "15:04:05", 'c': "Mon Jan _2 15:04:05 2006",
	'z': "", 'Z': "",
}

// unpadded are the directives GNU's "-" flag is used with.
var unpadded = map[byte]string{'d': "2", 'e': "2", 'm': "1", 'H': "15", 'I': "3", 'M': "4", 'S': "5", 'j': "__2"}

// strftime expands the directives one by one. Those whose text depends on a locale are in the C locale.
func strftime(b *buffer, t time.Time, format string) error {
	for {
		text, rest, found := strings.Cut(format, "%")
		if err := b.add(text); err != nil || !found {
			return err
		}
		table, flag := directives, ""
		if strings.HasPrefix(rest, "-") {
			table, flag, rest = unpadded, "-", rest[1:]
		}
		if rest == "" {
			return b.add("%" + flag)
		}
		layout, ok := table[rest[0]]
		out := t.Format(layout)
		switch {
		case rest[0] == '%':
			out = "%"
		case !ok:
			return &UnsupportedError{What: "the date directive %" + flag + rest[:1]}
		case flag != "":
			out = strings.TrimLeft(out, " ")
		}
		if err := b.add(out); err != nil {
			return err
		}
		format = rest[1:]
	}
}
