package jinja

// target parses what may stand on the left of a set tag or in front of "in".
func (p *parser) target(namespace bool) (target, error) {
	first, err := p.oneTarget(namespace)
	if err != nil || !p.isOp(",") {
		return first, err
	}
	out := target{tuple: []target{first}}
	for p.skipOp(",") {
		if p.cur().kind != tName && !p.isOp("(") || p.isName("in") {
			break
		}
		t, err := p.oneTarget(namespace)
		if err != nil {
			return target{}, err
		}
		out.tuple = append(out.tuple, t)
	}
	return out, nil
}

// oneTarget parses a name, an attribute of a namespace, or targets in parentheses.
func (p *parser) oneTarget(namespace bool) (target, error) {
	if p.skipOp("(") {
		if err := p.nest(); err != nil {
			return target{}, err
		}
		defer p.unnest()
		t, err := p.target(namespace)
		if err != nil {
			return target{}, err
		}
		return t, p.expectOp(")")
	}
	t, err := p.expect(tName, "a variable name")
	if err != nil {
		return target{}, err
	}
	if _, reserved := constants[t.val]; reserved {
		p.i--
		return target{}, p.errorf("cannot assign to %q", t.val)
	}
	out := target{name: t.val}
	if namespace && p.skipOp(".") {
		attr, err := p.expect(tName, "an attribute name")
		if err != nil {
			return target{}, err
		}
		out.attr = attr.val
	}
	return out, nil
}

// setTag parses both forms: {% set x = 1 %} and {% set x %}…{% endset %}.
func (p *parser) setTag() (stmt, error) {
	line := p.line()
	to, err := p.target(true)
	if err != nil {
		return nil, err
	}
	if p.skipOp("=") {
		x, err := p.tuple(true, false)
		if err != nil {
			return nil, err
		}
		return &setStmt{line, to, x}, p.endTag()
	}
	s := &setBlock{line: line, target: to}
	if s.filter, err = p.filterChain(false); err != nil {
		return nil, err
	}
	if s.body, _, err = p.block("endset"); err != nil {
		return nil, err
	}
	return s, p.endTag()
}

// macroTag parses the definition of a macro.
func (p *parser) macroTag() (stmt, error) {
	line := p.line()
	name, err := p.expect(tName, "the name of the macro")
	if err != nil {
		return nil, err
	}
	def := &macroDef{name: name.val}
	if err := p.params(def); err != nil {
		return nil, err
	}
	if err := p.macroBody(def, "endmacro"); err != nil {
		return nil, err
	}
	return &macroStmt{line, def}, p.endTag()
}

// params parses "(a, b=1)".
func (p *parser) params(def *macroDef) error {
	if err := p.expectOp("("); err != nil {
		return err
	}
	for !p.skipOp(")") {
		if len(def.params) > 0 {
			if err := p.expectOp(","); err != nil {
				return err
			}
			if p.skipOp(")") {
				return nil
			}
		}
		name, err := p.expect(tName, "a parameter name")
		if err != nil {
			return err
		}
		def.params = append(def.params, name.val)
		if p.skipOp("=") {
			x, err := p.expression(true)
			if err != nil {
				return err
			}
			def.defaults = append(def.defaults, x)
		} else if len(def.defaults) > 0 {
			return p.errorf("a parameter without a default follows one with a default")
		}
	}
	return nil
}

// macroBody parses up to end with a loop count of its own: break cannot leave a macro.
func (p *parser) macroBody(def *macroDef, end string) (err error) {
	loops := p.loops
	p.loops = 0
	p.macro = append(p.macro, def)
	def.body, _, err = p.block(end)
	p.macro = p.macro[:len(p.macro)-1]
	p.loops = loops
	return err
}

// callTag parses {% call(args) macro(…) %}…{% endcall %}.
func (p *parser) callTag() (stmt, error) {
	s := &callStmt{line: p.line(), body: &macroDef{name: "caller"}}
	if p.isOp("(") {
		if err := p.params(s.body); err != nil {
			return nil, err
		}
	}
	x, err := p.expression(true)
	if err != nil {
		return nil, err
	}
	call, ok := x.(*callExpr)
	if !ok {
		return nil, p.errorf("expected a call")
	}
	s.call = call
	if err := p.macroBody(s.body, "endcall"); err != nil {
		return nil, err
	}
	return s, p.endTag()
}

// filterTag parses {% filter a|b %}…{% endfilter %}.
func (p *parser) filterTag() (stmt, error) {
	line := p.line()
	f, err := p.filterChain(true)
	if err != nil {
		return nil, err
	}
	body, _, err := p.block("endfilter")
	if err != nil {
		return nil, err
	}
	return &filterStmt{line, f, body}, p.endTag()
}

// withTag parses {% with a = 1, b = 2 %}…{% endwith %}.
func (p *parser) withTag() (stmt, error) {
	s := &withStmt{line: p.line()}
	for p.cur().kind != tBlockEnd {
		if len(s.targets) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		t, err := p.oneTarget(false)
		if err != nil {
			return nil, err
		}
		if err := p.expectOp("="); err != nil {
			return nil, err
		}
		x, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		s.targets, s.values = append(s.targets, t), append(s.values, x)
	}
	var err error
	if s.body, _, err = p.block("endwith"); err != nil {
		return nil, err
	}
	return s, p.endTag()
}

// blockTag parses a named block; without inheritance it is a body with a scope of its own.
func (p *parser) blockTag() (stmt, error) {
	name, err := p.expect(tName, "the name of the block")
	if err != nil {
		return nil, err
	}
	loops := p.loops
	p.loops = 0
	body, _, err := p.block("endblock")
	p.loops = loops
	if err != nil {
		return nil, err
	}
	if p.cur().kind == tName && p.cur().val == name.val {
		p.i++
	}
	return &blockStmt{body}, p.endTag()
}

// generationTag parses the block that Transformers uses to mask the assistant's tokens while training.
func (p *parser) generationTag() (stmt, error) {
	loops := p.loops
	p.loops = 0
	body, _, err := p.block("endgeneration")
	p.loops = loops
	if err != nil {
		return nil, err
	}
	return &blockStmt{body}, p.endTag()
}
