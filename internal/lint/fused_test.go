package lint

import (
	"cmp"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// exact are the packages whose results must be the same bytes on every processor and with every GOAMD64 level.
var exact = []string{"internal/kernel", "formats/tensor", "formats/gguf", "quant/grid/mixture", "formats/packing", "quant/grid/ggml", "quant/grid", "quant/gptq", "calib/forward", "quant"}

// Go may compute a*b + c in one rounding, depending on the processor it compiles for; an explicit conversion around the
// product forbids that. In the packages above no floating-point product goes into a sum without one. (GOAMD64=v3 go test
// -run GoldenHashes ./quant shows the rest: .ci/run does that.)
func TestNoFusedSums(t *testing.T) {
	load := exports(t)
	found := map[string]string{}
	for _, dir := range exact {
		for file, place := range fusable(t, dir, load) {
			found[file] = place
		}
	}
	estimates.check(t, "write float32(a*b) + c", found)
}

// estimates are files whose sums reach no output byte, or come out the same either way.
var estimates = exceptions{
	"quant/work.go":                  "the time that --dry-run prints",
	"formats/packing/exl2_decode.go": "products go into roundings to halves, which work on the bits",
	"internal/kernel/fma.go":         "float32 products are exact in float64: this is how a fused sum is emulated",
	"internal/kernel/tile.go":        "as above",
	"internal/kernel/tile_bf16.go":   "as above",
	"internal/kernel/reduce.go":      "as above",
}

// exports opens the export data of the module's dependencies, which the go command keeps anyway.
func exports(t *testing.T) importer.Lookup {
	cmd := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./quant")
	cmd.Dir = root
	out, err := cmd.Output()
	require.NoError(t, err)
	at := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if p, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			at[p] = file
		}
	}
	return func(p string) (io.ReadCloser, error) { return os.Open(at[p]) }
}

// fusable finds sums with a product as an operand, one per file of the package.
func fusable(t *testing.T, dir string, load importer.Lookup) map[string]string {
	places := map[string]string{}
	var files []*ast.File
	var fset *token.FileSet
	for _, f := range sources(t, false) {
		name := strings.TrimSuffix(f.path, ".go")
		if f.dir == dir && !strings.HasSuffix(name, "_other") && !strings.HasSuffix(name, "_generic") && (!strings.Contains(name, "_amd64") || runtime.GOARCH == "amd64") {
			files, fset = append(files, f.ast), f.fset
		}
	}
	require.NotEmpty(t, files, dir)
	info := newInfo()
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", load), Error: func(error) {}}
	_, err := conf.Check(module+"/"+filepath.ToSlash(dir), fset, files, info)
	_ = err // files of other platforms may repeat declarations
	note := func(p token.Pos) {
		at := fset.Position(p)
		if places[at.Filename] == "" {
			places[at.Filename] = "line"
		}
		places[at.Filename] += " " + itoa(at.Line)
	}
	for _, f := range files {
		for _, p := range fusedIn(info, f) {
			note(p)
		}
	}
	return places
}

// fusedIn finds the places of a file: products that are operands of sums, by way of a variable too, and products that
// are arguments of functions of the package, which may be sums once they are inlined.
func fusedIn(info *types.Info, f *ast.File) (places []token.Pos) {
	products := map[types.Object]bool{} // variables that hold an unrounded product
	bare := func(e ast.Expr) bool {
		id, ok := ast.Unparen(e).(*ast.Ident)
		return isProduct(info, e) || ok && products[info.Uses[id]]
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.BinaryExpr:
			if (x.Op == token.ADD || x.Op == token.SUB) && (bare(x.X) || bare(x.Y)) {
				places = append(places, x.Pos())
			}
		case *ast.AssignStmt:
			if (x.Tok == token.ADD_ASSIGN || x.Tok == token.SUB_ASSIGN) && bare(x.Rhs[0]) {
				places = append(places, x.Pos())
			}
			for i, left := range x.Lhs {
				if id, ok := left.(*ast.Ident); ok && len(x.Lhs) == len(x.Rhs) && (x.Tok == token.ASSIGN || x.Tok == token.DEFINE) && isProduct(info, x.Rhs[i]) {
					products[cmp.Or(info.Defs[id], info.Uses[id])] = true
				}
			}
		case *ast.CallExpr:
			fn, ok := x.Fun.(*ast.Ident)
			if _, isFunc := info.Uses[fn].(*types.Func); ok && isFunc && slices.ContainsFunc(x.Args, func(e ast.Expr) bool { return isProduct(info, e) }) {
				places = append(places, x.Pos())
			}
		}
		return true
	})
	return places
}

func newInfo() *types.Info {
	return &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
}

// isPowerOfTwo reports whether a factor is a constant by which products are exact.
func isPowerOfTwo(v constant.Value) bool {
	if v == nil {
		return false
	}
	x, _ := constant.Float64Val(constant.ToFloat(v))
	m, _ := math.Frexp(math.Abs(x))
	return m == 0.5
}

// isProduct reports whether an expression is a product of floating-point numbers that no conversion rounds.
func isProduct(info *types.Info, e ast.Expr) bool {
	e = ast.Unparen(e)
	x, ok := e.(*ast.BinaryExpr)
	if !ok || x.Op != token.MUL {
		return false
	}
	tv := info.Types[e]
	if tv.Type == nil || tv.Value != nil || isPowerOfTwo(info.Types[x.X].Value) || isPowerOfTwo(info.Types[x.Y].Value) {
		return false
	}
	b, ok := tv.Type.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsFloat != 0
}
