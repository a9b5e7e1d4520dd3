package jinja

// Statements.

func (s *textStmt) exec(_ *interp, _ *scope, out *buffer) error { return out.add(s.text) }

func (s *printStmt) exec(in *interp, sc *scope, out *buffer) error {
	v, err := in.eval(s.x, sc)
	if err != nil {
		return at(s.line, err)
	}
	return at(s.line, out.print(v))
}

// print appends a value the way {{ }} does: strings as they are, everything else as str() has it.
func (b *buffer) print(v Value) error {
	if s, ok := v.(string); ok {
		return b.add(s)
	}
	s, err := b.in.str(v)
	if err != nil {
		return err
	}
	return b.add(s)
}

// An if tag opens no scope: what its branches set stays set behind it.
func (s *ifStmt) exec(in *interp, sc *scope, out *buffer) error {
	for i, c := range s.conds {
		v, err := in.eval(c, sc)
		if err != nil {
			return err
		}
		if truthy(v) {
			return in.run(s.bodies[i], sc, out)
		}
	}
	return in.run(s.els, sc, out)
}

// loop is the variable of that name inside of a for tag.
type loop struct {
	items   []Value
	i       int
	changed []Value // arguments of the last call of loop.changed
}

// A for tag gives every iteration a scope of its own, so nothing set in one reaches the next. That is why templates
// carry state over in namespaces.
func (s *forStmt) exec(in *interp, sc *scope, out *buffer) error {
	v, err := in.eval(s.iter, sc)
	if err != nil {
		return at(s.line, err)
	}
	items, err := in.iterate(v)
	if err != nil {
		return at(s.line, err)
	}
	if s.cond != nil {
		if items, err = s.filter(in, sc, items); err != nil {
			return err
		}
	}
	if len(items) == 0 {
		return in.run(s.els, newScope(sc), out)
	}
	lp := &loop{items: items}
	for i, item := range items {
		lp.i = i
		inner := newScope(sc)
		inner.vars["loop"] = lp
		if err := in.assign(inner, s.target, item); err != nil {
			return at(s.line, err)
		}
		switch err := in.run(s.body, inner, out); err {
		case nil, errContinue:
		case errBreak:
			return nil
		default:
			return err
		}
	}
	return nil
}

// filter keeps the items for which the condition of the tag holds, before the loop counts them: loop.index and
// loop.last speak of what is left.
func (s *forStmt) filter(in *interp, sc *scope, items []Value) ([]Value, error) {
	if err := in.charge(16 * len(items)); err != nil {
		return nil, err
	}
	kept := make([]Value, 0, len(items))
	for _, item := range items {
		inner := newScope(sc)
		inner.vars["loop"] = Undefined{"'loop' is undefined in the filter of a loop"}
		if err := in.assign(inner, s.target, item); err != nil {
			return nil, at(s.line, err)
		}
		ok, err := in.eval(s.cond, inner)
		if err != nil {
			return nil, err
		}
		if truthy(ok) {
			kept = append(kept, item)
		}
	}
	return kept, nil
}

// assign binds a value to a target in sc, unpacking tuples.
func (in *interp) assign(sc *scope, t target, v Value) error {
	switch {
	case t.attr != "":
		ns, _ := sc.lookup(t.name)
		n, ok := ns.(*namespace)
		if !ok {
			return typeErrorf("cannot assign attribute on non-namespace object")
		}
		if t.attr[0] == '_' {
			return typeErrorf("namespace attribute %q begins with an underscore", t.attr)
		}
		n.vars.Set(t.attr, v)
	case t.tuple != nil:
		items, err := in.iterate(v)
		if err != nil {
			return err
		}
		if len(items) != len(t.tuple) {
			return typeErrorf("cannot unpack %d values into %d variables", len(items), len(t.tuple))
		}
		for i, sub := range t.tuple {
			if err := in.assign(sc, sub, items[i]); err != nil {
				return err
			}
		}
	default:
		sc.vars[t.name] = v
	}
	return nil
}

// set writes to the innermost scope; in a loop that ends with the iteration.
func (s *setStmt) exec(in *interp, sc *scope, _ *buffer) error {
	v, err := in.eval(s.x, sc)
	if err != nil {
		return at(s.line, err)
	}
	return at(s.line, in.assign(sc, s.target, v))
}

// The body of a set block has its own scope; only its text leaves it.
func (s *setBlock) exec(in *interp, sc *scope, _ *buffer) error {
	v, err := in.capture(s.body, newScope(sc), s.filter)
	if err != nil {
		return at(s.line, err)
	}
	return at(s.line, in.assign(sc, s.target, v))
}

