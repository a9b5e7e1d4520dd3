package jinja

func (x *constExpr) eval(*interp, *scope) (Value, error) { return x.val, nil }

// A variable hides a global function of its name; an unknown name is undefined, which is no error by itself.
func (x *nameExpr) eval(in *interp, sc *scope) (Value, error) {
	if v, ok := sc.lookup(x.name); ok {
		return v, nil
	}
	if f, ok := globals[x.name]; ok {
		return f, nil
	}
	return Undefined{"'" + x.name + "' is undefined"}, nil
}

// evalAll evaluates the elements of a list or the arguments of a call, in order.
func (in *interp) evalAll(xs []expr, sc *scope) ([]Value, error) {
	if err := in.charge(16 * len(xs)); err != nil {
		return nil, err
	}
	out := make([]Value, len(xs))
	for i, x := range xs {
		v, err := in.eval(x, sc)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

func (x *listExpr) eval(in *interp, sc *scope) (Value, error) {
	items, err := in.evalAll(x.items, sc)
	return &List{Items: items, Tuple: x.tuple}, err
}

// Of equal keys the last value counts and the first place, as in Python.
func (x *dictExpr) eval(in *interp, sc *scope) (Value, error) {
	d := NewDict()
	for i := range x.keys {
		k, err := in.eval(x.keys[i], sc)
		if err != nil {
			return nil, err
		}
		v, err := in.eval(x.vals[i], sc)
		if err != nil {
			return nil, err
		}
		if err := d.put(k, v); err != nil {
			return nil, at(x.line, err)
		}
	}
	return d, in.charge(64 * d.Len())
}

// Minus and plus turn a bool into an integer; not takes anything.
func (x *unaryExpr) eval(in *interp, sc *scope) (Value, error) {
	v, err := in.eval(x.x, sc)
	if err != nil {
		return nil, err
	}
	if x.op == "not" {
		return !truthy(v), nil
	}
	n, ok := number(v)
	if !ok {
		return nil, at(x.line, badOperand(v, "bad operand type for unary "+x.op))
	}
	if x.op == "+" {
		return n, nil
	}
	if i, ok := n.(int64); ok {
		return -i, nil
	}
	return -n.(float64), nil
}

// and and or return one of their operands, not a bool, and leave the second alone when the first decides.
func (x *logicExpr) eval(in *interp, sc *scope) (Value, error) {
	v, err := in.eval(x.x, sc)
	if err != nil || truthy(v) != x.and {
		return v, err
	}
	return in.eval(x.y, sc)
}

// Only the chosen branch is evaluated: templates guard attributes this way.
func (x *condExpr) eval(in *interp, sc *scope) (Value, error) {
	c, err := in.eval(x.cond, sc)
	if err != nil {
		return nil, err
	}
	switch {
	case truthy(c):
		return in.eval(x.then, sc)
	case x.els != nil:
		return in.eval(x.els, sc)
	}
	return Undefined{"the condition of an inline if without else was false"}, nil
}

// Both operands are evaluated, left first, before the operator looks at their types.
func (x *binaryExpr) eval(in *interp, sc *scope) (Value, error) {
	a, err := in.eval(x.x, sc)
	if err != nil {
		return nil, err
	}
	b, err := in.eval(x.y, sc)
	if err != nil {
		return nil, err
	}
	v, err := in.binary(x.op, a, b)
	return v, at(x.line, err)
}

// A chain stops at the first comparison that fails; each operand is evaluated at most once.
func (x *compareExpr) eval(in *interp, sc *scope) (Value, error) {
	a, err := in.eval(x.x, sc)
	if err != nil {
		return nil, err
	}
	for i, op := range x.ops {
		b, err := in.eval(x.ys[i], sc)
		if err != nil {
			return nil, err
		}
		ok, err := in.compare(op, a, b)
		if err != nil || !ok {
			return false, at(x.line, err)
		}
		a = b
	}
	return true, nil
}

// x.name and x["name"] are different things: the first prefers methods, the second keys.
func (x *attrExpr) eval(in *interp, sc *scope) (Value, error) {
	v, err := in.eval(x.x, sc)
	if err != nil {
		return nil, err
	}
	out, err := in.attr(v, x.name)
	return out, at(x.line, err)
}

func (x *itemExpr) eval(in *interp, sc *scope) (Value, error) {
	v, err := in.eval(x.x, sc)
	if err != nil {
		return nil, err
	}
	k, err := in.eval(x.key, sc)
	if err != nil {
		return nil, err
	}
	out, err := in.item(v, k)
	return out, at(x.line, err)
}

// Bounds left out stay nil, which means the same as None.
func (x *sliceExpr) eval(in *interp, sc *scope) (Value, error) {
	v, err := in.eval(x.x, sc)
	if err != nil {
		return nil, err
	}
	var bounds [3]Value
	for i, e := range []expr{x.start, x.stop, x.step} {
		if e == nil {
			continue
		}
		if bounds[i], err = in.eval(e, sc); err != nil {
			return nil, err
		}
	}
	out, err := in.slice(v, bounds)
	return out, at(x.line, err)
}

// The function is evaluated before its arguments.
func (x *callExpr) eval(in *interp, sc *scope) (Value, error) {
	fn, err := in.eval(x.fn, sc)
	if err != nil {
		return nil, err
	}
	a, err := in.arguments(x.args, sc)
	if err != nil {
		return nil, err
	}
	v, err := in.call(fn, a)
	return v, at(x.line, err)
}

// A filter is looked up when it runs, so that an unknown one in a branch not taken does no harm, as in Jinja.
func (x *filterExpr) eval(in *interp, sc *scope) (Value, error) {
	var v Value
	var err error
	if x.x == nil {
		v, _ = sc.lookup(captured)
	} else if v, err = in.eval(x.x, sc); err != nil {
		return nil, err
	}
	a, err := in.arguments(x.args, sc)
	if err != nil {
		return nil, err
	}
	out, err := in.filter(x.name, v, a)
	return out, at(x.line, err)
}

// A test is looked up when it runs, like a filter.
func (x *testExpr) eval(in *interp, sc *scope) (Value, error) {
	v, err := in.eval(x.x, sc)
	if err != nil {
		return nil, err
	}
	a, err := in.arguments(x.args, sc)
	if err != nil {
		return nil, err
	}
	ok, err := in.test(x.name, v, a.pos)
	return ok != x.neg, at(x.line, err)
}

// args are the evaluated arguments of a call.
type args struct {
	pos   []Value
	names []string
	kw    []Value
}

// arguments evaluates what a call passes: positions, names, then * and ** spread over them.
func (in *interp) arguments(c callArgs, sc *scope) (args, error) {
	var a args
	var err error
	if a.pos, err = in.evalAll(c.pos, sc); err != nil {
		return a, err
	}
	if a.kw, err = in.evalAll(c.kw, sc); err != nil {
		return a, err
	}
	a.names = c.names[:len(c.names):len(c.names)]
	if c.star != nil {
		v, err := in.eval(c.star, sc)
		if err != nil {
			return a, err
		}
		items, err := in.iterate(v)
		if err != nil {
			return a, err
		}
		a.pos = append(a.pos, items...)
	}
	if c.star2 != nil {
		v, err := in.eval(c.star2, sc)
		if err != nil {
			return a, err
		}
		d, ok := v.(*Dict)
		if !ok {
			return a, typeErrorf("argument after ** must be a mapping, not %s", typeName(v))
		}
		for i, k := range d.keys {
			name, ok := k.(string)
			if !ok {
				return a, typeErrorf("keywords must be strings")
			}
			a.names, a.kw = append(a.names, name), append(a.kw, d.vals[i])
		}
	}
	return a, in.charge(16 * (len(a.pos) + len(a.kw)))
}

// call runs a function; its nesting counts against the depth, which is what ends endless recursion.
func (in *interp) call(fn Value, a args) (Value, error) {
	switch f := fn.(type) {
	case *function:
		if err := in.enter(); err != nil {
			return nil, err
		}
		defer in.leave()
		return f.call(in, a)
	case Undefined:
		return nil, undefinedError(f)
	}
	return nil, typeErrorf("'%s' object is not callable", typeName(fn))
}

// undefinedError says what is undefined, when somebody makes use of it.
func undefinedError(u Undefined) error { return &RuntimeError{Msg: u.what} }

// missing marks an argument that a call left out.
type missing struct{}

// bind orders the arguments of a call by a builtin's parameter names; those left out are missing{}.
func (a args) bind(name string, params []string) ([]Value, error) {
	if len(a.pos) > len(params) {
		return nil, typeErrorf("%s() takes at most %d arguments (%d given)", name, len(params), len(a.pos))
	}
	out := make([]Value, len(params))
	for i := range out {
		out[i] = missing{}
	}
	copy(out, a.pos)
	for j, n := range a.names {
		i := indexOf(params, n)
		if i < 0 {
			return nil, typeErrorf("%s() got an unexpected keyword argument '%s'", name, n)
		}
		if i < len(a.pos) {
			return nil, typeErrorf("%s() got multiple values for argument '%s'", name, n)
		}
		out[i] = a.kw[j]
	}
	return out, nil
}

func indexOf(list []string, s string) int {
	for i, x := range list {
		if x == s {
			return i
		}
	}
	return -1
}

// badOperand blames a value of the wrong type, or says that it is undefined, which is the more useful message.
func badOperand(v Value, msg string) error {
	if u, ok := v.(Undefined); ok {
		return undefinedError(u)
	}
	return typeErrorf("%s: '%s'", msg, typeName(v))
}
