package jinja

import (
	"fmt"
	"iter"
	"math"
	"strings"
	"unicode/utf8"
)

// Value is a template value: nil (None), bool, int64, float64, string, *List, *Dict, Undefined, or one of the
// package's own kinds (namespaces, functions, ranges, views of a dict, one-shot iterators, the loop variable).
type Value = any

// Undefined is what a missing variable or attribute yields; what says which, as a sentence. It prints as nothing, is false and iterates as empty;
// everything else about it is an error.
type Undefined struct{ what string }

// List is a list or, with Tuple set, a tuple. Templates cannot change either.
type List struct {
	Items []Value
	Tuple bool
}

// Dict keeps its keys in insertion order, as Python's dict does.
type Dict struct {
	keys  []Value
	vals  []Value
	index map[any]int // by hashKey
}

// NewDict returns an empty dict.
func NewDict() *Dict { return &Dict{index: map[any]int{}} }

// Len returns the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

// Set adds or replaces a string key.
func (d *Dict) Set(key string, v Value) { d.set(key, key, v) }

// Get returns the value of a string key.
func (d *Dict) Get(key string) (Value, bool) {
	i, ok := d.index[key]
	if !ok {
		return nil, false
	}
	return d.vals[i], true
}

// set stores under a hash computed by hashKey; an existing key keeps its place.
func (d *Dict) set(hash any, key, v Value) {
	if i, ok := d.index[hash]; ok {
		d.vals[i] = v
		return
	}
	d.index[hash] = len(d.keys)
	d.keys = append(d.keys, key)
	d.vals = append(d.vals, v)
}

// put is set for a key of any type; it fails on unhashable ones.
func (d *Dict) put(key, v Value) error {
	h, ok := hashKey(key)
	if !ok {
		return typeErrorf("unhashable type: '%s'", typeName(key))
	}
	d.set(h, key, v)
	return nil
}

// at is Get for a key of any type; an unhashable one is in no dict.
func (d *Dict) at(key Value) (Value, bool) {
	h, ok := hashKey(key)
	if !ok {
		return nil, false
	}
	i, ok := d.index[h]
	if !ok {
		return nil, false
	}
	return d.vals[i], true
}

// hashKey maps equal Python keys to equal Go keys: True, 1 and 1.0 are one key.
func hashKey(v Value) (any, bool) {
	switch v := v.(type) {
	case nil, int64, string:
		return v, true
	case bool:
		return intOf(v), true
	case Undefined:
		return Undefined{}, true // all are equal
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<62 {
			return int64(v), true
		}
		return v, true
	case *List:
		if !v.Tuple {
			return nil, false
		}
		var b strings.Builder
		for _, it := range v.Items {
			h, ok := hashKey(it)
			if !ok {
				return nil, false
			}
			fmt.Fprintf(&b, "%T:%q,", h, fmt.Sprint(h))
		}
		return [1]string{b.String()}, true
	}
	return nil, false
}

func intOf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

type (
	namespace struct{ vars *Dict }
	function  struct {
		name string
		call func(in *interp, a args) (Value, error)
	}
	rangeValue struct{ start, stop, step, n int64 }
	// view is dict.keys(), .values() or .items(): it has a length and iterates, and cannot be indexed.
	view struct {
		name  string
		items []Value
	}
	// iterator is what map, select and their kin return: it is true, has no length and can be read once.
	iterator struct{ rest []Value }
)

func (r *rangeValue) at(i int64) Value { return r.start + i*r.step }

// truthy is bool() of Python.
func truthy(v Value) bool {
	switch v := v.(type) {
	case nil, Undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case *List:
		return len(v.Items) > 0
	case *Dict:
		return v.Len() > 0
	case *view:
		return len(v.items) > 0
	case *rangeValue:
		return v.n > 0
	}
	return true
}

// typeName is what Python calls the type of a value, for its messages.
func typeName(v Value) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *List:
		if v.Tuple {
			return "tuple"
		}
		return "list"
	case *Dict:
		return "dict"
	case Undefined:
		return "Undefined"
	case *namespace:
		return "Namespace"
	case *rangeValue:
		return "range"
	case *view:
		return v.name
	case *iterator:
		return "generator"
	case *loop:
		return "LoopContext"
	}
	return "function"
}

