package jinja

import (
	"strconv"
	"strings"
)

// constants are the names that cannot be variables.
var constants = map[string]Value{
	"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil,
}

// tuple parses an expression that may be a tuple without parentheses. cond allows a trailing "if"; the iterable of a
// for tag does not, since its "if" is a filter. empty allows "()" .
func (p *parser) tuple(cond, empty bool) (expr, error) {
	var items []expr
	isTuple := false
	for {
		if len(items) > 0 && p.tupleEnd() {
			break
		}
		if len(items) == 0 && empty && p.tupleEnd() {
			return &listExpr{tuple: true}, nil
		}
		x, err := p.expression(cond)
		if err != nil {
			return nil, err
		}
		items = append(items, x)
		if !p.skipOp(",") {
			break
		}
		isTuple = true
	}
	if !isTuple {
		return items[0], nil
	}
	return &listExpr{items: items, tuple: true}, nil
}

// tupleEnd tells where a comma may stand last.
func (p *parser) tupleEnd() bool {
	k := p.cur().kind
	return k == tVarEnd || k == tBlockEnd || p.isOp(")") || p.isName("in") || p.isName("recursive")
}

// expression parses one expression; cond says whether "x if y else z" is one.
func (p *parser) expression(cond bool) (expr, error) {
	if err := p.nest(); err != nil {
		return nil, err
	}
	defer p.unnest()
	if !cond {
		return p.or()
	}
	x, err := p.or()
	for err == nil && p.skipName("if") {
		c := &condExpr{then: x}
		if c.cond, err = p.or(); err != nil {
			break
		}
		if p.skipName("else") {
			c.els, err = p.expression(true)
		}
		x = c
	}
	return x, err
}

// The functions from here to primary are the levels of precedence, loosest first.
func (p *parser) or() (expr, error) {
	x, err := p.and()
	for err == nil && p.skipName("or") {
		var y expr
		y, err = p.and()
		x = &logicExpr{false, x, y}
	}
	return x, err
}

func (p *parser) and() (expr, error) {
	x, err := p.not()
	for err == nil && p.skipName("and") {
		var y expr
		y, err = p.not()
		x = &logicExpr{true, x, y}
	}
	return x, err
}

func (p *parser) not() (expr, error) {
	if line := p.line(); p.skipName("not") {
		if err := p.nest(); err != nil {
			return nil, err
		}
		defer p.unnest()
		x, err := p.not()
		return &unaryExpr{line, "not", x}, err
	}
	return p.compare()
}

var comparisons = map[string]bool{"==": true, "!=": true, "<": true, "<=": true, ">": true, ">=": true}

// compare parses a chain of comparisons; "not in" is one operator of two words.
func (p *parser) compare() (expr, error) {
	line := p.line()
	x, err := p.sum()
	c := &compareExpr{line: line, x: x}
	for err == nil {
		op := ""
		switch t := p.cur(); {
		case t.kind == tOp && comparisons[t.val]:
			op = t.val
			p.i++
		case p.skipName("in"):
			op = "in"
		case p.isName("not") && p.toks[p.i+1].kind == tName && p.toks[p.i+1].val == "in":
			op = "not in"
			p.i += 2
		}
		if op == "" {
			break
		}
		var y expr
		y, err = p.sum()
		c.ops, c.ys = append(c.ops, op), append(c.ys, y)
	}
	if err != nil || len(c.ops) == 0 {
		return x, err
	}
	return c, nil
}

// binary parses a left-associative level of the grammar.
func (p *parser) binary(operand func() (expr, error), ops ...string) (expr, error) {
	x, err := operand()
	for err == nil {
		line, op := p.line(), ""
		for _, o := range ops {
			if p.skipOp(o) {
				op = o
				break
			}
		}
		if op == "" {
			return x, nil
		}
		var y expr
		y, err = operand()
		x = &binaryExpr{line, op, x, y}
	}
	return nil, err
}

func (p *parser) sum() (expr, error)     { return p.binary(p.concat, "+", "-") }
func (p *parser) concat() (expr, error)  { return p.binary(p.product, "~") }
func (p *parser) product() (expr, error) { return p.binary(p.power, "*", "/", "//", "%") }

// power is left-associative in Jinja, unlike in Python.
func (p *parser) power() (expr, error) {
	return p.binary(func() (expr, error) { return p.unary(true) }, "**")
}

