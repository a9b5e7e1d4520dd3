package jinja

import (
	"sort"
	"strconv"
	"strings"
)

// metaFilter returns the filters that pass their arguments on to another filter or test, or to a format. It is not
// part of the table of filters because those functions refer to the table.
func metaFilter(name string) func(in *interp, v Value, a args) (Value, error) {
	switch name {
	case "map":
		return mapFilter
	case "select", "reject":
		return func(in *interp, v Value, a args) (Value, error) { return in.selectItems(v, a, false, name == "select") }
	case "selectattr", "rejectattr":
		return func(in *interp, v Value, a args) (Value, error) {
			return in.selectItems(v, a, true, name == "selectattr")
		}
	case "format":
		return func(in *interp, v Value, a args) (Value, error) {
			s, err := in.str(v)
			if err != nil {
				return nil, err
			}
			if len(a.kw) > 0 {
				return nil, &UnsupportedError{What: "the filter format with named arguments"}
			}
			return in.percent(s, &List{Items: a.pos, Tuple: true})
		}
	}
	return nil
}

// iterateTrue is iterate for map, select and their kin, which take anything false for an empty sequence.
func (in *interp) iterateTrue(v Value) ([]Value, error) {
	if !truthy(v) {
		return nil, nil
	}
	return in.iterate(v)
}

// mapFilter applies an attribute or another filter to every item. The work is done at once, where Jinja waits until
// somebody iterates; a template can tell the difference only by an error.
func mapFilter(in *interp, v Value, a args) (Value, error) {
	items, err := in.iterateTrue(v)
	if err != nil {
		return nil, err
	}
	var f func(Value) (Value, error)
	if i := indexOf(a.names, "attribute"); i >= 0 && len(a.pos) == 0 {
		path, err := attrPath(a.kw[i])
		if err != nil {
			return nil, err
		}
		var fallback Value = missing{}
		if d := indexOf(a.names, "default"); d >= 0 {
			fallback = a.kw[d]
		}
		f = func(x Value) (Value, error) { return in.attrOr(x, path, fallback) }
	} else {
		if len(a.pos) == 0 {
			return nil, typeErrorf("map requires a filter argument")
		}
		name, ok := a.pos[0].(string)
		if !ok {
			return nil, typeErrorf("map requires the name of a filter")
		}
		rest := args{pos: a.pos[1:], names: a.names, kw: a.kw}
		f = func(x Value) (Value, error) { return in.filter(name, x, rest) }
	}
	if err := in.charge(16 * len(items)); err != nil {
		return nil, err
	}
	out := make([]Value, len(items))
	for i, x := range items {
		if out[i], err = f(x); err != nil {
			return nil, err
		}
	}
	return &iterator{out}, nil
}

// selectItems keeps the items for which a test (default: truth) of them, or of an attribute, says want.
func (in *interp) selectItems(v Value, a args, byAttr, want bool) (Value, error) {
	items, err := in.iterateTrue(v)
	if err != nil {
		return nil, err
	}
	rest := a.pos
	var path []Value
	if byAttr {
		if len(rest) == 0 {
			return nil, typeErrorf("missing parameter: the attribute")
		}
		if path, err = attrPath(rest[0]); err != nil {
			return nil, err
		}
		rest = rest[1:]
	}
	var kept []Value
	for _, item := range items {
		x := item
		if byAttr {
			if x, err = in.attrOr(item, path, missing{}); err != nil {
				return nil, err
			}
		}
		ok := truthy(x)
		if len(rest) > 0 {
			name, isStr := rest[0].(string)
			if !isStr {
				return nil, typeErrorf("the name of a test must be a string")
			}
			if ok, err = in.test(name, x, rest[1:]); err != nil {
				return nil, err
			}
		}
		if ok == want {
			kept = append(kept, item)
		}
	}
	return &iterator{kept}, in.charge(16 * len(kept))
}

