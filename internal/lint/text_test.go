package lint

import (
	"bytes"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// isText tells sources and documents from data.
func isText(rel string, content []byte) bool {
	return utf8.Valid(content) && !bytes.ContainsRune(content, 0)
}

// unfinished are words that mark work left undone. They are put together here so that this file is none of them.
var unfinished = regexp.MustCompile(`\b(` + strings.Join([]string{"TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK"}, "|") + `)\b`)

// machines are absolute paths of one machine.
var machines = regexp.MustCompile(`(^|[\s"'(=])/(wo` + `rk|ro` + `ot|ho` + `me|o` + `pt|mn` + `t)/`)

// Nothing is left for later, and no path of a machine is written down.
func TestWordsAndPaths(t *testing.T) {
	require.NoError(t, walk(func(rel string) error {
		if strings.HasPrefix(rel, ".git") {
			return nil
		}
		content, err := os.ReadFile(filepath.Join(root, rel))
		if err != nil || !isText(rel, content) || strings.HasPrefix(rel, "calib/default/") {
			return err
		}
		for i, line := range strings.Split(string(content), "\n") {
			if m := unfinished.FindString(line); m != "" {
				t.Errorf("%s:%d: %s", rel, i+1, m)
			}
			if m := machines.FindString(line); m != "" {
				t.Errorf("%s:%d: %s", rel, i+1, m)
			}
			if strings.HasSuffix(rel, ".go") && (strings.HasSuffix(line, " ") || strings.HasSuffix(line, "\t") || strings.HasSuffix(line, "\r")) {
				t.Errorf("%s:%d: white space at the end of the line", rel, i+1)
			}
		}
		return nil
	}))
}

// Every package says what it is for, once.
func TestPackageComments(t *testing.T) {
	docs, clauses := map[string][]string{}, map[string]string{}
	for _, f := range sources(t, false) {
		clauses[f.dir] = f.path
		if f.ast.Doc != nil {
			docs[f.dir] = append(docs[f.dir], f.path)
			text := f.ast.Doc.Text()
			want := "Package " + f.ast.Name.Name + " "
			if f.ast.Name.Name == "main" {
				want = ""
			}
			require.True(t, strings.HasPrefix(text, want), "%s: the package comment begins with %q", f.path, want)
			require.Greater(t, len(text), 60, "%s: a package comment worth reading", f.path)
		}
	}
	for dir, at := range clauses {
		require.Len(t, docs[dir], 1, "package comments of %s (%s)", dir, at)
	}
}

// Every exported name of a library has a comment that begins with it.
func TestExportedNamesAreDocumented(t *testing.T) {
	for _, f := range sources(t, false) {
		if f.ast.Name.Name == "main" {
			continue
		}
		for _, d := range f.ast.Decls {
			switch x := d.(type) {
			case *ast.FuncDecl:
				if x.Name.IsExported() && exportedReceiver(x) {
					documented(t, f, x.Pos(), x.Name.Name, x.Doc, x.Recv != nil)
				}
			case *ast.GenDecl:
				for _, s := range x.Specs {
					checkSpec(t, f, x, s)
				}
			}
		}
	}
}

// exportedReceiver reports whether a function is reachable: no method, or one of an exported type.
func exportedReceiver(fn *ast.FuncDecl) bool {
	if fn.Recv == nil {
		return true
	}
	e := fn.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
			continue
		case *ast.IndexExpr:
			e = x.X
			continue
		case *ast.Ident:
			return x.IsExported()
		}
		return false
	}
}

// usual are methods whose meaning is fixed by an interface of the standard library or of this module.
var usual = map[string]bool{"Error": true, "Unwrap": true, "String": true, "Read": true, "Write": true, "Close": true, "Len": true, "Less": true, "Swap": true,
	"Is": true, "Name": true, "Needs": true, "Tensors": true, "Lookup": true, "ReadTensor": true, "ReadAt": true, "Seek": true, "Span": true, "Sub": true,
	"Levels": true, "MarshalJSON": true}

func documented(t *testing.T, f *file, pos token.Pos, name string, doc *ast.CommentGroup, method bool) {
	t.Helper()
	if doc == nil {
		if !method || !usual[name] {
			t.Errorf("%s: exported %s has no comment", f.at(pos), name)
		}
		return
	}
	text := strings.TrimSpace(doc.Text())
	for _, article := range []string{"A ", "An ", "The ", "Deprecated: "} {
		text = strings.TrimPrefix(text, article)
	}
	if !strings.HasPrefix(text, name) {
		t.Errorf("%s: the comment of %s begins with %q", f.at(pos), name, strings.SplitN(text, " ", 2)[0])
	}
}

// checkSpec checks types by name; constants and variables may share the comment of their group or stand beside theirs.
func checkSpec(t *testing.T, f *file, g *ast.GenDecl, s ast.Spec) {
	switch x := s.(type) {
	case *ast.TypeSpec:
		doc := x.Doc
		if doc == nil && len(g.Specs) == 1 {
			doc = g.Doc
		}
		if x.Name.IsExported() {
			documented(t, f, x.Pos(), x.Name.Name, doc, false)
		}
	case *ast.ValueSpec:
		for _, n := range x.Names {
			if n.IsExported() && x.Doc == nil && x.Comment == nil && g.Doc == nil {
				t.Errorf("%s: exported %s has no comment", f.at(n.Pos()), n.Name)
			}
		}
	}
}

// Between a tenth and a quarter of the code's lines are comments: they say why, and do not drown the code.
func TestShareOfComments(t *testing.T) {
	lines, comments := 0, 0
	for _, f := range sources(t, false) {
		if f.generated {
			continue
		}
		lines += f.lines
		for _, g := range f.ast.Comments {
			comments += f.fset.Position(g.End()).Line - f.fset.Position(g.Pos()).Line + 1
		}
	}
	share := float64(comments) / float64(lines)
	t.Logf("%d of %d lines: %.1f %%", comments, lines, 100*share)
	require.GreaterOrEqual(t, share, 0.10)
	require.LessOrEqual(t, share, 0.25)
}
