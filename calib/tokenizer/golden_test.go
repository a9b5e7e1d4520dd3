package tokenizer

import (
	"bufio"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// repoRoot returns the directory of go.mod.
func repoRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Skip("no go.mod above the package")
		}
		dir = up
	}
}

// shared returns a path below the shared folder beside the repository and skips the test when it is not there.
func shared(t testing.TB, elem ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{repoRoot(t), "..", "shared"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not there", filepath.Join(elem...))
	}
	return path
}

// gunzipJSON reads a gzipped JSON file.
func gunzipJSON(t testing.TB, path string, into any) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(z).Decode(into))
}

// golden is the output of a reference library for a list of strings.
type golden struct {
	SpecialPrefix []int32           `json:"special_prefix"`
	SpecialSuffix []int32           `json:"special_suffix"`
	IDs           [][]int32         `json:"ids"`
	DecodeDiffers map[string]string `json:"decode_differs"`
}

type goldenStrings struct {
	Categories [][3]any `json:"categories"`
	Strings    []string `json:"strings"`
}

// compare encodes and decodes every string and reports differences, at most a few in full.
func compare(t *testing.T, tok *Tokenizer, want golden, texts []string) {
	t.Helper()
	require.Len(t, want.IDs, len(texts))
	bad := 0
	report := func(i int, what string, got, want any) {
		if bad++; bad <= 5 {
			t.Errorf("string %d %.80q: %s\n got %.300s\nwant %.300s", i, texts[i], what, fmt.Sprint(got), fmt.Sprint(want))
		}
	}
	for i, s := range texts {
		ids := tok.Encode(s, false)
		if !slices.Equal(ids, want.IDs[i]) {
			report(i, "ids", ids, want.IDs[i])
		}
		full := slices.Concat(want.SpecialPrefix, want.IDs[i], want.SpecialSuffix)
		if got := tok.Encode(s, true); !slices.Equal(got, full) {
			report(i, "ids with special tokens", got, full)
		}
		text, differs := want.DecodeDiffers[strconv.Itoa(i)]
		if !differs {
			text = s
		}
		if got := tok.Decode(want.IDs[i]); got != text {
			report(i, "text", fmt.Sprintf("%q", got), fmt.Sprintf("%q", text))
		}
	}
	if bad > 0 {
		t.Errorf("%d differences in %d strings", bad, len(texts))
	}
}

// goldens pairs the golden files with what they were made from; the reader of a tokenizer.model adds no BOS.
var goldens = []struct {
	name   string
	source []string
}{
	{"golm", []string{"models", "golm-llama", "tokenizer.json"}},
	{"golm", []string{"models", "golm-llama-outlier", "tokenizer.json"}},
	{"golm", []string{"models", "golm-qwen3moe", "tokenizer.json"}},
	{"golm", []string{"models", "golm-qwen2", "tokenizer.json"}},
	{"gpt2", []string{"assets", "tokenizers", "gpt2", "tokenizer.json"}},
	{"granite-3.1", []string{"assets", "tokenizers", "granite-3.1", "tokenizer.json"}},
	{"qwen3", []string{"assets", "tokenizers", "qwen3", "tokenizer.json"}},
	{"llama2", []string{"assets", "tokenizers", "llama2", "tokenizer.json"}},
	{"mistral-v03", []string{"assets", "tokenizers", "mistral-v03", "tokenizer.json"}},
	{"phi3-32k", []string{"assets", "tokenizers", "phi3-32k", "tokenizer.json"}},
	{"stories", []string{"assets", "stories260K", "tokenizer.json"}},
	{"stories", []string{"assets", "stories-xs", "tokenizer.json"}},
	{"llama2-sentencepiece", []string{"assets", "tokenizers", "llama2", "tokenizer.model"}},
	{"stories-sentencepiece", []string{"assets", "stories260K", "tokenizer.model"}},
	{"stories-sentencepiece", []string{"assets", "stories-xs", "tokenizer.model"}},
	{"llama3", []string{"assets", "tokenizers", "llama3-tiktoken", "tokenizer.model"}},
}

func TestGoldenIDs(t *testing.T) {
	var texts goldenStrings
	gunzipJSON(t, shared(t, "golden", "tokenizers", "strings.json.gz"), &texts)
	for _, g := range goldens {
		t.Run(g.name+"/"+g.source[len(g.source)-2], func(t *testing.T) {
			data, err := os.ReadFile(shared(t, g.source...))
			require.NoError(t, err)
			var tok *Tokenizer
			switch {
			case g.name == "llama3":
				tok, err = Parse(llama3JSON(t, data))
			case strings.HasSuffix(g.source[len(g.source)-1], ".model"):
				tok, err = ParseSentencePiece(data)
			default:
				tok, err = Parse(data)
			}
			require.NoError(t, err)
			var want golden
			gunzipJSON(t, shared(t, "golden", "tokenizers", g.name+".json.gz"), &want)
			compare(t, tok, want, texts.Strings)
		})
	}
}

