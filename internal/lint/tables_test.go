package lint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/quant"
	"github.com/llmquant/quantize/quant/eval"
	"github.com/llmquant/quantize/quant/grid/ggml"
	"github.com/llmquant/quantize/quant/grid/mixture"
)

// row is one entry of one of the code's tables.
type row struct{ table, name, doc string }

// rows lists the tables that users see.
func rows() (all []row) {
	for _, l := range packing.Layouts() {
		all = append(all, row{"layouts", l.Name, l.Doc})
	}
	for _, f := range arch.Families() {
		all = append(all, row{"families", f.Name, f.Doc})
	}
	for _, g := range ggml.Types() {
		if g.CanEncode() {
			all = append(all, row{"ggml types", g.Name, ""})
		}
	}
	for _, f := range mixture.FileTypes() {
		all = append(all, row{"file types", f.Name, ""})
	}
	for _, e := range quant.EngineRules() {
		all = append(all, row{"engines", e.Engine, ""})
	}
	for _, p := range eval.Protocols() {
		all = append(all, row{"protocols", string(p), ""})
	}
	return all
}

// Every row of a table has a name of its own, and layouts and families a line that explains them.
func TestTableRows(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rows() {
		require.NotEmpty(t, r.name, r.table)
		require.Equal(t, strings.TrimSpace(r.name), r.name)
		key := r.table + " " + strings.ToLower(r.name)
		require.True(t, !seen[key] || r.table == "engines", key)
		seen[key] = true
		if r.table == "layouts" || r.table == "families" {
			require.Greater(t, len(r.doc), 10, "%s %s has no doc line", r.table, r.name)
			require.False(t, strings.HasSuffix(r.doc, ".") || strings.Contains(r.doc, "\n"), "%s: one line, no full stop", key)
		}
	}
}

// The README mentions every row.
func TestREADMEMentionsEveryRow(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("there is no README.md yet")
	}
	require.NoError(t, err)
	readme := strings.ToLower(string(text))
	for _, r := range rows() {
		if !strings.Contains(readme, strings.ToLower(r.name)) {
			t.Errorf("README.md does not mention %s of the %s", r.name, r.table)
		}
	}
}

// The top of the tree is fixed.
func TestTopLevel(t *testing.T) {
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	known := []string{".ci", ".git", ".gitignore", ".gitattributes", "LICENSE", "Makefile", "README.md", "bin", "calib", "cmd", "examples", "formats", "go.mod", "go.sum",
		"gpu", "internal", "out", "quant", "testdata"}
	for _, e := range entries {
		require.True(t, slices.Contains(known, e.Name()), "%s does not belong at the top", e.Name())
	}
}

// Test data stays small: what is large is made by the tests or kept beside the repository.
func TestSizeOfTestdata(t *testing.T) {
	var total int64
	require.NoError(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.Contains(filepath.ToSlash(p), "/testdata/") {
			return err
		}
		info, err := d.Info()
		if err == nil {
			total += info.Size()
			require.Less(t, info.Size(), int64(9<<20), p)
		}
		return err
	}))
	t.Logf("%.1f MB", float64(total)/1e6)
	require.Less(t, total, int64(20<<20))
}
