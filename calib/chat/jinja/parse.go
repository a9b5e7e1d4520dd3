package jinja

import "fmt"

// parser builds the tree of one template by recursive descent, in the order of Jinja2's own grammar.
type parser struct {
	toks  []token
	i     int
	depth int // nesting of expressions and blocks, bounded by maxNesting
	loops int // enclosing loops of the current macro
	macro []*macroDef
}

// maxNesting bounds recursion of the parser and, because the tree is no deeper, of the evaluator between two calls.
// Real templates stay below 20.
const maxNesting = 150

// parse builds the tree of a normalized template.
func parse(src string) ([]stmt, error) {
	toks, err := lex(src)
	if err != nil {
		return nil, err
	}
	p := &parser{toks: toks}
	body, _, err := p.body(nil)
	return body, err
}

func (p *parser) cur() token  { return p.toks[p.i] }
func (p *parser) next() token { t := p.toks[p.i]; p.i++; return t }
func (p *parser) line() int   { return p.cur().line }

// errorf is a syntax error at the current token.
func (p *parser) errorf(format string, args ...any) error {
	return &SyntaxError{Line: p.line(), Msg: fmt.Sprintf(format, args...)}
}

// unsupported refuses something by its name, at the current token.
func (p *parser) unsupported(what string) error {
	return &UnsupportedError{Line: p.line(), What: what}
}

func (p *parser) isOp(op string) bool { t := p.cur(); return t.kind == tOp && t.val == op }

// isName tells whether a word stands here: Jinja has no reserved words, only words in places.
func (p *parser) isName(n string) bool {
	t := p.cur()
	return t.kind == tName && t.val == n
}

// skipOp consumes an operator if it stands here.
func (p *parser) skipOp(op string) bool {
	if p.isOp(op) {
		p.i++
		return true
	}
	return false
}

// skipName consumes a word if it stands here.
func (p *parser) skipName(n string) bool {
	if p.isName(n) {
		p.i++
		return true
	}
	return false
}

// expectOp consumes an operator that must stand here.
func (p *parser) expectOp(op string) error {
	if !p.skipOp(op) {
		return p.errorf("expected %q, got %s", op, p.describe())
	}
	return nil
}

// expect consumes a token of a kind that must stand here.
func (p *parser) expect(k kind, what string) (token, error) {
	if p.cur().kind != k {
		return token{}, p.errorf("expected %s, got %s", what, p.describe())
	}
	return p.next(), nil
}

// describe names the current token for a message.
func (p *parser) describe() string {
	switch t := p.cur(); t.kind {
	case tEOF:
		return "the end of the template"
	case tBlockEnd, tVarEnd:
		return "the end of the tag"
	case tData:
		return "text"
	default:
		return fmt.Sprintf("%q", t.val)
	}
}

// nest goes one level deeper while parsing; unnest comes back.
func (p *parser) nest() error {
	if p.depth++; p.depth > maxNesting {
		return p.errorf("nested deeper than %d levels", maxNesting)
	}
	return nil
}

func (p *parser) unnest() { p.depth-- }

// body parses statements up to a tag named in ends and returns that name with its tag name consumed; with no ends,
// up to the end of the template.
func (p *parser) body(ends []string) ([]stmt, string, error) {
	if err := p.nest(); err != nil {
		return nil, "", err
	}
	defer p.unnest()
	var out []stmt
	for {
		switch t := p.next(); t.kind {
		case tEOF:
			p.i--
			if ends != nil {
				return nil, "", p.errorf("the template ends inside of a block: %q is missing", ends[len(ends)-1])
			}
			return out, "", nil
		case tData:
			out = append(out, &textStmt{t.val})
		case tVarBegin:
			line := p.line()
			x, err := p.tuple(true, false)
			if err != nil {
				return nil, "", err
			}
			if _, err := p.expect(tVarEnd, `"}}"`); err != nil {
				return nil, "", err
			}
			out = append(out, &printStmt{line, x})
		case tBlockBegin:
			for _, e := range ends {
				if p.skipName(e) {
					return out, e, nil
				}
			}
			s, err := p.statement()
			if err != nil {
				return nil, "", err
			}
			out = append(out, s)
		default:
			p.i--
			return nil, "", p.errorf("unexpected %s", p.describe())
		}
	}
}