// llama3JSON writes the tokenizer.json that Transformers makes from Llama 3's tiktoken ranks. Ranks give the order in
// which tokens are made, not how: every split of a token into two others is a rule.
func llama3JSON(t testing.TB, ranks []byte) []byte {
	t.Helper()
	rank := map[string]int{}
	var tokens []string
	for line := range strings.Lines(string(ranks)) {
		b64, n, _ := strings.Cut(strings.TrimSpace(line), " ")
		raw, err := base64.StdEncoding.DecodeString(b64)
		require.NoError(t, err)
		require.Equal(t, strconv.Itoa(len(tokens)), n)
		rank[string(raw)] = len(tokens)
		tokens = append(tokens, string(raw))
	}
	vocab := map[string]int{}
	var merges [][2]string
	show := loadAlphabet().show
	for id, tok := range tokens {
		vocab[show(tok)] = id
		var cuts []int
		for i := 1; i < len(tok); i++ {
			_, left := rank[tok[:i]]
			_, right := rank[tok[i:]]
			if left && right {
				cuts = append(cuts, i)
			}
		}
		sort.SliceStable(cuts, func(a, b int) bool { return rank[tok[:cuts[a]]] < rank[tok[:cuts[b]]] })
		for _, i := range cuts {
			merges = append(merges, [2]string{show(tok[:i]), show(tok[i:])})
		}
	}
	var added []map[string]any
	for _, name := range llama3Specials() {
		added = append(added, map[string]any{"id": len(tokens) + len(added), "content": name, "special": true,
			"normalized": false, "lstrip": false, "rstrip": false, "single_word": false})
	}
	bos := added[0]["content"].(string)
	doc := map[string]any{
		"version": "1.0", "added_tokens": added,
		"pre_tokenizer": map[string]any{"type": "Sequence", "pretokenizers": []any{
			map[string]any{"type": "Split", "pattern": map[string]any{"Regex": llama3Pattern}, "behavior": "Isolated", "invert": false},
			map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
		}},
		"post_processor": map[string]any{"type": "TemplateProcessing",
			"single":         []any{map[string]any{"SpecialToken": map[string]any{"id": bos, "type_id": 0}}, map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}}},
			"pair":           []any{},
			"special_tokens": map[string]any{bos: map[string]any{"id": bos, "ids": []int{len(tokens)}, "tokens": []string{bos}}}},
		"decoder": map[string]any{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
		"model":   map[string]any{"type": "BPE", "ignore_merges": true, "vocab": vocab, "merges": merges},
	}
	out, err := json.Marshal(doc)
	require.NoError(t, err)
	return out
}

// llama3Specials lists Llama 3's special tokens in order of their ids.
func llama3Specials() []string {
	reserved := func(from, to int) (list []string) {
		for i := from; i <= to; i++ {
			list = append(list, fmt.Sprintf("<|reserved_special_token_%d|>", i))
		}
		return list
	}
	return slices.Concat([]string{"<|begin_of_text|>", "<|end_of_text|>"}, reserved(0, 3),
		[]string{"<|start_header_id|>", "<|end_header_id|>"}, reserved(4, 4), []string{"<|eot_id|>"}, reserved(5, 250))
}

// TestGolmCases covers the cases that come with the models' data, for every model.
func TestGolmCases(t *testing.T) {
	f, err := os.Open(shared(t, "data", "golm-tokenizer-cases.json"))
	require.NoError(t, err)
	defer f.Close()
	var cases []struct {
		Text string  `json:"text"`
		IDs  []int32 `json:"ids"`
	}
	require.NoError(t, json.NewDecoder(bufio.NewReader(f)).Decode(&cases))
	require.Len(t, cases, 500)
	for _, model := range []string{"golm-llama", "golm-llama-outlier", "golm-qwen2", "golm-qwen3moe"} {
		tok, err := Open(shared(t, "models", model))
		require.NoError(t, err)
		for _, c := range cases {
			require.Equal(t, c.IDs, tok.Encode(c.Text, false), "%s: %q", model, c.Text)
			require.Equal(t, c.Text, tok.Decode(c.IDs), model)
		}
	}
}
