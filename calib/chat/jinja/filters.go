package jinja

import (
	"html"
	"math"
	"strconv"
	"strings"
)

// filter applies a filter by name, with the arguments ordered by its own parameter names.
func (in *interp) filter(name string, v Value, a args) (Value, error) {
	if seq := metaFilter(name); seq != nil {
		return seq(in, v, a)
	}
	f, ok := filters[name]
	if !ok {
		return nil, &UnsupportedError{What: "the filter " + strconv.Quote(name)}
	}
	got, err := a.bind(name, f.params)
	if err != nil {
		return nil, err
	}
	return f.call(in, v, got)
}

// textFilter adapts a function of str(v).
func textFilter(f func(s string) string) builtin {
	return builtin{nil, func(in *interp, v Value, _ []Value) (Value, error) {
		s, err := in.str(v)
		if err != nil {
			return nil, err
		}
		return in.made(f(s))
	}}
}

// filters are those whose arguments are their own; metaFilter has the others.
var filters = map[string]builtin{
	"string": textFilter(func(s string) string { return s }), "safe": textFilter(func(s string) string { return s }),
	"lower": textFilter(strings.ToLower), "upper": textFilter(upper), "capitalize": textFilter(capitalize),
	"title": textFilter(titleWords), "escape": textFilter(html.EscapeString), "e": textFilter(html.EscapeString), "forceescape": textFilter(html.EscapeString),
	"trim": {[]string{"chars"}, func(in *interp, v Value, a []Value) (Value, error) {
		s, err := in.str(v)
		if err != nil {
			return nil, err
		}
		return strMethods["strip"].call(in, s, a)
	}},
	"replace": {[]string{"old", "new", "count"}, func(in *interp, v Value, a []Value) (Value, error) {
		s, err := in.str(v)
		if err != nil {
			return nil, err
		}
		if n := orNone(a[2]); n == nil {
			a[2] = missing{}
		}
		for i := range 2 {
			if a[i], err = in.str(orNone(a[i])); err != nil {
				return nil, err
			}
		}
		return replace(in, s, a)
	}},
	"indent": {[]string{"width", "first", "blank"}, indent},
	"tojson": {[]string{"ensure_ascii", "indent", "separators", "sort_keys"}, tojson},
	"abs": {nil, func(_ *interp, v Value, _ []Value) (Value, error) {
		n, ok := number(v)
		if !ok {
			return nil, badOperand(v, "bad operand type for abs()")
		}
		if i, ok := n.(int64); ok {
			if i == math.MinInt64 {
				return nil, typeErrorf("integer overflow in abs")
			}
			return max(i, -i), nil
		}
		return math.Abs(n.(float64)), nil
	}},
	"int": {[]string{"default", "base"}, toInt}, "float": {[]string{"default"}, toFloat},
	"round":   {[]string{"precision", "method"}, round},
	"default": {[]string{"default_value", "boolean"}, defaultTo}, "d": {[]string{"default_value", "boolean"}, defaultTo},
	"length": {nil, lengthOf}, "count": {nil, lengthOf},
	"first": {nil, func(in *interp, v Value, _ []Value) (Value, error) { return in.edge(v, false) }},
	"last":  {nil, func(in *interp, v Value, _ []Value) (Value, error) { return in.edge(v, true) }},
	"list": {nil, func(in *interp, v Value, _ []Value) (Value, error) {
		items, err := in.iterate(v)
		return &List{Items: items}, err
	}},
	"items":   {nil, items},
	"reverse": {nil, reverse}, "join": {[]string{"d", "attribute"}, joinFilter},
	"sort": {[]string{"reverse", "case_sensitive", "attribute"}, sortFilter}, "unique": {[]string{"case_sensitive", "attribute"}, unique},
	"min": {[]string{"case_sensitive", "attribute"}, extreme(-1)}, "max": {[]string{"case_sensitive", "attribute"}, extreme(1)},
	"sum": {[]string{"attribute", "start"}, sum}, "dictsort": {[]string{"case_sensitive", "by", "reverse"}, dictSort},
}

// titleWords is Jinja's own title filter: words begin after white space, a hyphen or an opening bracket.
func titleWords(s string) string {
	start := true
	var b strings.Builder
	word := 0
	flush := func(end int) {
		b.WriteString(capitalize(s[word:end]))
		word = end
	}
	for i, r := range s {
		sep := isSpace(r) || strings.ContainsRune("-({[<", r)
		if sep != start {
			flush(i)
		}
		start = sep
	}
	flush(len(s))
	return b.String()
}

