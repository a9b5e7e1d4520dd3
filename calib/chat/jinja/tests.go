package jinja

import "strings"

// testFunc is a test as in "x is name(args)".
type testFunc func(in *interp, v Value, a []Value) (bool, error)

// kindTest is a test of a value alone.
func kindTest(is func(v Value) bool) testFunc {
	return func(_ *interp, v Value, _ []Value) (bool, error) { return is(v), nil }
}

// compareTest is a test by a comparison operator.
func compareTest(op string) testFunc {
	return func(in *interp, v Value, a []Value) (bool, error) {
		if len(a) != 1 {
			return false, typeErrorf("the test %q takes one argument", op)
		}
		return in.compare(op, v, a[0])
	}
}

// parityTest is odd or even.
func parityTest(rest int64) testFunc {
	return func(_ *interp, v Value, _ []Value) (bool, error) {
		n, err := binaryMod(v, int64(2))
		return n == rest, err
	}
}

// binaryMod is v % by as an integer, -1 when a float leaves a fraction.
func binaryMod(v, by Value) (int64, error) {
	x, y, ok := numbers(v, by)
	if !ok {
		return 0, badOperand(v, "a number is required, not")
	}
	m, err := arithmetic("%", x, y)
	if err != nil {
		return 0, err
	}
	if f, ok := m.(float64); ok {
		if f != float64(int64(f)) {
			return -1, nil
		}
		return int64(f), nil
	}
	return m.(int64), nil
}

func isUndefined(v Value) bool { _, ok := v.(Undefined); return ok }
func isString(v Value) bool    { _, ok := v.(string); return ok }
func isMapping(v Value) bool   { _, ok := v.(*Dict); return ok }

// isCallable follows Python: whatever has a __call__.
func isCallable(v Value) bool {
	_, ok := v.(*function)
	// Jinja's Undefined has a method __call__, which is enough for callable().
	return ok || isUndefined(v)
}

func isInteger(v Value) bool { _, ok := v.(int64); return ok }
func isFloat(v Value) bool   { _, ok := v.(float64); return ok }
func isNumber(v Value) bool  { _, ok := number(v); return ok }

// isSequence is what has a length and can be indexed; Jinja counts mappings in.
func isSequence(v Value) bool {
	switch v.(type) {
	case string, *List, *Dict, *rangeValue, Undefined:
		return true
	}
	return false
}

// isIterable is what a for tag accepts.
func isIterable(v Value) bool {
	switch v.(type) {
	case string, *List, *Dict, *rangeValue, Undefined, *view, *iterator, *loop:
		return true
	}
	return false
}

// same is the identity of Python for the values where it is predictable.
func same(_ *interp, v Value, a []Value) (bool, error) {
	if len(a) != 1 {
		return false, typeErrorf(`the test "sameas" takes one argument`)
	}
	switch a[0].(type) {
	case nil, bool, int64, *List, *Dict, *namespace, *function:
		return v == a[0], nil
	}
	return false, &UnsupportedError{What: "the test \"sameas\" for a " + typeName(a[0])}
}

// caseTest is lower or upper.
func caseTest(fold func(string) string) testFunc {
	return func(in *interp, v Value, _ []Value) (bool, error) {
		s, err := in.str(v)
		// str.islower: something changes in the other direction and nothing in this one.
		return fold(s) == s && strings.ToUpper(s) != strings.ToLower(s), err
	}
}

var tests = map[string]testFunc{
	"defined":   kindTest(func(v Value) bool { return !isUndefined(v) }),
	"undefined": kindTest(isUndefined), "none": kindTest(func(v Value) bool { return v == nil }),
	"boolean": kindTest(func(v Value) bool { _, ok := v.(bool); return ok }),
	"true":    kindTest(func(v Value) bool { return v == true }), "false": kindTest(func(v Value) bool { return v == false }),
	"integer": kindTest(isInteger), "float": kindTest(isFloat), "number": kindTest(isNumber),
	"string": kindTest(isString), "mapping": kindTest(isMapping), "callable": kindTest(isCallable),
	"sequence": kindTest(isSequence), "iterable": kindTest(isIterable),
	"escaped": kindTest(func(Value) bool { return false }),
	"lower":   caseTest(strings.ToLower), "upper": caseTest(strings.ToUpper),
	"odd": parityTest(1), "even": parityTest(0), "sameas": same,
	"divisibleby": func(_ *interp, v Value, a []Value) (bool, error) {
		if len(a) != 1 {
			return false, typeErrorf(`the test "divisibleby" takes one argument`)
		}
		n, err := binaryMod(v, a[0])
		return n == 0, err
	},
	"in": func(in *interp, v Value, a []Value) (bool, error) {
		if len(a) != 1 {
			return false, typeErrorf(`the test "in" takes one argument`)
		}
		return in.contains(a[0], v)
	},
	"eq": compareTest("=="), "equalto": compareTest("=="), "ne": compareTest("!="),
	"lt": compareTest("<"), "lessthan": compareTest("<"), "le": compareTest("<="),
	"gt": compareTest(">"), "greaterthan": compareTest(">"), "ge": compareTest(">="),
	"==": compareTest("=="), "!=": compareTest("!="), "<": compareTest("<"), "<=": compareTest("<="), ">": compareTest(">"),
	">=": compareTest(">="), // by these names from select and its kin alone
}

// test applies a test by name.
func (in *interp) test(name string, v Value, a []Value) (bool, error) {
	t := tests[name]
	if t == nil {
		return false, &UnsupportedError{What: "the test \"" + name + "\""}
	}
	return t(in, v, a)
}