// statements maps the tags to their parsers. It is a function because the parsers refer back to it.
func statements() map[string]func(*parser) (stmt, error) {
	return map[string]func(*parser) (stmt, error){
		"if": (*parser).ifTag, "for": (*parser).forTag, "set": (*parser).setTag, "macro": (*parser).macroTag,
		"call": (*parser).callTag, "filter": (*parser).filterTag, "with": (*parser).withTag,
		"block": (*parser).blockTag, "generation": (*parser).generationTag,
		"break": (*parser).jumpTag, "continue": (*parser).jumpTag,
	}
}

// refused lists the tags of Jinja2 that would reach outside of the template or that chat templates never use.
var refused = map[string]bool{"include": true, "import": true, "from": true, "extends": true, "autoescape": true, "do": true, "print": true}

// statement parses a tag from its name on.
func (p *parser) statement() (stmt, error) {
	t, err := p.expect(tName, "a tag name")
	if err != nil {
		return nil, err
	}
	parse := statements()[t.val]
	if parse == nil {
		p.i--
		if refused[t.val] {
			return nil, p.unsupported(fmt.Sprintf("the tag %q", t.val))
		}
		return nil, p.errorf("unknown tag %q", t.val)
	}
	return parse(p)
}

// endTag consumes "%}".
func (p *parser) endTag() error {
	_, err := p.expect(tBlockEnd, `"%}"`)
	return err
}

// block parses "%}" body {% end %} and returns the body.
func (p *parser) block(ends ...string) ([]stmt, string, error) {
	if err := p.endTag(); err != nil {
		return nil, "", err
	}
	return p.body(ends)
}

// ifTag parses if, elif, else up to endif.
func (p *parser) ifTag() (stmt, error) {
	s := &ifStmt{}
	for {
		cond, err := p.tuple(false, false)
		if err != nil {
			return nil, err
		}
		body, end, err := p.block("elif", "else", "endif")
		if err != nil {
			return nil, err
		}
		s.conds, s.bodies = append(s.conds, cond), append(s.bodies, body)
		if end == "elif" {
			continue
		}
		if end == "else" {
			if s.els, _, err = p.block("endif"); err != nil {
				return nil, err
			}
		}
		return s, p.endTag()
	}
}

// forTag parses a loop. Its else branch is outside of the loop: break does not belong there.
func (p *parser) forTag() (stmt, error) {
	s := &forStmt{line: p.line()}
	var err error
	if s.target, err = p.target(false); err != nil {
		return nil, err
	}
	if !p.skipName("in") {
		return nil, p.errorf(`expected "in", got %s`, p.describe())
	}
	if s.iter, err = p.tuple(false, false); err != nil {
		return nil, err
	}
	if p.skipName("if") {
		if s.cond, err = p.expression(true); err != nil {
			return nil, err
		}
	}
	if p.isName("recursive") {
		return nil, p.unsupported("a recursive loop")
	}
	p.loops++
	body, end, err := p.block("endfor", "else")
	p.loops--
	if err != nil {
		return nil, err
	}
	s.body = body
	if end == "else" {
		if s.els, _, err = p.block("endfor"); err != nil {
			return nil, err
		}
	}
	return s, p.endTag()
}

// jumpTag parses break and continue.
func (p *parser) jumpTag() (stmt, error) {
	p.i--
	t := p.cur()
	if p.loops == 0 {
		return nil, p.errorf("%q outside of a loop", t.val)
	}
	p.i++
	if t.val == "break" {
		return &jumpStmt{errBreak}, p.endTag()
	}
	return &jumpStmt{errContinue}, p.endTag()
}
