package lint

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// layers are the top directories from the bottom up: code may import its own layer and those below.
var layers = []string{"formats/tensor", "formats/safeio", "formats/container", "internal/proc", "internal/kernel", "quant/grid/ggml", "formats", "quant/grid", "calib", "quant",
	"gpu", "internal/testmodel", "cmd"}

// layer is the position of a package; the longest matching prefix counts.
func layer(dir string) int {
	best, length := -1, 0
	for i, top := range layers {
		if within(dir, top) && len(top) > length {
			best, length = i, len(top)
		}
	}
	return best
}

// Dependencies point downwards.
func TestImportsPointDown(t *testing.T) {
	for _, f := range sources(t, false) {
		from := layer(f.dir)
		if within(f.dir, "examples", "internal/lint") {
			continue // they show or test everything
		}
		require.GreaterOrEqual(t, from, 0, "%s belongs to no layer", f.path)
		for _, p := range f.imports() {
			if rel, own := strings.CutPrefix(p, module+"/"); own {
				require.LessOrEqual(t, layer(rel), from, "%s imports %s, which is above it", f.path, rel)
			}
		}
	}
}

// outside are the modules that one part of the tree may use, and that part. Whatever is not listed is used nowhere.
var outside = map[string][]string{
	"github.com/apache/arrow/go/v17":     {"calib/parquet"},
	"github.com/klauspost/compress":      {"calib"},
	"github.com/urfave/cli/v2":           {"cmd"},
	"github.com/schollz/progressbar/v3":  {"cmd"},
	"golang.org/x/term":                  {"cmd"},
	"golang.org/x/text":                  {"calib"},
	"golang.org/x/sys":                   {"calib", "cmd", "gpu"},
	"github.com/nikolalohinski/gonja/v2": {"calib"},
	"gonum.org/v1/gonum":                 {"quant/eval", "quant/gptq", "gpu"},
}

// forTests are modules that only tests use.
var forTests = map[string]string{"github.com/stretchr/testify": "assertions", "github.com/x448/float16": "oracle of conversions", "gonum.org/v1/gonum": "oracle of linear algebra"}

func isStandard(p string) bool { return !strings.Contains(strings.SplitN(p, "/", 2)[0], ".") }

// The formats, the kernels and the grids need the standard library alone; other modules stay where they belong.
func TestModulesStayInPlace(t *testing.T) {
	for _, f := range sources(t, true) {
		for _, p := range f.imports() {
			if isStandard(p) || p == module || strings.HasPrefix(p, module+"/") {
				continue
			}
			mod := moduleOf(p)
			if f.test && forTests[mod] != "" {
				continue
			}
			require.NotContains(t, forTests[mod], "assertions", "%s is no test", f.path)
			require.False(t, !f.test && within(f.dir, "formats", "internal", "quant/grid"), "%s imports %s", f.path, p)
			require.NotEmpty(t, outside[mod], "%s imports %s, a module that is used nowhere else: say here where it belongs, and why in go.mod's review", f.path, p)
			require.True(t, within(f.dir, outside[mod]...), "%s imports %s, which belongs to %v", f.path, p, outside[mod])
		}
	}
}

// moduleOf returns the listed module that a package belongs to.
func moduleOf(p string) string {
	for m := range outside {
		if within(p, m) {
			return m
		}
	}
	for m := range forTests {
		if within(p, m) {
			return m
		}
	}
	return p
}

// forbidden are packages of the standard library that would break a promise, with those who may use them.
var forbidden = map[string]struct {
	why     string
	allowed []string
}{
	"C":            {"one static binary", []string{"gpu"}},
	"net":          {"offline", nil},
	"net/http":     {"offline", nil},
	"os/exec":      {"no other program is run", nil},
	"plugin":       {"one static binary", nil},
	"encoding/gob": {"formats that others can read", nil},
	"math/rand":    {"the same bytes on every run", nil},
	"crypto/rand":  {"the same bytes on every run", nil},
	"math/rand/v2": {"the same bytes on every run", []string{"calib/tokenizer"}}, // which cached word is replaced
	"log":          {"libraries report, programs speak", []string{"examples"}},
	"log/slog":     {"libraries report, programs speak", nil},
	"unsafe":       {"memory safety", []string{"internal/kernel", "gpu"}},
	"reflect":      {"types are known", nil},
	"regexp":       {"linear scanners read what others wrote", []string{"formats/gguf", "formats/packing"}}, // names of models; "re:" entries of ignore lists
}

// Packages that would break a promise of the project are not imported.
func TestForbiddenPackages(t *testing.T) {
	for _, f := range sources(t, false) {
		for _, p := range f.imports() {
			if rule, ok := forbidden[p]; ok {
				require.True(t, within(f.dir, rule.allowed...), "%s imports %s: %s", f.path, p, rule.why)
			}
		}
		for _, s := range f.ast.Imports {
			if s.Name != nil && (s.Name.Name == "_" || s.Name.Name == ".") {
				require.Equal(t, `"embed"`, s.Path.Value, "%s: imports for their side effects hide dependencies", f.at(s.Pos()))
			}
		}
	}
}
