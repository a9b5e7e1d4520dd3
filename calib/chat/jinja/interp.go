package jinja

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits is the budget of one rendering. Zero fields take the value of DefaultLimits.
type Limits struct {
	Source int // bytes of template source
	Steps  int // nodes evaluated and elements visited
	Bytes  int // bytes of strings and lists created on the way, beside the output
	Output int // bytes of the result
	Depth  int // nesting of evaluation, through macro calls
}

// DefaultLimits is far above what real templates need: the largest known has 25 kB of source and takes a few
// thousand steps for a message.
var DefaultLimits = Limits{Source: 1 << 20, Steps: 2_000_000, Bytes: 256 << 20, Output: 64 << 20, Depth: 2000}

// withDefaults fills in what a caller left at zero.
func (l Limits) withDefaults() Limits {
	for _, f := range []struct{ v, def *int }{
		{&l.Source, &DefaultLimits.Source}, {&l.Steps, &DefaultLimits.Steps}, {&l.Bytes, &DefaultLimits.Bytes},
		{&l.Output, &DefaultLimits.Output}, {&l.Depth, &DefaultLimits.Depth},
	} {
		if *f.v <= 0 {
			*f.v = *f.def
		}
	}
	return l
}

// Options of Parse.
type Options struct {
	Limits Limits
	// Now is what strftime_now prints. A fixed date makes calibration text reproducible.
	Now time.Time
}

// Template is a parsed template, safe for concurrent use.
type Template struct {
	body []stmt
	opts Options
}

// Parse reads a template. Errors are *SyntaxError, *UnsupportedError or *LimitError.
func Parse(source string, o Options) (*Template, error) {
	o.Limits = o.Limits.withDefaults()
	if len(source) > o.Limits.Source {
		return nil, &LimitError{"source bytes"}
	}
	if !utf8.ValidString(source) {
		return nil, &SyntaxError{Line: 1, Msg: "the template is not UTF-8"}
	}
	body, err := parse(normalize(source))
	if err != nil {
		return nil, err
	}
	return &Template{body, o}, nil
}

// Render runs the template on vars. It returns *RaisedError when the template refused the input itself,
// *RuntimeError when Python would raise, *LimitError when a budget is used up, or the error of ctx.
func (t *Template) Render(ctx context.Context, vars *Dict) (string, error) {
	in := &interp{ctx: ctx, lim: t.opts.Limits, now: t.opts.Now}
	top := newScope(newScope(nil))
	for i, k := range vars.keys {
		if name, ok := k.(string); ok {
			top.parent.vars[name] = vars.vals[i]
		}
	}
	out := &buffer{in: in, output: true}
	if err := in.run(t.body, top, out); err != nil {
		return "", err
	}
	return out.String(), nil
}

// interp is the state of one rendering.
type interp struct {
	ctx   context.Context
	lim   Limits
	now   time.Time
	used  Limits
	depth int
}

// steps charges n steps and looks at the context now and then.
func (in *interp) steps(n int) error {
	before := in.used.Steps
	in.used.Steps += n + 1
	if in.used.Steps > in.lim.Steps {
		return &LimitError{"evaluation steps"}
	}
	if before>>12 != in.used.Steps>>12 {
		return in.ctx.Err()
	}
	return nil
}

// charge accounts for n bytes about to be created.
func (in *interp) charge(n int) error {
	if n > in.lim.Bytes-in.used.Bytes {
		return &LimitError{"bytes created while rendering"}
	}
	in.used.Bytes += n
	return nil
}

// made charges a string that exists already and returns it as a value.
func (in *interp) made(s string) (Value, error) { return s, in.charge(len(s)) }

// enter goes one level deeper; leave comes back. Whatever recurses, over the tree or over data, goes through them, so
// that no input can reach the end of the stack, which Go does not survive.
func (in *interp) enter() error {
	if in.depth >= in.lim.Depth {
		return &LimitError{"nested calls and values"}
	}
	in.depth++
	return in.steps(0)
}

func (in *interp) leave() { in.depth-- }

// eval is the only way to evaluate a node: it bounds depth and steps.
func (in *interp) eval(x expr, sc *scope) (Value, error) {
	if err := in.enter(); err != nil {
		return nil, err
	}
	v, err := x.eval(in, sc)
	in.depth--
	return v, err
}

// run executes statements in order.
func (in *interp) run(body []stmt, sc *scope, out *buffer) error {
	if err := in.enter(); err != nil {
		return err
	}
	defer in.leave()
	for _, s := range body {
		if err := in.steps(0); err != nil {
			return err
		}
		if err := s.exec(in, sc, out); err != nil {
			return err
		}
	}
	return nil
}

// scope is one level of variables. Reading falls through to the parent, writing never does: that is Jinja's rule for
// loops, macros and blocks.
type scope struct {
	vars   map[string]Value
	parent *scope
}

// newScope opens a scope below parent.
func newScope(parent *scope) *scope { return &scope{vars: map[string]Value{}, parent: parent} }

// lookup finds a variable in the scope or those around it.
func (s *scope) lookup(name string) (Value, bool) {
	for ; s != nil; s = s.parent {
		if v, ok := s.vars[name]; ok {
			return v, true
		}
	}
	return nil, false
}

// buffer collects text under the output budget, or the budget for created bytes.
type buffer struct {
	in     *interp
	b      strings.Builder
	output bool
}

// add appends text, or fails before the text is copied.
func (b *buffer) add(s string) error {
	if b.output {
		if len(s) > b.in.lim.Output-b.b.Len() {
			return &LimitError{"output bytes"}
		}
	} else if err := b.in.charge(len(s)); err != nil {
		return err
	}
	b.b.WriteString(s)
	return nil
}

func (b *buffer) String() string { return b.b.String() }
