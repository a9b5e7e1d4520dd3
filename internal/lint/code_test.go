package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/arch"
)

// functions calls visit for every function of a file that has a body.
func functions(f *file, visit func(*ast.FuncDecl)) {
	for _, d := range f.ast.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			visit(fn)
		}
	}
}

// Nothing runs before main: no init functions.
func TestNoInit(t *testing.T) {
	for _, f := range sources(t, true) {
		functions(f, func(fn *ast.FuncDecl) {
			require.False(t, fn.Name.Name == "init" && fn.Recv == nil, "%s: init", f.at(fn.Pos()))
		})
	}
}

// calls are functions that libraries leave alone, by "package.Function", with the directories that may call them.
var calls = map[string][]string{
	"os.Exit": {"cmd", "examples"}, "fmt.Print": nil, "fmt.Println": {"examples"}, "fmt.Printf": {"examples"},
	"time.Now": {"cmd", "quant"}, "time.Since": {"cmd", "quant"}, "os.Hostname": {"formats/safeio"}, // the owner of a lock, for the message to others
	"os.Getwd":  nil,
	"os.Getenv": {"cmd", "internal/kernel"}, "os.Setenv": nil, "runtime.GC": nil, "os.WriteFile": {"internal/testmodel"},
}

// builtins are functions of the language that have a place.
var builtins = map[string][]string{
	"panic":   {"internal/kernel"},                  // shapes that do not fit are mistakes of this module
	"recover": {"internal/kernel", "calib/parquet"}, // the pool hands panics on; Arrow panics on damaged pages
	"print":   nil, "println": nil,
}

// Libraries do not print, exit, read clocks or panic; results depend on their inputs.
func TestCalls(t *testing.T) {
	for _, f := range sources(t, false) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch fn := call.Fun.(type) {
			case *ast.SelectorExpr:
				if pkg, ok := fn.X.(*ast.Ident); ok && pkg.Obj == nil {
					if where, known := calls[pkg.Name+"."+fn.Sel.Name]; known {
						require.True(t, within(f.dir, where...), "%s: %s.%s", f.at(call.Pos()), pkg.Name, fn.Sel.Name)
					}
				}
			case *ast.Ident:
				if where, known := builtins[fn.Name]; known && fn.Obj == nil {
					require.True(t, within(f.dir, where...), "%s: %s", f.at(call.Pos()), fn.Name)
				}
			}
			return true
		})
	}
}

// state are package variables that change, or guard what changes, with the reason why that is right.
var state = exceptions{}

// Package variables are tables: nothing assigns to them, no locks, no pools.
func TestNoPackageState(t *testing.T) {
	vars := map[string]map[string]string{} // package -> variable -> place
	found := map[string]string{}
	for _, f := range sources(t, false) {
		for _, d := range f.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, s := range g.Specs {
				spec := s.(*ast.ValueSpec)
				for _, name := range spec.Names {
					if vars[f.dir] == nil {
						vars[f.dir] = map[string]string{}
					}
					vars[f.dir][name.Name] = f.at(name.Pos())
					if guards(spec) {
						found[f.dir+"."+name.Name] = f.at(name.Pos())
					}
				}
			}
		}
	}
	for _, f := range sources(t, false) {
		for _, name := range assigned(f, vars[f.dir]) {
			found[f.dir+"."+name] = vars[f.dir][name]
		}
	}
	require.Greater(t, len(vars), 10)
	state.check(t, "package variables are tables", found)
}

// guards reports whether a variable has a type of package sync or atomic, or is a channel.
func guards(spec *ast.ValueSpec) bool {
	found := false
	look := func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.ChanType:
			found = true
		case *ast.SelectorExpr:
			if pkg, ok := x.X.(*ast.Ident); ok && (pkg.Name == "sync" || pkg.Name == "atomic") && !strings.HasPrefix(x.Sel.Name, "OnceValue") {
				found = true
			}
		}
		return !found
	}
	if spec.Type != nil {
		ast.Inspect(spec.Type, look)
	}
	for _, v := range spec.Values {
		if _, isFunc := v.(*ast.FuncLit); !isFunc && !found {
			if lit, ok := v.(*ast.CompositeLit); ok && lit.Type != nil {
				ast.Inspect(lit.Type, look)
			}
		}
	}
	return found
}

// assigned lists package variables that a function of the file assigns to, or to parts of, or takes the address of for
// writing.
func assigned(f *file, vars map[string]string) (names []string) {
	top := map[any]bool{} // declarations outside of functions
	for _, d := range f.ast.Decls {
		if g, ok := d.(*ast.GenDecl); ok {
			for _, s := range g.Specs {
				top[s] = true
			}
		}
	}
	isPackageVar := func(id *ast.Ident) bool { // not shadowed by something local; no object: declared in another file
		return id.Obj == nil || top[id.Obj.Decl]
	}
	note := func(e ast.Expr) {
		for {
			switch x := e.(type) {
			case *ast.IndexExpr:
				e = x.X
				continue
			case *ast.SelectorExpr:
				e = x.X
				continue
			case *ast.StarExpr:
				e = x.X
				continue
			case *ast.ParenExpr:
				e = x.X
				continue
			case *ast.Ident:
				if _, known := vars[x.Name]; known && isPackageVar(x) {
					names = append(names, x.Name)
				}
			}
			return
		}
	}
	functions(f, func(fn *ast.FuncDecl) {
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.AssignStmt:
				if x.Tok != token.DEFINE {
					for _, e := range x.Lhs {
						note(e)
					}
				}
			case *ast.IncDecStmt:
				note(x.X)
			case *ast.CallExpr:
				if fn, ok := x.Fun.(*ast.Ident); ok && slices.Contains([]string{"delete", "clear", "copy"}, fn.Name) && fn.Obj == nil {
					note(x.Args[0])
				}
			}
			return true
		})
	})
	return names
}