// A filter block prints its body through filters.
func (s *filterStmt) exec(in *interp, sc *scope, out *buffer) error {
	v, err := in.capture(s.body, newScope(sc), s.filter)
	if err != nil {
		return at(s.line, err)
	}
	return at(s.line, out.print(v))
}

// capture renders a body into a string and passes it through filters.
func (in *interp) capture(body []stmt, sc *scope, filter expr) (Value, error) {
	b := &buffer{in: in}
	if err := in.run(body, sc, b); err != nil {
		return nil, err
	}
	if filter == nil {
		return b.String(), nil
	}
	sc = newScope(sc)
	sc.vars[captured] = b.String()
	return in.eval(filter, sc)
}

// captured names the text a filter without operand works on; no template can spell it.
const captured = "|"

// The values of a with tag are computed outside of the scope they open: "with a = 1, b = a" takes the outer a.
func (s *withStmt) exec(in *interp, sc *scope, out *buffer) error {
	inner := newScope(sc)
	for i, x := range s.values {
		v, err := in.eval(x, sc)
		if err != nil {
			return at(s.line, err)
		}
		if err := in.assign(inner, s.targets[i], v); err != nil {
			return at(s.line, err)
		}
	}
	return in.run(s.body, inner, out)
}

// Without inheritance there is nothing to override: a block runs where it stands.
func (s *blockStmt) exec(in *interp, sc *scope, out *buffer) error {
	return in.run(s.body, newScope(sc), out)
}

func (s *jumpStmt) exec(*interp, *scope, *buffer) error { return s.err }

// A macro is a variable of the scope it stands in. It sees that scope as it will be when called.
func (s *macroStmt) exec(_ *interp, sc *scope, _ *buffer) error {
	sc.vars[s.def.name] = s.def.bind(sc)
	return nil
}

// A call block passes its body to the macro as the function caller.
func (s *callStmt) exec(in *interp, sc *scope, out *buffer) error {
	fn, err := in.eval(s.call.fn, sc)
	if err != nil {
		return at(s.line, err)
	}
	a, err := in.arguments(s.call.args, sc)
	if err != nil {
		return at(s.line, err)
	}
	a.names, a.kw = append(a.names, "caller"), append(a.kw, s.body.bind(sc))
	v, err := in.call(fn, a)
	if err != nil {
		return at(s.line, err)
	}
	return at(s.line, out.print(v))
}

// bind makes a function of a macro that sees the variables of sc, also those set later.
func (m *macroDef) bind(sc *scope) *function {
	return &function{m.name, func(in *interp, a args) (Value, error) {
		inner := newScope(sc)
		if err := m.enter(in, inner, a); err != nil {
			return nil, err
		}
		b := &buffer{in: in}
		err := in.run(m.body, inner, b)
		return b.String(), err
	}}
}

// enter binds the arguments of a call.
func (m *macroDef) enter(in *interp, sc *scope, a args) error {
	kwargs := NewDict()
	for i, n := range a.names {
		kwargs.Set(n, a.kw[i])
	}
	for i, p := range m.params {
		v, named := kwargs.Get(p)
		switch d := i - (len(m.params) - len(m.defaults)); {
		case i < len(a.pos):
			if named {
				return typeErrorf("macro '%s' got multiple values for '%s'", m.name, p)
			}
			v = a.pos[i]
		case named:
			kwargs = kwargs.without(p)
		case d >= 0:
			var err error
			if v, err = in.eval(m.defaults[d], sc); err != nil {
				return err
			}
		default:
			v = Undefined{"parameter '" + p + "' was not provided"}
		}
		sc.vars[p] = v
	}
	if m.caller {
		caller, ok := kwargs.Get("caller")
		if !ok {
			caller = Undefined{"'caller' is undefined"}
		}
		sc.vars["caller"] = caller
		kwargs = kwargs.without("caller")
	}
	var rest []Value
	if len(a.pos) > len(m.params) {
		rest = a.pos[len(m.params):]
	}
	if m.varargs {
		sc.vars["varargs"] = &List{Items: rest, Tuple: true}
	} else if rest != nil {
		return typeErrorf("macro '%s' takes not more than %d arguments", m.name, len(m.params))
	}
	if m.kwargs {
		sc.vars["kwargs"] = kwargs
	} else if kwargs.Len() > 0 {
		return typeErrorf("macro '%s' takes no keyword argument '%v'", m.name, kwargs.keys[0])
	}
	return nil
}

// without returns a copy that lacks a key.
func (d *Dict) without(key string) *Dict {
	out := NewDict()
	for i, k := range d.keys {
		if k != Value(key) {
			out.set(k, k, d.vals[i])
		}
	}
	return out
}
