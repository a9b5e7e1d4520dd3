package lint

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"testing"

	"github.com/stretchr/testify/require"
)

// snippet parses a file for the tests of the rules themselves.
func snippet(t *testing.T, text string) *file {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, "snippet.go", text, parser.ParseComments)
	require.NoError(t, err)
	return &file{path: "snippet.go", dir: ".", ast: parsed, fset: fset}
}

// Variables that change are told from tables and from locals of the same name.
func TestStateRule(t *testing.T) {
	f := snippet(t, `package p
var table, cache, list, count, local, other = map[int]int{}, map[int]int{}, []int{}, 0, 0, struct{ x []int }{}
func reads() int { return table[1] + len(list) }
func writes() { cache[1] = 2; list[0]++; count = 3; other.x[2] = 1; elsewhere = 4 }
func shadows() { local := 1; local = 2; _ = local }
func param(table map[int]int) { table[1] = 2; delete(table, 1) }
`)
	vars := map[string]string{}
	for _, name := range []string{"table", "cache", "list", "count", "local", "other", "elsewhere"} {
		vars[name] = "here"
	}
	require.ElementsMatch(t, []string{"cache", "list", "count", "other", "elsewhere"}, assigned(f, vars))
	for text, want := range map[string]bool{
		"var x sync.Mutex": true, "var x = sync.Pool{}": true, "var x atomic.Int64": true, "var x chan int": true, "var x map[string]*sync.Once": true,
		"var x = sync.OnceValue(load)": false, "var x = []int{1}": false, "var x = func() { var m sync.Mutex; m.Lock() }": false,
	} {
		g := snippet(t, "package p\n"+text).ast.Decls[0].(*ast.GenDecl)
		require.Equal(t, want, guards(g.Specs[0].(*ast.ValueSpec)), text)
	}
}

// Sums with a rounded product pass, sums with a bare one do not, directly, through a variable or through a function that
// may be inlined; integers and powers of two are no concern.
func TestFusedRule(t *testing.T) {
	load := exports(t)
	for body, want := range map[string]bool{
		"return a*b + c": true, "return c - a*b": true, "return c + (a*b)": true, "return c + float32(a*b)": false, "return 2*a + c": false,
		"return a/b + c": false, "return float32(i*j) + c": false, "return 0.5*a - c": false, "return 3*a + c": true, "return -a*b + c": true,
		"c += a * b; return c": true, "c += float32(a * b); return c": false, "d := a * b; return d + c": true, "d := float32(a * b); return d + c": false,
		"d := a * b; return d": false, "return g(a * b)": true, "return g(float32(a * b))": false, "return float32(math.Sqrt(float64(a * b)))": false,
	} {
		f := snippet(t, "package p\nimport \"math\"\nvar _ = math.Pi\nfunc g(x float32) float32 { return x + 1 }\nfunc f(a, b, c float32, i, j int) float32 { "+body+" }\n")
		info := newInfo()
		_, err := (&types.Config{Importer: importer.ForCompiler(f.fset, "gc", load)}).Check("p", f.fset, []*ast.File{f.ast}, info)
		require.NoError(t, err)
		require.Equal(t, want, len(fusedIn(info, f.ast)) > 0, body)
	}
}

// The words and paths that are looked for are found.
func TestWordRules(t *testing.T) {
	for _, s := range []string{"// TO" + "DO: later", "FIX" + "ME"} {
		require.True(t, unfinished.MatchString(s))
	}
	require.False(t, unfinished.MatchString("TODOS"), "part of another word")
	for _, s := range []string{`"/ho` + `me/me/x"`, "see /wo" + "rk/main", "(/ro" + "ot/x)"} {
		require.True(t, machines.MatchString(s), s)
	}
	for _, s := range []string{"framework/main", "a/home/b", "/tmp/out"} {
		require.False(t, machines.MatchString(s), s)
	}
}

// An exception that nothing needs is a failure, as a violation without one is.
func TestExceptions(t *testing.T) {
	probe := &testing.T{}
	exceptions{"a": "because"}.check(probe, "rule", map[string]string{"a": "here"})
	require.False(t, probe.Failed())
	for _, e := range []exceptions{{}, {"a": "because", "b": "was needed once"}} {
		probe = &testing.T{}
		e.check(probe, "rule", map[string]string{"a": "here"})
		require.True(t, probe.Failed())
	}
}