// indent puts white space in front of all lines but the first, and of blank ones only when asked. It also turns every
// kind of line end into \n, and demands a string: both follow from the way Jinja writes it.
func indent(in *interp, v Value, a []Value) (Value, error) {
	s, ok := v.(string)
	if !ok {
		return nil, badOperand(v, "indent needs a string, not")
	}
	pad, isStr := a[0].(string)
	if !isStr {
		n, err := intArg(a[0], 4)
		if err != nil {
			return nil, err
		}
		pad = strings.Repeat(" ", int(max(0, min(n, maxWidth))))
	}
	lines, err := in.lines(s+"\n", false)
	if err != nil {
		return nil, err
	}
	first, blank := boolArg(a[1], false), boolArg(a[2], false)
	b := &buffer{in: in}
	for i, line := range lines {
		if i == 0 && first || i > 0 && (blank || line != "") {
			line = pad + line
		}
		if i > 0 {
			line = "\n" + line
		}
		if err := b.add(line); err != nil {
			return nil, err
		}
	}
	return b.String(), nil
}

// toInt never fails on a string: what is no number becomes the default. "3.7" is 3.
func toInt(in *interp, v Value, a []Value) (Value, error) {
	fallback := a[0]
	if isMissing(fallback) {
		fallback = int64(0)
	}
	base, err := intArg(a[1], 10)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case string:
		s := strings.ToLower(strings.TrimFunc(v, isSpace))
		if prefix := map[int64]string{2: "0b", 8: "0o", 16: "0x"}[base]; prefix != "" {
			s = strings.TrimPrefix(s, prefix)
		}
		if base >= 2 && base <= 36 {
			if n, err := strconv.ParseInt(s, int(base), 64); err == nil {
				return n, nil
			}
		}
		if f, err := strconv.ParseFloat(s, 64); err == nil && math.Abs(f) < 1<<63 && base == 10 {
			return int64(f), nil
		}
		return fallback, nil
	case float64:
		if math.IsNaN(v) || math.Abs(v) >= 1<<63 {
			return fallback, nil
		}
		return int64(v), nil
	}
	if n, ok := number(v); ok {
		return n, nil
	}
	if u, ok := v.(Undefined); ok {
		return nil, undefinedError(u)
	}
	return fallback, nil
}

// toFloat is toInt for floats.
func toFloat(_ *interp, v Value, a []Value) (Value, error) {
	if n, ok := number(v); ok {
		return asFloat(n), nil
	}
	switch v := v.(type) {
	case string:
		if f, err := strconv.ParseFloat(strings.TrimFunc(v, isSpace), 64); err == nil {
			return f, nil
		}
	case Undefined:
		return nil, undefinedError(v)
	}
	if isMissing(a[0]) {
		return 0.0, nil
	}
	return a[0], nil
}

// round keeps the type of an integer in the common case; ceil and floor always give a float.
func round(_ *interp, v Value, a []Value) (Value, error) {
	n, ok := number(v)
	if !ok {
		return nil, badOperand(v, "a number is required, not")
	}
	prec, err := intArg(a[0], 0)
	if err != nil {
		return nil, err
	}
	method, err := strArg(a[1], "common")
	if err != nil {
		return nil, err
	}
	if prec < 0 || prec > 300 {
		return nil, &UnsupportedError{What: "a rounding precision below 0 or above 300"}
	}
	if i, isInt := n.(int64); isInt && method == "common" {
		return i, nil
	}
	f := asFloat(n)
	scale := math.Pow(10, float64(prec))
	switch method {
	case "common":
		// Python rounds the decimal expansion, half to even, as strconv does.
		f, err = strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(prec), 64), 64)
		return f, err
	case "ceil":
		return math.Ceil(f*scale) / scale, nil
	case "floor":
		return math.Floor(f*scale) / scale, nil
	}
	return nil, typeErrorf("method must be common, ceil or floor")
}

// defaultTo replaces an undefined value, with boolean also a false one.
func defaultTo(_ *interp, v Value, a []Value) (Value, error) {
	if isUndefined(v) || boolArg(a[1], false) && !truthy(v) {
		if isMissing(a[0]) {
			return "", nil
		}
		return a[0], nil
	}
	return v, nil
}

// lengthOf is len(): a generator, the result of map or select, has none.
func lengthOf(_ *interp, v Value, _ []Value) (Value, error) {
	n, ok := length(v)
	if !ok {
		return nil, typeErrorf("object of type '%s' has no len()", typeName(v))
	}
	return int64(n), nil
}
