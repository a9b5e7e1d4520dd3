package parquet

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// readColumn reads a column into the shapes of rows.json.
func readColumn(t *testing.T, f *File, c Column) []any {
	t.Helper()
	rows := []any{}
	for r, err := range f.Read(context.Background(), c) {
		require.NoError(t, err)
		switch {
		case r.Null:
			rows = append(rows, nil)
		case c.Kind == Text:
			rows = append(rows, r.Text)
		case c.Kind == IDs:
			ids := make([]any, len(r.IDs))
			for i, id := range r.IDs {
				ids[i] = float64(id)
			}
			rows = append(rows, ids)
		default:
			turns := make([]any, len(r.Turns))
			for i, turn := range r.Turns {
				turns[i] = [2]string{turn.Speaker, turn.Text}
			}
			rows = append(rows, turns)
		}
	}
	return rows
}

// normalize brings a row of rows.json to what Read makes of it: empty lists are null, messages are pairs.
func normalize(v any) any {
	switch v := v.(type) {
	case []any:
		if len(v) == 0 {
			return nil
		}
		for i, x := range v {
			if m, ok := x.(map[string]any); ok {
				v[i] = pair(m)
			}
		}
	case map[string]any: // a struct of two lists
		var out []any
		for i, who := range v["role"].([]any) {
			out = append(out, [2]string{who.(string), v["content"].([]any)[i].(string)})
		}
		if out == nil {
			return nil
		}
		return out
	}
	return v
}

func pair(m map[string]any) [2]string {
	who, what := m["role"], m["content"]
	if who == nil {
		who, what = m["from"], m["value"]
	}
	s, _ := what.(string)
	return [2]string{who.(string), s}
}

// TestWriters reads the files of pyarrow, polars, duckdb and fastparquet under testdata (see make.py there).
func TestWriters(t *testing.T) {
	data, err := os.ReadFile("testdata/rows.json")
	require.NoError(t, err)
	var expected map[string]map[string][]any
	require.NoError(t, json.Unmarshal(data, &expected))
	require.Greater(t, len(expected), 25)
	for name, columns := range expected {
		f := openFile(t, filepath.Join("testdata", name))
		for column, want := range columns {
			c, ok := f.Column(column)
			require.True(t, ok, "%s has no column %s", name, column)
			if c.Kind == Other {
				require.Contains(t, []string{"doc", "n", "flags", "nested"}, column, "%s: %v", name, c.Err())
				continue
			}
			for i, row := range want {
				want[i] = normalize(row)
			}
			require.Equal(t, want, readColumn(t, f, c), "%s: %s", name, column)
		}
	}
}

func openFile(t *testing.T, name string) *File {
	t.Helper()
	file, err := os.Open(name)
	require.NoError(t, err)
	t.Cleanup(func() { file.Close() })
	info, err := file.Stat()
	require.NoError(t, err)
	f, err := Open(file, info.Size())
	require.NoError(t, err, name)
	return f
}

func TestStructMember(t *testing.T) {
	f := openFile(t, "testdata/arrow-struct.parquet")
	c, ok := f.Column("doc.text")
	require.True(t, ok)
	require.Equal(t, Text, c.Kind)
	require.Equal(t, []any{"in", nil, nil}, readColumn(t, f, c))
	_, ok = f.Column("doc.nothing")
	require.False(t, ok)

	types := map[string]string{}
	for _, c := range f.Columns() {
		types[c.Name] = c.Type
		require.ErrorContains(t, c.Err(), "wanted a string")
	}
	require.Equal(t, map[string]string{"doc": "a struct of text", "n": "int64", "flags": "boolean", "nested": "a list of lists"}, types)
}

func TestGolm(t *testing.T) {
	f := openFile(t, "../../testdata/data/golm-calib.parquet")
	c, ok := f.Column("text")
	require.True(t, ok)
	rows := readColumn(t, f, c)
	require.Len(t, rows, 602)
	size := 0
	for _, r := range rows {
		size += len(r.(string))
	}
	require.Equal(t, 1299420, size)
	require.EqualValues(t, 602, f.Rows())
}