// length is len(): ok is false for what has none.
func length(v Value) (int, bool) {
	switch v := v.(type) {
	case string:
		return utf8.RuneCountInString(v), true
	case *List:
		return len(v.Items), true
	case *Dict:
		return v.Len(), true
	case *view:
		return len(v.items), true
	case *rangeValue:
		return int(v.n), true
	case Undefined:
		return 0, true
	case *loop:
		return len(v.items), true
	}
	return 0, false
}

// iterate returns the elements of an iterable, charged to the budget.
func (in *interp) iterate(v Value) ([]Value, error) {
	var out []Value
	switch v := v.(type) {
	case Undefined:
		return nil, nil
	case *List:
		out = v.Items
	case *Dict:
		out = v.keys
	case *view:
		out = v.items
	case *iterator:
		out, v.rest = v.rest, nil
	case string:
		if err := in.charge(16 * len(v)); err != nil {
			return nil, err
		}
		out = make([]Value, 0, utf8.RuneCountInString(v))
		for i, r := range v {
			out = append(out, v[i:i+utf8.RuneLen(r)])
		}
	case *rangeValue:
		if err := in.charge(16 * int(v.n)); err != nil {
			return nil, err
		}
		out = make([]Value, v.n)
		for i := range out {
			out[i] = v.at(int64(i))
		}
	default:
		return nil, typeErrorf("'%s' object is not iterable", typeName(v))
	}
	return out, in.steps(len(out) / 16)
}

// equal is == of Python. Nesting deeper than the data or a template can reasonably build is an error.
func (in *interp) equal(a, b Value) (bool, error) {
	if x, y, ok := numbers(a, b); ok {
		return compareNumbers(x, y) == 0, nil
	}
	switch a := a.(type) {
	case nil:
		return b == nil, nil
	case string:
		s, ok := b.(string)
		return ok && a == s, nil
	case Undefined:
		_, ok := b.(Undefined)
		return ok, nil
	case *List:
		l, ok := b.(*List)
		if !ok || a.Tuple != l.Tuple || len(a.Items) != len(l.Items) {
			return false, nil
		}
		return in.equalAll(a.Items, l.Items)
	case *Dict:
		d, ok := b.(*Dict)
		if !ok || a.Len() != d.Len() {
			return false, nil
		}
		other := make([]Value, 0, a.Len())
		for _, k := range a.keys {
			v, ok := d.at(k)
			if !ok {
				return false, nil
			}
			other = append(other, v)
		}
		return in.equalAll(a.vals, other)
	case *rangeValue:
		r, ok := b.(*rangeValue)
		return ok && *a == *r, nil
	case *namespace, *function, *view, *iterator, *loop:
		return a == b, nil
	}
	return false, nil
}

// equalAll compares two sequences of the same length.
func (in *interp) equalAll(a, b []Value) (bool, error) {
	if err := in.enter(); err != nil {
		return false, err
	}
	defer in.leave()
	for i := range a {
		if ok, err := in.equal(a[i], b[i]); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// numbers widens two numeric operands (bool counts as int).
func numbers(a, b Value) (x, y Value, ok bool) {
	x, okx := number(a)
	y, oky := number(b)
	return x, y, okx && oky
}

// number widens a bool to an integer and tells whether a value is a number at all.
func number(v Value) (Value, bool) {
	switch v := v.(type) {
	case bool:
		return intOf(v), true
	case int64, float64:
		return v, true
	}
	return nil, false
}

// asFloat converts a widened number.
func asFloat(v Value) float64 {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case float64:
		return v
	}
	return math.NaN()
}

// compareNumbers orders two widened numbers; NaN is unordered, told by 2.
func compareNumbers(x, y Value) int {
	if i, ok := x.(int64); ok {
		if j, ok := y.(int64); ok {
			switch {
			case i < j:
				return -1
			case i > j:
				return 1
			}
			return 0
		}
	}
	a, b := asFloat(x), asFloat(y)
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	case a == b:
		return 0
	}
	return 2
}

// All yields the string keys with their values in order.
func (d *Dict) All() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		for i, k := range d.keys {
			if s, ok := k.(string); ok && !yield(s, d.vals[i]) {
				return
			}
		}
	}
}