// familyNames are words that only the family table may compare with.
func familyNames() map[string]bool {
	names := map[string]bool{}
	for _, f := range arch.Families() {
		names[f.Name], names[f.GGUF.Arch] = true, true
		for _, a := range f.Architectures {
			names[a] = true
		}
	}
	return names
}

// What differs between families stands in their table: no code elsewhere asks which family it has.
func TestNoFamilyInConditions(t *testing.T) {
	names := familyNames()
	isName := func(e ast.Expr) bool {
		lit, ok := e.(*ast.BasicLit)
		return ok && lit.Kind == token.STRING && names[strings.Trim(lit.Value, "\"`")]
	}
	isField := func(e ast.Expr) bool {
		sel, ok := e.(*ast.SelectorExpr)
		return ok && (sel.Sel.Name == "Family" || sel.Sel.Name == "Architecture")
	}
	found := map[string]string{}
	for _, f := range sources(t, false) {
		if within(f.dir, "formats/arch", "internal/testmodel") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.BinaryExpr:
				if (x.Op == token.EQL || x.Op == token.NEQ) && (isName(x.X) || isName(x.Y) || isField(x.X) || isField(x.Y)) {
					found[f.path] = f.at(x.Pos())
				}
			case *ast.CaseClause:
				if slices.ContainsFunc(x.List, isName) {
					found[f.path] = f.at(x.Pos())
				}
			}
			return true
		})
	}
	families.check(t, "no family in a condition", found)
}

// families are files that compare family names, with the reason.
var families = exceptions{}

// long are files over the limit, and functions over theirs, with the reason.
var long = exceptions{}

const (
	maxFileLines     = 600
	maxFunctionLines = 100
	usualFunction    = 45 // at the 90th percentile
)

// Files and functions fit a reader's head.
func TestLengths(t *testing.T) {
	found := map[string]string{}
	var lengths []int
	for _, f := range sources(t, true) {
		if f.generated {
			continue
		}
		if f.lines > maxFileLines {
			found[f.path] = fmt.Sprintf("%d lines", f.lines)
		}
		if f.test {
			continue
		}
		functions(f, func(fn *ast.FuncDecl) {
			n := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1
			lengths = append(lengths, n)
			if n > maxFunctionLines {
				found[f.path+" "+fn.Name.Name] = fmt.Sprintf("%d lines", n)
			}
		})
	}
	long.check(t, "files of at most 600 lines, functions of at most 100", found)
	slices.Sort(lengths)
	p90 := lengths[len(lengths)*9/10]
	t.Logf("%d functions, median %d lines, 90th percentile %d", len(lengths), lengths[len(lengths)/2], p90)
	require.LessOrEqual(t, p90, usualFunction)
}

// leastWeight is the share of test lines that the tree may not fall below; seven tenths are the aim.
const leastWeight = 0.45

// Tests weigh enough beside the code, and every package with logic has some.
func TestWeightOfTests(t *testing.T) {
	code, tests := map[string]int{}, map[string]int{}
	for _, f := range sources(t, true) {
		switch {
		case f.generated || within(f.dir, "examples", "internal/testmodel"):
		case f.test:
			tests[f.dir] += f.lines
		default:
			code[f.dir] += f.lines
		}
	}
	total, weight := 0, 0
	found := map[string]string{}
	for dir, n := range code {
		total, weight = total+n, weight+tests[dir]
		if tests[dir] == 0 {
			found[dir] = fmt.Sprintf("%d lines of code", n)
		}
	}
	untested.check(t, "every package has tests", found)
	t.Logf("%d lines of code, %d of tests: %.2f", total, weight, float64(weight)/float64(total))
	require.GreaterOrEqual(t, float64(weight), leastWeight*float64(total))
}

// untested are packages without a test of their own.
var untested = exceptions{
	"formats/container":         "two structs, tested by every codec",
	"formats/safeio/safeiotest": "helpers of tests",
}

// Names of tests are Go names that say what holds; benchmarks and fuzz targets alike.
func TestNamesOfTests(t *testing.T) {
	fuzzed := map[string]bool{}
	for _, f := range sources(t, true) {
		functions(f, func(fn *ast.FuncDecl) {
			name := fn.Name.Name
			for _, kind := range []string{"Test", "Benchmark", "Fuzz"} {
				rest, ok := strings.CutPrefix(name, kind)
				if !ok || fn.Recv != nil || !f.test || name == "TestMain" {
					continue
				}
				require.NotEmpty(t, rest, f.at(fn.Pos()))
				require.True(t, rest[0] >= 'A' && rest[0] <= 'Z' && !strings.Contains(rest, "_"), "%s: %s", f.at(fn.Pos()), name)
				if kind == "Fuzz" {
					fuzzed[f.dir] = true
				}
			}
		})
		if f.test {
			require.False(t, strings.HasSuffix(strings.TrimSuffix(path.Base(f.path), "_test.go"), "_"), f.path)
		}
	}
	// Whatever parses what others wrote has a fuzz target.
	for _, dir := range []string{"formats", "formats/safeio", "formats/safetensors", "formats/gguf", "formats/hf", "formats/arch", "formats/packing",
		"calib", "calib/parquet", "calib/chat", "calib/tokenizer"} {
		require.True(t, fuzzed[dir] || fuzzed[dir+"/jinja"], "%s has no fuzz target", dir)
	}
}
