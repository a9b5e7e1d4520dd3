package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// stepJSON writes the component that a step name stands for.
func stepJSON(t *testing.T, name string) string {
	if pattern, ok := strings.CutPrefix(name, "Split(/"); ok {
		quoted, err := json.Marshal(strings.TrimSuffix(pattern, "/,Isolated)"))
		require.NoError(t, err)
		return fmt.Sprintf(`{"type":"Split","pattern":{"Regex":%s},"behavior":"Isolated","invert":false}`, quoted)
	}
	known := map[string]string{
		"ByteLevel":                 strings.Replace(byteLevelJSON, `"use_regex":true`, `"use_regex":false`, 1),
		"ByteLevel+GPT2":            byteLevelJSON,
		"Digits":                    `{"type":"Digits","individual_digits":false}`,
		"Digits(each)":              `{"type":"Digits","individual_digits":true}`,
		`Punctuation("Contiguous")`: `{"type":"Punctuation","behavior":"Contiguous"}`,
	}
	require.Contains(t, known, name)
	return known[name]
}

// TestPreNames reads every row of the table back from a file that asks for its steps.
func TestPreNames(t *testing.T) {
	vocab := map[string]int{}
	for b, visible := range loadAlphabet().visible {
		vocab[visible] = b
	}
	alphabet, err := json.Marshal(vocab)
	require.NoError(t, err)
	for _, row := range preNames {
		var steps []string
		for _, s := range row.steps {
			steps = append(steps, stepJSON(t, s))
		}
		for _, whole := range []bool{false, true} {
			tok, err := Parse([]byte(document(map[string]string{
				"added_tokens":  "[]",
				"pre_tokenizer": `{"type":"Sequence","pretokenizers":[` + strings.Join(steps, ",") + `]}`,
				"decoder":       byteLevelJSON,
				"model":         fmt.Sprintf(`{"type":"BPE","ignore_merges":%t,"vocab":%s,"merges":[]}`, whole, alphabet),
			})))
			require.NoError(t, err, row.name)
			want := row.name
			if row.whole == "yes" && !whole || row.whole == "no" && whole {
				want = ""
			}
			got := tok.Model().Pre
			if want == "" {
				require.NotEqual(t, row.name, got)
			} else {
				require.Equal(t, want, got)
			}
			for _, text := range []string{"Hello, wörld's 12345 x²!\r\n\n  \tend ", "日本語の「文章」 AbcDEF"} {
				require.Equal(t, text, tok.Decode(tok.Encode(text, false)), row.name)
				require.Len(t, tok.Encode(text, false), len(text), "no merges: one id per byte")
			}
		}
	}
}

func TestAlternativesAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range alternatives {
		require.False(t, seen[a.text], a.text)
		seen[a.text] = true
		require.Equal(t, []string{a.text}, alternativesOf(a.text), "an alternative has no bar of its own")
	}
}
