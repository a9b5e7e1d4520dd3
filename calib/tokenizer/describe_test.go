package tokenizer

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDescriptions(t *testing.T) {
	want := map[string][2]string{ // model and pre by name of the reference case
		"gpt2": {"gpt2", "gpt-2"}, "llama3": {"gpt2", "llama-bpe"}, "qwen2-nfc": {"gpt2", "qwen2"}, "cl100k-removed": {"gpt2", "dbrx"},
		"smollm": {"gpt2", "smollm"}, "falcon": {"gpt2", "falcon"}, "deepseek-v3": {"gpt2", "deepseek-v3"}, "gpt2-prefix": {"gpt2", ""},
		"tekken": {"gpt2", ""}, "llama2": {"llama", "default"}, "gemma": {"llama", "default"}, "mistral": {"llama", "default"},
		"unknown-fused": {"", ""}, "whitespace-split": {"", ""}, "spm-identity": {"llama", "default"},
	}
	for _, c := range loadReference(t).Cases {
		d := c.open(t).Model()
		if w, ok := want[c.Name]; ok {
			require.Equal(t, w, [2]string{d.Model, d.Pre}, c.Name)
		}
		require.Equal(t, d.Model == "gpt2", d.Merges != nil, c.Name)
		require.Equal(t, d.Model == "llama", d.Scores != nil, c.Name)
		for _, m := range d.Merges {
			require.Equal(t, 1, strings.Count(m, " "), "%s: %q", c.Name, m)
		}
	}
}

// TestTokenTypes: byte pieces, unknown, control, user-defined.
func TestTokenTypes(t *testing.T) {
	for _, c := range loadReference(t).Cases {
		tok := c.open(t)
		d := tok.Model()
		switch c.Name {
		case "llama2":
			require.EqualValues(t, []int32{TypeUnknown, TypeControl, TypeControl, TypeByte}, d.Types[:4])
			require.True(t, d.AddSpacePrefix)
			require.EqualValues(t, 1, d.BOS)
			require.True(t, d.AddBOS)
		case "gemma":
			require.False(t, d.AddSpacePrefix)
		case "gpt2":
			id, _ := tok.ID("<mask>") // not special, does not look special
			require.EqualValues(t, TypeControl, d.Types[id], "llama.cpp's converter knows <mask> by its name")
			id, _ = tok.ID("tok")
			require.EqualValues(t, TypeUserDefined, d.Types[id])
		}
	}
	for token, special := range map[string]bool{"<|im_end|>": true, "<｜end｜>": true, "<unused7>": true, "<pad>": true, "[@BOS@]": true,
		"</s>": false, "<|x": false, "tok": false} {
		require.Equal(t, special, looksSpecial(token), token)
	}
}

// asSentencePiece builds the SentencePiece model that a description amounts to.
func asSentencePiece(t *testing.T, d Description) *Tokenizer {
	m := &spModel{byteFallback: true, modelType: 2, dummyPrefix: d.AddSpacePrefix, escapeSpace: true}
	for id, text := range d.Tokens {
		m.pieces = append(m.pieces, spPiece{text, d.Scores[id], int(d.Types[id])})
	}
	sp, err := m.build()
	require.NoError(t, err)
	return sp
}

// TestDerivedScores: joining by the derived scores gives the ids that the merge rules give.
func TestDerivedScores(t *testing.T) {
	ref := loadReference(t)
	for _, c := range ref.Cases {
		if c.Name != "llama2" && c.Name != "gemma" {
			continue
		}
		sp := asSentencePiece(t, c.open(t).Model())
		for i, s := range ref.Strings {
			if strings.ContainsAny(s, "<▁") || strings.Contains(s, "TOK") {
				continue // added tokens are searched for differently
			}
			require.Equal(t, c.Rows[i].ids, append([]int32{}, sp.Encode(s, false)...), "%s: %q", c.Name, s)
		}
	}
}

// TestDerivedScoresOfLlama: the scores derived from Llama 2's tokenizer.json are those of its tokenizer.model.
func TestDerivedScoresOfLlama(t *testing.T) {
	data, err := os.ReadFile(shared(t, "assets", "tokenizers", "llama2", "tokenizer.json"))
	require.NoError(t, err)
	tok, err := Parse(data)
	require.NoError(t, err)
	data, err = os.ReadFile(shared(t, "assets", "tokenizers", "llama2", "tokenizer.model"))
	require.NoError(t, err)
	model, err := ParseSentencePiece(data)
	require.NoError(t, err)
	got, want := tok.Model(), model.Model()
	require.True(t, got.ScoresExact)
	require.Equal(t, want.Tokens, got.Tokens)
	require.Equal(t, want.Types, got.Types)
	// Pieces no rule makes have scores in the model, which nothing asks for; runs of blanks were moved behind all others
	// there by hand. The rest comes in the same order.
	var ids []int
	for id, s := range got.Scores {
		if s != 0 && strings.Trim(got.Tokens[id], metaspace) != "" {
			ids = append(ids, id)
		}
	}
	require.Greater(t, len(ids), 29_000)
	byScore := func(scores []float32) []int {
		return slices.SortedStableFunc(slices.Values(ids), func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	}
	require.Equal(t, byScore(want.Scores), byScore(got.Scores))
}
