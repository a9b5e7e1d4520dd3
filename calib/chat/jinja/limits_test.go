package jinja

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hostile templates and the budget that must stop each. Every one of them kills the process, or never ends, in an
// interpreter without budgets.
var hostile = map[string]string{
	"{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}":                                            "nested calls and values",
	"{% macro f() %}{{ f()" + strings.Repeat("+1", 400) + " }}{% endmacro %}{{ f() }}":              "nested calls and values",
	"{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{{ caller() }}{% endmacro %}{{ f() }}": "nested calls and values",
	"{% macro f() %}{% for x in [1] %}{{ f() }}{% endfor %}{% endmacro %}{{ f() }}":                 "nested calls and values",
	"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}":                "evaluation steps",
	"{{ 'a' * 100000000000 }}":                                       "bytes created while rendering",
	"{{ [1] * 100000000000 }}":                                       "bytes created while rendering",
	"{{ [] * 9000000000000000000 }}{{ 'aa' * 9000000000000000000 }}": "bytes created while rendering",
	"{% set n = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}":                                "bytes created while rendering",
	"{% set n = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}":                                "bytes created while rendering",
	"{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}":                                       "bytes created while rendering",
	"{% set n = namespace(s='aa') %}{% for i in range(60) %}{% set n.s = n.s|replace('a', n.s) %}{% endfor %}":                          "bytes created while rendering",
	"{% set n = namespace(s='aa') %}{% for i in range(60) %}{% set n.s = n.s.join(n.s) %}{% endfor %}":                                  "bytes created while rendering",
	"{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s }}":                             "evaluation steps",
	"{% set n = namespace(s=1) %}{% for i in range(9999) %}{% set n.s = [n.s] %}{% endfor %}{{ n.s }}":                                  "nested calls and values",
	"{% set n = namespace(s=1) %}{% for i in range(9999) %}{% set n.s = [n.s] %}{% endfor %}{{ n.s|tojson }}":                           "nested calls and values",
	"{% set n = namespace(s=1, t=1) %}{% for i in range(9999) %}{% set n.s = [n.s] %}{% set n.t = [n.t] %}{% endfor %}{{ n.s == n.t }}": "nested calls and values",
	"{% set n = namespace() %}{% set n.n = n %}{{ n }}":                                                                                 "nested calls and values",
	"{% set x = 'a' * 999999 %}{% for i in range(99) %}{{ x }}{% endfor %}":                                                             "output bytes",
	"{% set x = 'a' * 999999 %}{% for i in range(9999) %}{% set y = x|list %}{% endfor %}":                                              "bytes created while rendering",
	"{% set x = 'a ' * 999999 %}{% for i in range(9999) %}{% set y = x.split() %}{% endfor %}":                                          "bytes created while rendering",
	"{% set x = 'a\\n' * 999999 %}{% for i in range(9999) %}{% set y = x|indent(50) %}{% endfor %}":                                     "bytes created while rendering",
	"{% set x = 'ab' * 999999 %}{% for i in range(99999) %}{% set y = x[::-1] %}{% endfor %}":                                           "bytes created while rendering",
	"{% set x = 'ab' * 999999 %}{% for i in range(99999) %}{% set y = 'c' in x %}{% endfor %}":                                          "evaluation steps",
	"{% set x = range(9999)|list %}{% for i in range(99999) %}{% set y = x|sort %}{% endfor %}":                                         "evaluation steps",
	"{{ '%9999999d' % 3 }}": "",
	"{{ range(100000)|map('string')|map('replace', '', 'x' * 65000)|join|length }}": "bytes created while rendering",
}

func TestLimits(t *testing.T) {
	for src, want := range hostile {
		start := time.Now()
		tpl, err := Parse(src, Options{Limits: Limits{Steps: 300_000, Bytes: 32 << 20, Output: 8 << 20}})
		require.NoError(t, err, src)
		_, err = tpl.Render(context.Background(), NewDict())
		require.Error(t, err, src)
		var limit *LimitError
		if want != "" {
			require.True(t, errors.As(err, &limit), "%s: %v", src, err)
			require.Equal(t, want, limit.What, src)
		}
		t.Logf("%8v %s", time.Since(start).Round(time.Millisecond), src[:min(len(src), 100)])
	}
}