// unary binds a sign tighter than filters: -1|abs is 1, and -x|f filters -x.
func (p *parser) unary(filter bool) (expr, error) {
	line := p.line()
	for _, op := range []string{"-", "+"} {
		if !p.skipOp(op) {
			continue
		}
		if err := p.nest(); err != nil {
			return nil, err
		}
		defer p.unnest()
		x, err := p.unary(false)
		if err != nil {
			return nil, err
		}
		x = &unaryExpr{line, op, x}
		if filter {
			return p.filters(x)
		}
		return x, nil
	}
	x, err := p.primary()
	if err == nil {
		x, err = p.postfix(x)
	}
	if err == nil && filter {
		x, err = p.filters(x)
	}
	return x, err
}

// primary parses a name, a literal, or something in brackets. Adjacent strings are one.
func (p *parser) primary() (expr, error) {
	line := p.line()
	switch t := p.next(); t.kind {
	case tName:
		if v, ok := constants[t.val]; ok {
			return &constExpr{v}, nil
		}
		p.mention(t.val)
		return &nameExpr{line, t.val}, nil
	case tString:
		var b strings.Builder
		for {
			s, err := unescape(t.val)
			if err != nil {
				return nil, p.errorf("%v", err)
			}
			b.WriteString(s)
			if p.cur().kind != tString {
				return &constExpr{b.String()}, nil
			}
			t = p.next()
		}
	case tInt:
		n, err := strconv.ParseInt(strings.ReplaceAll(t.val, "_", ""), 0, 64)
		if err != nil {
			return nil, p.errorf("bad integer %q", t.val)
		}
		return &constExpr{n}, nil
	case tFloat:
		// The lexer let only a number pass; one out of range is an infinity, as in Python.
		f, _ := strconv.ParseFloat(strings.ReplaceAll(t.val, "_", ""), 64)
		return &constExpr{f}, nil
	case tOp:
		switch t.val {
		case "(":
			x, err := p.tuple(true, true)
			if err != nil {
				return nil, err
			}
			return x, p.expectOp(")")
		case "[":
			return p.list()
		case "{":
			return p.dict(line)
		}
	}
	p.i--
	return nil, p.errorf("unexpected %s", p.describe())
}

// mention notes that the macro being parsed uses one of its implicit variables.
func (p *parser) mention(name string) {
	if len(p.macro) == 0 {
		return
	}
	switch def := p.macro[len(p.macro)-1]; name {
	case "varargs":
		def.varargs = true
	case "kwargs":
		def.kwargs = true
	case "caller":
		def.caller = true
	}
}

// list parses the rest of [a, b,].
func (p *parser) list() (expr, error) {
	l := &listExpr{}
	for !p.skipOp("]") {
		if len(l.items) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.skipOp("]") {
				break
			}
		}
		x, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		l.items = append(l.items, x)
	}
	return l, nil
}

// dict parses the rest of {k: v,}.
func (p *parser) dict(line int) (expr, error) {
	d := &dictExpr{line: line}
	for !p.skipOp("}") {
		if len(d.keys) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.skipOp("}") {
				break
			}
		}
		k, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		if err := p.expectOp(":"); err != nil {
			return nil, err
		}
		v, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		d.keys, d.vals = append(d.keys, k), append(d.vals, v)
	}
	return d, nil
}