// attrPath parses "a.b.0" as the attribute argument of filters does.
func attrPath(v Value) ([]Value, error) {
	switch v := v.(type) {
	case int64:
		return []Value{v}, nil
	case string:
		var out []Value
		for _, part := range strings.Split(v, ".") {
			if n, err := strconv.ParseInt(part, 10, 64); err == nil {
				out = append(out, n)
			} else {
				out = append(out, part)
			}
		}
		return out, nil
	case nil, missing:
		return nil, nil
	}
	return nil, badOperand(v, "an attribute is a string or an integer, not")
}

// attrOr follows a path of subscripts; fallback, unless missing, replaces an undefined step.
func (in *interp) attrOr(v Value, path []Value, fallback Value) (Value, error) {
	for _, p := range path {
		var err error
		if v, err = in.item(v, p); err != nil {
			return nil, err
		}
		if isUndefined(v) && !isMissing(fallback) {
			return fallback, nil
		}
	}
	return v, nil
}

// edge is first or last.
func (in *interp) edge(v Value, last bool) (Value, error) {
	if _, ok := v.(*iterator); ok && last {
		return nil, typeErrorf("'generator' object is not reversible")
	}
	items, err := in.iterate(v)
	switch {
	case err != nil:
		return nil, err
	case len(items) == 0:
		return Undefined{"No first or last item, sequence was empty"}, nil
	case last:
		return items[len(items)-1], nil
	}
	return items[0], nil
}

// items is the filter of that name: the pairs of a mapping, none for an undefined value.
func items(in *interp, v Value, _ []Value) (Value, error) {
	switch v := v.(type) {
	case Undefined:
		return &iterator{}, nil
	case *Dict:
		pairs, err := in.pairs(v)
		return &iterator{pairs}, err
	}
	return nil, typeErrorf("Can only get item pairs from a mapping.")
}

// reverse turns a string around, and makes an iterator of anything else.
func reverse(in *interp, v Value, _ []Value) (Value, error) {
	src, err := in.iterate(v)
	if err != nil {
		return nil, err
	}
	if err := in.charge(16 * len(src)); err != nil {
		return nil, err
	}
	out := make([]Value, len(src))
	for i, x := range src {
		out[len(src)-1-i] = x
	}
	if _, ok := v.(string); ok {
		return join(in, "", []Value{&List{Items: out}})
	}
	return &iterator{out}, nil
}

// joinFilter prints the items, whatever they are, unlike str.join, which wants strings.
func joinFilter(in *interp, v Value, a []Value) (Value, error) {
	items, err := in.iterate(v)
	if err != nil {
		return nil, err
	}
	sep := ""
	if !isMissing(a[0]) {
		if sep, err = in.str(a[0]); err != nil {
			return nil, err
		}
	}
	path, err := attrPath(a[1])
	if err != nil {
		return nil, err
	}
	b := &buffer{in: in}
	for i, x := range items {
		if x, err = in.attrOr(x, path, missing{}); err != nil {
			return nil, err
		}
		s, err := in.str(x)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			s = sep + s
		}
		if err := b.add(s); err != nil {
			return nil, err
		}
	}
	return b.String(), nil
}

// sortKeys computes what each item is ordered by: an attribute, in lower case unless case matters.
func (in *interp) sortKeys(items []Value, attribute, caseSensitive Value) ([]Value, error) {
	path, err := attrPath(attribute)
	if err != nil {
		return nil, err
	}
	if err := in.charge(16 * len(items)); err != nil {
		return nil, err
	}
	keys := make([]Value, len(items))
	for i, x := range items {
		k, err := in.attrOr(x, path, missing{})
		if err != nil {
			return nil, err
		}
		if s, ok := k.(string); ok && !boolArg(caseSensitive, false) {
			k = strings.ToLower(s)
			if err := in.charge(len(s)); err != nil {
				return nil, err
			}
		}
		keys[i] = k
	}
	return keys, nil
}

// sorted returns the items in the stable order of their keys.
func (in *interp) sorted(items, keys []Value, descending bool) ([]Value, error) {
	order := make([]int, len(items))
	for i := range order {
		order[i] = i
	}
	var failed error
	sort.SliceStable(order, func(i, j int) bool {
		if failed != nil {
			return false
		}
		a, b := keys[order[i]], keys[order[j]]
		if descending {
			a, b = b, a
		}
		c, err := in.order(a, b)
		if err == nil {
			err = in.steps(0)
		}
		failed = err
		return c == -1
	})
	out := make([]Value, len(items))
	for i, o := range order {
		out[i] = items[o]
	}
	return out, failed
}