func TestNesting(t *testing.T) {
	for _, src := range []string{
		"{{ " + strings.Repeat("(", 9999) + "1" + strings.Repeat(")", 9999) + " }}",
		"{{ " + strings.Repeat("[", 9999) + "1" + strings.Repeat("]", 9999) + " }}",
		"{{ " + strings.Repeat("not ", 9999) + "1 }}",
		"{{ " + strings.Repeat("- ", 9999) + "1 }}",
		"{{ " + strings.Repeat("1 if 1 else ", 9999) + "1 }}",
		strings.Repeat("{% if 1 %}", 9999) + strings.Repeat("{% endif %}", 9999),
		"{% set " + strings.Repeat("(", 9999) + "a" + strings.Repeat(")", 9999) + " = 1 %}",
	} {
		_, err := Parse(src, Options{})
		require.ErrorContains(t, err, "nested deeper", src[:40])
	}
	// Chains are loops of the parser but nest in the tree: the evaluator's own bound holds them.
	for _, link := range []string{" + 1", " ~ 1", "|string", ".x", "[0]", " and 1"} {
		tpl, err := Parse("{{ x"+strings.Repeat(link, 100_000)+" }}", Options{})
		require.NoError(t, err)
		_, err = tpl.Render(context.Background(), NewDict())
		require.Error(t, err)
	}
	_, err := Parse(strings.Repeat("x", 2<<20), Options{})
	require.ErrorContains(t, err, "source bytes")
	_, err = Parse("\xff", Options{})
	require.ErrorContains(t, err, "UTF-8")
}

func TestDeadline(t *testing.T) {
	tpl, err := Parse("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", Options{Limits: Limits{Steps: 1 << 40}})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = tpl.Render(ctx, NewDict())
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestErrorKinds(t *testing.T) {
	var syntax *SyntaxError
	var unsupported *UnsupportedError
	var raised *RaisedError
	var runtime *RuntimeError
	run := func(src string) error {
		_, err := runSnippet(snippet{Src: src, Ctx: []byte(`{"l":[1]}`)})
		return err
	}
	require.ErrorAs(t, run("a\n\n{% if %}"), &syntax)
	require.Equal(t, 3, syntax.Line)
	require.ErrorAs(t, run("a\n{% include 'x' %}"), &unsupported)
	require.Equal(t, `line 2: the tag "include" is not supported`, unsupported.Error())
	require.ErrorAs(t, run("\n{{ l|nosuch }}"), &unsupported)
	require.Equal(t, 2, unsupported.Line)
	require.ErrorAs(t, run("{{ 'a'.center(9) }}"), &unsupported)
	require.ErrorAs(t, run("{{ raise_exception('roles must alternate') }}"), &raised)
	require.Equal(t, "roles must alternate", raised.Msg)
	require.ErrorAs(t, run("x\n{{ l.x.y }}"), &runtime)
	require.Equal(t, 2, runtime.Line)
}

func TestConcurrentRender(t *testing.T) {
	tpl, err := Parse("{% set ns = namespace(n=0) %}{% for i in range(99) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n ~ x }}", Options{})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			vars := NewDict()
			vars.Set("x", int64(i))
			out, err := tpl.Render(context.Background(), vars)
			if err != nil || out != "4851"+string(rune('0'+i)) {
				t.Errorf("%q %v", out, err)
			}
		})
	}
	wg.Wait()
}

// FuzzRender: no source panics or runs past its budget. Time and memory are bounded by the small limits; the fuzzing
// engine itself notices hangs and crashes.
func FuzzRender(f *testing.F) {
	for src := range hostile {
		f.Add(src)
	}
	for _, src := range []string{
		"{% for m in messages %}{{ m['role'] + m.content|trim }}{% endfor %}", "{% set x %}a{% endset %}{{ x|upper }}",
		"{% macro f(a, b=1) %}{{ a ~ b }}{% endmacro %}{{ f(*[1], **{'b': 2}) }}", "{{ {'a': [1, (2,)]}|tojson(indent=2) }}",
		"{%- raw -%} {{ {%- endraw -%}", "{# x #}{{ 'a\\x41'[::-1] }}{{ 1 if x is not defined else x[1:2:-1] }}",
	} {
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src string) {
		tpl, err := Parse(src, Options{Limits: Limits{Source: 1 << 14, Steps: 20_000, Bytes: 1 << 20, Output: 1 << 16, Depth: 400}})
		if err != nil {
			return
		}
		msg, err := FromJSON([]byte(`{"messages":[{"role":"user","content":" hi\n"},{"role":"assistant","content":null}],"x":[1,2.5,"é"]}`))
		require.NoError(t, err)
		out, err := tpl.Render(context.Background(), msg.(*Dict))
		if err == nil && len(out) > 1<<16 {
			t.Fatalf("%d bytes of output", len(out))
		}
	})
}
