package jinja

import (
	"math"
	"strconv"
	"strings"
)

// binary computes an arithmetic operator with Python's types and rounding.
func (in *interp) binary(op string, a, b Value) (Value, error) {
	if op == "~" {
		return in.concat(a, b)
	}
	if s, ok := a.(string); ok && op == "%" {
		return in.percent(s, b)
	}
	for _, v := range []Value{a, b} {
		if u, ok := v.(Undefined); ok {
			return nil, undefinedError(u)
		}
	}
	if x, y, ok := numbers(a, b); ok {
		return arithmetic(op, x, y)
	}
	switch op {
	case "+":
		switch x := a.(type) {
		case string:
			if y, ok := b.(string); ok {
				if err := in.charge(len(x) + len(y)); err != nil {
					return nil, err
				}
				return x + y, nil
			}
			return nil, typeErrorf(`can only concatenate str (not "%s") to str`, typeName(b))
		case *List:
			if y, ok := b.(*List); ok && x.Tuple == y.Tuple {
				if err := in.charge(16 * (len(x.Items) + len(y.Items))); err != nil {
					return nil, err
				}
				return &List{Items: append(append([]Value(nil), x.Items...), y.Items...), Tuple: x.Tuple}, nil
			}
		}
	case "*":
		x, _ := number(a)
		if n, ok := x.(int64); ok {
			return in.repeat(b, n)
		}
		x, _ = number(b)
		if n, ok := x.(int64); ok {
			return in.repeat(a, n)
		}
	}
	return nil, typeErrorf("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
}

// concat is "~": the text of both operands, whatever they are.
func (in *interp) concat(a, b Value) (Value, error) {
	x, err := in.str(a)
	if err != nil {
		return nil, err
	}
	y, err := in.str(b)
	if err != nil {
		return nil, err
	}
	if err := in.charge(len(x) + len(y)); err != nil {
		return nil, err
	}
	return x + y, nil
}

// repeat multiplies a string or a list. The size is checked in 64 bits before anything is made.
func (in *interp) repeat(v Value, n int64) (Value, error) {
	n = max(n, 0)
	size := int64(0)
	switch v := v.(type) {
	case string:
		size = int64(len(v))
	case *List:
		size = 16 * int64(len(v.Items))
	default:
		return nil, typeErrorf("can't multiply sequence by non-int of type '%s'", typeName(v))
	}
	if size > 0 && n > int64(in.lim.Bytes)/size {
		return nil, in.charge(in.lim.Bytes + 1)
	}
	if err := in.charge(int(size * n)); err != nil {
		return nil, err
	}
	if s, ok := v.(string); ok {
		return strings.Repeat(s, int(n)), nil
	}
	l := v.(*List)
	out := &List{Tuple: l.Tuple}
	for range n {
		out.Items = append(out.Items, l.Items...)
		if len(l.Items) == 0 {
			break
		}
	}
	return out, nil
}

// arithmetic computes on two widened numbers: integers stay integers where Python keeps them.
func arithmetic(op string, x, y Value) (Value, error) {
	i, iok := x.(int64)
	j, jok := y.(int64)
	if iok && jok && op != "/" && !(op == "**" && j < 0) {
		return integers(op, i, j)
	}
	a, b := asFloat(x), asFloat(y)
	if b == 0 && (op == "/" || op == "//" || op == "%") {
		return nil, typeErrorf("division by zero")
	}
	switch op {
	case "+":
		return a + b, nil
	case "-":
		return a - b, nil
	case "*":
		return a * b, nil
	case "/":
		return a / b, nil
	case "//":
		return math.Floor(a / b), nil
	case "%":
		m := math.Mod(a, b)
		if m != 0 && (m < 0) != (b < 0) {
			m += b
		}
		return m, nil
	}
	if a == 0 && b < 0 {
		return nil, typeErrorf("0.0 cannot be raised to a negative power")
	}
	if a < 0 && b != math.Trunc(b) {
		return nil, typeErrorf("complex numbers are not supported")
	}
	return math.Pow(a, b), nil
}

// integers computes on int64 and fails where Python would go on with a longer integer.
func integers(op string, a, b int64) (Value, error) {
	overflow := typeErrorf("integer overflow in %s", op)
	switch op {
	case "+":
		if s := a + b; (s > a) == (b > 0) {
			return s, nil
		}
		return nil, overflow
	case "-":
		if s := a - b; (s < a) == (b > 0) {
			return s, nil
		}
		return nil, overflow
	case "*":
		if p, ok := mul(a, b); ok {
			return p, nil
		}
		return nil, overflow
	case "//", "%":
		if b == 0 {
			return nil, typeErrorf("integer modulo by zero")
		}
		if b == -1 { // the only quotient that overflows
			if op == "%" {
				return int64(0), nil
			}
			return integers("-", 0, a)
		}
		q, r := a/b, a%b
		if r != 0 && (r < 0) != (b < 0) {
			q, r = q-1, r+b
		}
		if op == "%" {
			return r, nil
		}
		return q, nil
	}
	return power(a, b, overflow)
}

// mul multiplies and tells whether the product fits.
func mul(a, b int64) (int64, bool) {
	if a == 0 || b == 0 {
		return 0, true
	}
	p := a * b
	return p, p/b == a && !(a == -1 && b == math.MinInt64) && !(b == -1 && a == math.MinInt64)
}

// power multiplies step by step; beyond an exponent of 63 only 0, 1 and -1 stay in range.
func power(a, n int64, overflow error) (Value, error) {
	if a == 0 || a == 1 || a == -1 { // exponents may be huge
		if n == 0 || a == 1 || a == -1 && n%2 == 0 {
			return int64(1), nil
		}
		return a, nil
	}
	if n > 63 {
		return nil, overflow
	}
	out, ok := int64(1), true
	for ; n > 0 && ok; n-- {
		out, ok = mul(out, a)
	}
	if !ok {
		return nil, overflow
	}
	return out, nil
}

// compare evaluates one comparison operator.
func (in *interp) compare(op string, a, b Value) (bool, error) {
	switch op {
	case "==":
		return in.equal(a, b)
	case "!=":
		eq, err := in.equal(a, b)
		return !eq, err
	case "in":
		return in.contains(b, a)
	case "not in":
		ok, err := in.contains(b, a)
		return !ok, err
	}
	c, err := in.order(a, b)
	if err != nil {
		return false, err
	}
	switch op {
	case "<":
		return c == -1, nil
	case "<=":
		return c == -1 || c == 0, nil
	case ">":
		return c == 1, nil
	}
	return c == 1 || c == 0, nil
}

// order compares two ordered values: -1, 0, 1, or 2 for NaN.
func (in *interp) order(a, b Value) (int, error) {
	if x, y, ok := numbers(a, b); ok {
		return compareNumbers(x, y), nil
	}
	switch x := a.(type) {
	case Undefined:
		return 0, undefinedError(x)
	case string:
		if y, ok := b.(string); ok {
			return strings.Compare(x, y), nil // UTF-8 sorts as its code points do
		}
	case *List:
		if y, ok := b.(*List); ok && x.Tuple == y.Tuple {
			if err := in.enter(); err != nil {
				return 0, err
			}
			defer in.leave()
			for i := range min(len(x.Items), len(y.Items)) {
				eq, err := in.equal(x.Items[i], y.Items[i])
				if err != nil {
					return 0, err
				}
				if !eq {
					return in.order(x.Items[i], y.Items[i])
				}
			}
			return compareNumbers(int64(len(x.Items)), int64(len(y.Items))), nil
		}
	}
	if u, ok := b.(Undefined); ok {
		return 0, undefinedError(u)
	}
	return 0, typeErrorf("'%s' and '%s' have no order", typeName(a), typeName(b))
}

// contains is "in": substrings, keys, or elements.
func (in *interp) contains(where, what Value) (bool, error) {
	switch w := where.(type) {
	case string:
		s, ok := what.(string)
		if !ok {
			return false, badOperand(what, "'in <string>' requires string as left operand, not")
		}
		return strings.Contains(w, s), in.steps(len(w) / 256)
	case *Dict:
		if _, ok := hashKey(what); !ok {
			return false, typeErrorf("unhashable type: '%s'", typeName(what))
		}
		_, ok := w.at(what)
		return ok, nil
	}
	items, err := in.iterate(where)
	if err != nil {
		return false, typeErrorf("argument of type '%s' is not iterable", typeName(where))
	}
	for _, v := range items {
		if eq, err := in.equal(v, what); eq || err != nil {
			return eq, err
		}
	}
	return false, nil
}

// attr is x.name: attributes of Python's types first, then keys of a dict.
func (in *interp) attr(v Value, name string) (Value, error) {
	switch x := v.(type) {
	case Undefined:
		return nil, undefinedError(x)
	case *loop:
		return x.attr(name), nil
	case *namespace:
		if val, ok := x.vars.Get(name); ok {
			return val, nil
		}
	case *Dict:
		if m, err := method(v, name); m != nil || err != nil {
			return m, err
		}
		if val, ok := x.Get(name); ok {
			return val, nil
		}
	default:
		if m, err := method(v, name); m != nil || err != nil {
			return m, err
		}
	}
	return Undefined{"'" + typeName(v) + " object' has no attribute '" + name + "'"}, nil
}

// item is x[key]; where there is no such element the attribute of that name serves, as in Jinja.
func (in *interp) item(v, key Value) (Value, error) {
	switch x := v.(type) {
	case Undefined:
		return nil, undefinedError(x)
	case *Dict:
		if val, ok := x.at(key); ok {
			return val, nil
		}
	case string:
		if i, ok := index(key, v); ok {
			if err := in.steps(len(x) / 64); err != nil {
				return nil, err
			}
			return substring(x, i, i+1), nil
		}
	case *List:
		if i, ok := index(key, v); ok {
			return x.Items[i], nil
		}
	case *rangeValue:
		if i, ok := index(key, v); ok {
			return x.at(int64(i)), nil
		}
	}
	if name, ok := key.(string); ok {
		if _, isDict := v.(*Dict); !isDict {
			return in.attr(v, name)
		}
		if m, err := method(v, name); m != nil || err != nil {
			return m, err
		}
	}
	return Undefined{"'" + typeName(v) + " object' has no element " + keyText(key)}, nil
}

// keyText names a subscript for a message.
func keyText(key Value) string {
	switch k := key.(type) {
	case string:
		return strRepr(k)
	case int64:
		return strconv.FormatInt(k, 10)
	}
	return "of type " + typeName(key)
}

// index resolves a subscript of a sequence, counting negative ones from the end.
func index(key, seq Value) (int, bool) {
	n, ok := number(key)
	i, isInt := n.(int64)
	if !ok || !isInt {
		return 0, false
	}
	size, _ := length(seq)
	if i < 0 {
		i += int64(size)
	}
	return int(i), i >= 0 && i < int64(size)
}

// substring cuts by code points.
func substring(s string, from, to int) string {
	n, a, b := 0, len(s), len(s)
	for i := range s {
		if n == from {
			a = i
		}
		if n == to {
			b = i
			break
		}
		n++
	}
	if from >= to {
		return ""
	}
	return s[a:b]
}

// slice is x[start:stop:step].
func (in *interp) slice(v Value, bounds [3]Value) (Value, error) {
	if u, ok := v.(Undefined); ok {
		return nil, undefinedError(u)
	}
	size, _ := length(v)
	idx, err := sliceIndices(bounds, int64(size))
	if err != nil {
		return nil, err
	}
	if err := in.steps(size / 64); err != nil {
		return nil, err
	}
	switch x := v.(type) {
	case string:
		if idx.step == 1 {
			return substring(x, int(idx.start), int(idx.start+idx.n)), nil
		}
		runes := []rune(x)
		if err := in.charge(8*size + 4*int(idx.n)); err != nil {
			return nil, err
		}
		out := make([]rune, idx.n)
		for i := range out {
			out[i] = runes[idx.at(int64(i)).(int64)]
		}
		return string(out), nil
	case *List:
		if err := in.charge(16 * int(idx.n)); err != nil {
			return nil, err
		}
		out := make([]Value, idx.n)
		for i := range out {
			out[i] = x.Items[idx.at(int64(i)).(int64)]
		}
		return &List{Items: out, Tuple: x.Tuple}, nil
	case *rangeValue:
		start := x.start + idx.start*x.step
		return &rangeValue{start, x.start + idx.stop*x.step, x.step * idx.step, idx.n}, nil
	}
	return nil, typeErrorf("'%s' object is not subscriptable by a slice", typeName(v))
}

// sliceIndices turns slice bounds into the range of positions they select among n elements.
func sliceIndices(bounds [3]Value, n int64) (*rangeValue, error) {
	var given [3]int64
	var set [3]bool
	for i, b := range bounds {
		if b == nil {
			continue
		}
		v, _ := number(b)
		x, ok := v.(int64)
		if !ok {
			return nil, badOperand(b, "slice indices must be integers or None, not")
		}
		given[i], set[i] = x, true
	}
	r := &rangeValue{start: 0, stop: n, step: 1}
	if set[2] {
		r.step = max(min(given[2], 1<<40), -1<<40) // beyond any length, and safe to multiply
	}
	low, high := int64(0), n
	switch {
	case r.step == 0:
		return nil, typeErrorf("slice step cannot be zero")
	case r.step < 0:
		low, high = -1, n-1
		r.start, r.stop = high, low
	}
	clamp := func(x int64) int64 {
		if x < 0 {
			x += n
		}
		return max(low, min(high, x))
	}
	if set[0] {
		r.start = clamp(given[0])
	}
	if set[1] {
		r.stop = clamp(given[1])
	}
	r.n = rangeLen(r.start, r.stop, r.step)
	return r, nil
}

// rangeLen is how many steps lead from start to before stop.
func rangeLen(start, stop, step int64) int64 {
	switch {
	case step > 0 && start < stop:
		return (stop-start-1)/step + 1
	case step < 0 && start > stop:
		return (start-stop-1)/-step + 1
	}
	return 0
}