// sortFilter orders by one or several attributes, strings without regard to case unless asked, and keeps the order of
// equal ones.
func sortFilter(in *interp, v Value, a []Value) (Value, error) {
	items, err := in.iterate(v)
	if err != nil {
		return nil, err
	}
	// Jinja compares lists of attributes, so that equal ones need no order among themselves.
	keys := make([]Value, len(items))
	for i := range keys {
		keys[i] = &List{}
	}
	attributes := []Value{a[2]}
	if s, ok := a[2].(string); ok {
		attributes = nil
		for _, attr := range strings.Split(s, ",") {
			attributes = append(attributes, attr)
		}
	}
	for _, attr := range attributes {
		column, err := in.sortKeys(items, attr, a[1])
		if err != nil {
			return nil, err
		}
		for i, k := range column {
			keys[i].(*List).Items = append(keys[i].(*List).Items, k)
		}
	}
	out, err := in.sorted(items, keys, boolArg(a[0], false))
	return &List{Items: out}, err
}

// dictSort lists the pairs of a mapping ordered by key or value.
func dictSort(in *interp, v Value, a []Value) (Value, error) {
	d, ok := v.(*Dict)
	if !ok {
		return nil, badOperand(v, "dictsort needs a mapping, not")
	}
	by, err := strArg(a[1], "key")
	if err != nil {
		return nil, err
	}
	col := indexOf([]string{"key", "value"}, by)
	if col < 0 {
		return nil, typeErrorf(`You can only sort by either "key" or "value"`)
	}
	pairs, err := in.pairs(d)
	if err != nil {
		return nil, err
	}
	keys, err := in.sortKeys(pairs, int64(col), a[0])
	if err != nil {
		return nil, err
	}
	out, err := in.sorted(pairs, keys, boolArg(a[2], false))
	return &List{Items: out}, err
}

// unique keeps the first of equal items.
func unique(in *interp, v Value, a []Value) (Value, error) {
	items, err := in.iterate(v)
	if err != nil {
		return nil, err
	}
	keys, err := in.sortKeys(items, a[1], a[0])
	if err != nil {
		return nil, err
	}
	seen := NewDict()
	var out []Value
	for i, k := range keys {
		if _, dup := seen.at(k); dup {
			continue
		}
		if err := seen.put(k, nil); err != nil {
			return nil, err
		}
		out = append(out, items[i])
	}
	return &iterator{out}, in.charge(80 * len(out))
}

// extreme is min (want -1) or max (want 1).
func extreme(want int) func(*interp, Value, []Value) (Value, error) {
	return func(in *interp, v Value, a []Value) (Value, error) {
		items, err := in.iterate(v)
		if err != nil {
			return nil, err
		}
		if len(items) == 0 {
			return Undefined{"No aggregated item, sequence was empty"}, nil
		}
		keys, err := in.sortKeys(items, a[1], a[0])
		if err != nil {
			return nil, err
		}
		best := 0
		for i := 1; i < len(items); i++ {
			c, err := in.order(keys[i], keys[best])
			if err != nil {
				return nil, err
			}
			if c == want {
				best = i
			}
		}
		return items[best], nil
	}
}

// sum adds up from start with the + of templates, so that lists can be joined as well.
func sum(in *interp, v Value, a []Value) (Value, error) {
	items, err := in.iterate(v)
	if err != nil {
		return nil, err
	}
	path, err := attrPath(a[0])
	if err != nil {
		return nil, err
	}
	var total Value = int64(0)
	if !isMissing(a[1]) {
		total = a[1]
	}
	if isString(total) {
		return nil, typeErrorf("sum() can't sum strings")
	}
	for _, x := range items {
		if x, err = in.attrOr(x, path, missing{}); err != nil {
			return nil, err
		}
		if total, err = in.binary("+", total, x); err != nil {
			return nil, err
		}
	}
	return total, nil
}
