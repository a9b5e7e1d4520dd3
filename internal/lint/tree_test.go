// Package lint tests the repository as a text: which package may import which, what every table row must come with, and
// the rules of style that a compiler does not know. A rule that has exceptions lists them, each with its reason; an
// exception that nothing needs any more fails too.
package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// module is the path of this module.
const module = "github.com/llmquant/quantize"

// root is the top of the repository, seen from this package.
var root = filepath.Join("..", "..")

// file is one Go file.
type file struct {
	path      string // from the root, with slashes
	dir       string // package directory from the root, "." for the root
	test      bool
	generated bool
	lines     int
	text      []byte
	ast       *ast.File
	fset      *token.FileSet
}

// at spells a place in the file.
func (f *file) at(p token.Pos) string {
	pos := f.fset.Position(p)
	return f.path + ":" + itoa(pos.Line)
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}

// imports lists the imported paths.
func (f *file) imports() (paths []string) {
	for _, s := range f.ast.Imports {
		paths = append(paths, strings.Trim(s.Path.Value, `"`))
	}
	return paths
}

// skipped directories hold no code of the module: data, build outputs, what is hidden.
func skipped(name string) bool {
	return name == "testdata" || name == "bin" || name == "out" || name != "." && name != ".." && strings.HasPrefix(name, ".")
}

// walk calls f for every regular file of the module, nested modules and data left out.
func walk(f func(rel string) error) error {
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil && rel != "." || skipped(d.Name()) && rel != "." {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		return f(rel)
	})
}

var generatedMark = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// tree parses every Go file of the module once.
var tree = sync.OnceValues(func() ([]*file, error) {
	var files []*file
	fset := token.NewFileSet()
	err := walk(func(rel string) error {
		if path.Ext(rel) != ".go" {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, rel))
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(fset, rel, text, parser.ParseComments)
		if err != nil {
			return err
		}
		if ignored(parsed) {
			return nil
		}
		files = append(files, &file{path: rel, dir: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go"), text: text,
			generated: generatedMark.Match(text), lines: strings.Count(string(text), "\n"), ast: parsed, fset: fset})
		return nil
	})
	return files, err
})

// ignored reports whether a file is run by hand only: a generator behind the build tag "ignore".
func ignored(f *ast.File) bool {
	for _, g := range f.Comments {
		for _, c := range g.List {
			if c.Pos() < f.Package && strings.TrimSpace(strings.TrimPrefix(c.Text, "//go:build")) == "ignore" {
				return true
			}
		}
	}
	return false
}

// sources returns the files that are no tests; withTests adds those.
func sources(t *testing.T, withTests bool) (out []*file) {
	files, err := tree()
	require.NoError(t, err)
	require.Greater(t, len(files), 300)
	for _, f := range files {
		if withTests || !f.test {
			out = append(out, f)
		}
	}
	return out
}

// within reports whether dir is one of the directories or below one.
func within(dir string, tops ...string) bool {
	return slices.ContainsFunc(tops, func(top string) bool { return dir == top || strings.HasPrefix(dir, top+"/") })
}

// exceptions are places where a rule does not hold, by what the rule calls them, with the reason.
type exceptions map[string]string

// check reports every violation that is no exception, and every exception that is no violation.
func (e exceptions) check(t *testing.T, rule string, violations map[string]string) {
	t.Helper()
	for key, where := range violations {
		if e[key] == "" {
			t.Errorf("%s: %s (%s)", rule, key, where)
		}
	}
	for key, reason := range e {
		if _, ok := violations[key]; !ok {
			t.Errorf("%s: the exception %q (%s) is not needed any more", rule, key, reason)
		}
	}
}