// postfix parses attributes, subscripts and calls.
func (p *parser) postfix(x expr) (expr, error) {
	for {
		var err error
		switch line := p.line(); {
		case p.skipOp("."):
			switch t := p.next(); t.kind {
			case tName:
				x = &attrExpr{line, x, t.val}
			case tInt:
				n, _ := strconv.ParseInt(t.val, 10, 64)
				x = &itemExpr{line, x, &constExpr{n}}
			default:
				p.i--
				return nil, p.errorf("expected a name or number, got %s", p.describe())
			}
		case p.skipOp("["):
			x, err = p.subscript(x, line)
		case p.isOp("("):
			x, err = p.call(x)
		default:
			return x, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// call parses the arguments behind a function.
func (p *parser) call(fn expr) (expr, error) {
	c := &callExpr{line: p.line(), fn: fn}
	var err error
	c.args, err = p.arguments()
	return c, err
}

// subscript parses what stands in x[…]: a key, or a slice with up to three parts.
func (p *parser) subscript(x expr, line int) (expr, error) {
	var parts [3]expr // start, stop, step
	n := 0
	for !p.isOp("]") {
		if p.skipOp(":") {
			if n++; n > 2 {
				return nil, p.errorf("unexpected %q", ":")
			}
			continue
		}
		if parts[n] != nil {
			return nil, p.errorf("unexpected %s", p.describe())
		}
		e, err := p.tuple(true, false)
		if err != nil {
			return nil, err
		}
		parts[n] = e
	}
	p.i++
	if n > 0 {
		return &sliceExpr{line, x, parts[0], parts[1], parts[2]}, nil
	}
	if parts[0] == nil {
		return nil, p.errorf("empty subscript")
	}
	return &itemExpr{line, x, parts[0]}, nil
}

// filters parses what may follow a value: filters, tests, and calls of their results.
func (p *parser) filters(x expr) (expr, error) {
	for {
		var err error
		switch line := p.line(); {
		case p.skipOp("|"):
			x, err = p.filter(x)
		case p.skipName("is"):
			x, err = p.test(x, line)
		case p.isOp("("):
			x, err = p.call(x)
		default:
			return x, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// filterChain parses the filters of a block, "a|b(1)": those of a filter tag have no bar in front of the first.
func (p *parser) filterChain(inline bool) (x expr, err error) {
	for err == nil && (inline || p.skipOp("|")) {
		x, err = p.filter(x)
		inline = false
	}
	return x, err
}

// filter parses the name and arguments of one filter.
func (p *parser) filter(x expr) (expr, error) {
	f := &filterExpr{line: p.line(), x: x}
	var err error
	if f.name, err = p.dotted("a filter name"); err != nil {
		return nil, err
	}
	if p.isOp("(") {
		f.args, err = p.arguments()
	}
	return f, err
}

// dotted parses a name with dots, which filters and tests may have.
func (p *parser) dotted(what string) (string, error) {
	t, err := p.expect(tName, what)
	name := t.val
	for err == nil && p.skipOp(".") {
		t, err = p.expect(tName, what)
		name += "." + t.val
	}
	return name, err
}

// test parses what follows "is". An argument needs no parentheses: "x is divisibleby 3".
func (p *parser) test(x expr, line int) (expr, error) {
	t := &testExpr{line: line, x: x, neg: p.skipName("not")}
	var err error
	if t.name, err = p.dotted("the name of a test"); err != nil {
		return nil, err
	}
	switch k := p.cur().kind; {
	case p.isOp("("):
		t.args, err = p.arguments()
	case k == tName && !p.isName("else") && !p.isName("or") && !p.isName("and") ||
		k == tString || k == tInt || k == tFloat || p.isOp("[") || p.isOp("{"):
		if p.isName("is") {
			return nil, p.errorf("tests cannot be chained")
		}
		var arg expr
		if arg, err = p.primary(); err == nil {
			arg, err = p.postfix(arg)
		}
		t.args.pos = []expr{arg}
	}
	return t, err
}

// arguments parses "(a, b=1, *c, **d)".
func (p *parser) arguments() (callArgs, error) {
	var a callArgs
	if err := p.expectOp("("); err != nil {
		return a, err
	}
	for n := 0; !p.skipOp(")"); n++ {
		if n > 0 {
			if err := p.expectOp(","); err != nil {
				return a, err
			}
			if p.skipOp(")") {
				break
			}
		}
		if err := p.argument(&a); err != nil {
			return a, err
		}
	}
	return a, nil
}

// argument parses one of them, in the order Python demands.
func (p *parser) argument(a *callArgs) (err error) {
	switch {
	case a.star2 != nil:
		return p.errorf("an argument follows **")
	case p.skipOp("*"):
		if a.star != nil {
			return p.errorf("more than one *")
		}
		a.star, err = p.expression(true)
	case p.skipOp("**"):
		a.star2, err = p.expression(true)
	case p.cur().kind == tName && p.toks[p.i+1].kind == tOp && p.toks[p.i+1].val == "=":
		a.names = append(a.names, p.cur().val)
		p.i += 2
		var x expr
		x, err = p.expression(true)
		a.kw = append(a.kw, x)
	case len(a.kw) > 0 || a.star != nil:
		return p.errorf("a positional argument follows a keyword argument")
	default:
		var x expr
		x, err = p.expression(true)
		a.pos = append(a.pos, x)
	}
	return err
}
