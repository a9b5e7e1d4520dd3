package jinja

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// snippet is a template with the output of Jinja2 3.1 in Transformers' environment, or the error Python raised.
type snippet struct {
	Src string          `json:"src"`
	Ctx json.RawMessage `json:"ctx"` // of a file's context when absent
	Out *string         `json:"out"`
	Err string          `json:"err"`
}

func runSnippet(s snippet) (string, error) {
	tpl, err := Parse(s.Src, Options{Now: time.Date(2024, 7, 26, 12, 0, 0, 0, time.UTC)})
	if err != nil {
		return "", err
	}
	v, err := FromJSON(s.Ctx)
	if err != nil {
		return "", err
	}
	vars := v.(*Dict)
	return tpl.Render(context.Background(), vars)
}

// TestSnippets holds the interpreter to Jinja2's own output. testdata/snippets.json was written by hand and run through
// Python, random.json.gz is a sample of random templates; where Python raises, so must we.
func TestSnippets(t *testing.T) {
	if name := os.Getenv("QUANTIZE_SNIPPETS"); name != "" {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		checkSnippets(t, data)
		return
	}
	data, err := os.ReadFile("testdata/snippets.json")
	require.NoError(t, err)
	checkSnippets(t, data)

	packed, err := os.Open("testdata/random.json.gz")
	require.NoError(t, err)
	defer packed.Close()
	z, err := gzip.NewReader(packed)
	require.NoError(t, err)
	data, err = io.ReadAll(z)
	require.NoError(t, err)
	checkSnippets(t, data)
}

func checkSnippets(t *testing.T, data []byte) {
	var file struct {
		Context json.RawMessage
		Cases   []snippet
	}
	require.NoError(t, json.Unmarshal(data, &file))
	require.NotEmpty(t, file.Cases)
	for _, c := range file.Cases {
		if c.Ctx == nil {
			c.Ctx = file.Context
		}
		out, err := runSnippet(c)
		switch {
		case c.Out == nil && err == nil:
			t.Errorf("%s\n  gave %q, Python raises %s", c.Src, out, c.Err)
		case c.Out != nil && err != nil:
			t.Errorf("%s\n  failed: %v\n  Python gives %q", c.Src, err, *c.Out)
		case c.Out != nil && out != *c.Out:
			t.Errorf("%s\n  gave %q\n  Python gives %q", c.Src, out, *c.Out)
		}
	}
}
