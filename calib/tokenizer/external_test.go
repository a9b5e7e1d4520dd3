package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
)

// TestExternalTokenizers compares with reference ids for tokenizers that can't lie in the repository. The environment
// names a directory of NAME/tokenizer.json (or tokenizer.model) and one of NAME.json.gz in the form of the goldens.
func TestExternalTokenizers(t *testing.T) {
	models, ids := os.Getenv("QUANTIZE_TOKENIZERS"), os.Getenv("QUANTIZE_TOKENIZER_IDS")
	if models == "" || ids == "" {
		t.Skip("QUANTIZE_TOKENIZERS and QUANTIZE_TOKENIZER_IDS are not set")
	}
	var texts goldenStrings
	strs := os.Getenv("QUANTIZE_TOKENIZER_STRINGS")
	if strs == "" {
		strs = shared(t, "golden", "tokenizers", "strings.json.gz")
	}
	gunzipJSON(t, strs, &texts)
	files, err := filepath.Glob(filepath.Join(ids, "*.json.gz"))
	require.NoError(t, err)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json.gz")
		t.Run(name, func(t *testing.T) {
			read, parse := "tokenizer.json", Parse
			if _, err := os.Stat(filepath.Join(models, name, read)); err != nil {
				read, parse = "tokenizer.model", ParseSentencePiece
			}
			data, err := os.ReadFile(filepath.Join(models, name, read))
			require.NoError(t, err)
			tok, err := parse(data)
			require.NoError(t, err)
			t.Logf("pre %q, steps %q", tok.Model().Pre, tok.Model().Steps)
			var want golden
			gunzipJSON(t, file, &want)
			compare(t, tok, want, texts.Strings)
		})
	}
}

// TestExternalSplits compares pieces and normalized texts with those of the reference library, for random strings made
// of characters at which patterns and tables differ. QUANTIZE_TOKENIZER_SPLITS names the file.
func TestExternalSplits(t *testing.T) {
	path := os.Getenv("QUANTIZE_TOKENIZER_SPLITS")
	if path == "" {
		t.Skip("QUANTIZE_TOKENIZER_SPLITS is not set")
	}
	var in struct {
		Splits []struct {
			Spec    json.RawMessage
			Strings []string
			Pieces  [][]string
		}
		Norms []struct {
			Name         string
			Strings, Out []string
		}
	}
	gunzipJSON(t, path, &in)
	for _, c := range in.Splits {
		split := splitterOf(t, string(c.Spec))
		for i, s := range c.Strings {
			if got := split(s); !slices.Equal(got, c.Pieces[i]) {
				t.Errorf("%s\n%q:\n got %q\nwant %q", c.Spec, s, got, c.Pieces[i])
				break
			}
		}
	}
	for _, c := range in.Norms {
		bad := 0
		for i, s := range c.Strings {
			if got := forms[c.Name].apply(s); got != c.Out[i] {
				if bad++; bad < 5 {
					t.Errorf("%s %+q:\n got %+q\nwant %+q", c.Name, s, got, c.Out[i])
				}
			}
		}
	}
}

// splitterOf builds the steps of a pre_tokenizer section; ByteLevel shows its bytes, as the library does.
func splitterOf(t *testing.T, spec string) func(string) []string {
	t.Helper()
	v, err := safeio.ParseJSON(spec)
	require.NoError(t, err)
	p := &parser{}
	require.NoError(t, p.readPreTokenizer(v), spec)
	var pieces []string
	sinks := make([]sink, len(p.steps)+1)
	sinks[len(p.steps)] = func(piece string, _ bool) {
		if p.byteLevel {
			piece = loadAlphabet().show(piece)
		}
		pieces = append(pieces, piece)
	}
	for i, s := range p.steps {
		sinks[i] = func(piece string, first bool) { s.apply(piece, first, sinks[i+1]) }
	}
	return func(s string) []string {
		pieces = nil
		sinks[0](s, true)
		return pieces
	}
}
