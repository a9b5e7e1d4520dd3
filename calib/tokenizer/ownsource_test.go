package tokenizer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ownSources are this package's files: real text with tables, comments in prose and characters of many scripts.
func ownSources(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	out := map[string]string{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		out[name] = string(data)
	}
	require.Greater(t, len(out), 20)
	return out
}

// TestPatternsOnOwnSources compares scanners with the slow reading on real text.
func TestPatternsOnOwnSources(t *testing.T) {
	for name, text := range ownSources(t) {
		if !slices.Contains([]string{"alternatives.go", "matchers_test.go", "doc.go"}, name) {
			continue
		}
		for line := range strings.SplitAfterSeq(text, "\n}\n") { // the slow reading recurses: function by function
			for _, pattern := range knownPatterns {
				sc, err := newScanner(pattern)
				require.NoError(t, err)
				requireSameMatches(t, pattern, sc, newSlowPattern(pattern), line[:min(len(line), strings.LastIndex(line[:min(len(line), 1500)], "\n")+1)])
			}
		}
	}
}

// TestCuttingAtBlanks: where merges can't reach across blanks, encoding word by word equals encoding whole documents.
func TestCuttingAtBlanks(t *testing.T) {
	ref := loadReference(t)
	cut := 0
	for _, c := range ref.Cases {
		tok := c.open(t)
		var off func()
		switch e := tok.engine.(type) {
		case *hfEngine:
			if !e.model.cutSpace {
				continue
			}
			off = func() { e.model.cutSpace = false }
		case *spEngine:
			if !e.cutSpace {
				continue
			}
			off = func() { e.cutSpace = false }
		}
		cut++
		texts := append(slices.Clone(ref.Strings), " ▁ ▁▁a▁ b", strings.Repeat("▁", 50), "a▁")
		for _, text := range ownSources(t) {
			texts = append(texts, text)
		}
		var byWord [][]int32
		for _, s := range texts {
			byWord = append(byWord, tok.Encode(s, false))
		}
		off()
		for i, s := range texts {
			require.Equal(t, tok.Encode(s, false), byWord[i], "%s: %.60q", c.Name, s)
		}
	}
	require.Greater(t, cut, 4)
}

// TestCacheIsInvisible: a tokenizer that has seen other texts before gives the same ids as a fresh one.
func TestCacheIsInvisible(t *testing.T) {
	sources := ownSources(t)
	for _, c := range loadReference(t).Cases {
		if !slices.Contains([]string{"llama3", "nfkc", "llama2", "spm-collapse", "unknown-fused"}, c.Name) {
			continue
		}
		used := c.open(t)
		for _, text := range sources {
			used.Encode(text, false)
		}
		text := sources["doc.go"] + sources["alternatives.go"]
		require.Equal(t, c.open(t).Encode(text, false), used.Encode(text, false), c.Name)
	}
}

// TestRoundTrip: byte-level tokenizers without a normalizer give every text back.
func TestRoundTrip(t *testing.T) {
	sources := ownSources(t)
	for _, c := range loadReference(t).Cases {
		if !slices.Contains([]string{"gpt2", "llama3", "tekken", "smollm", "falcon", "deepseek-v3"}, c.Name) {
			continue
		}
		tok := c.open(t)
		// Tokens that take blanks along lose them.
		lossless := strings.NewReplacer("<mask>", "", "</s>", "", "<|end|>", "")
		for _, text := range sources {
			text = lossless.Replace(text)
			require.Equal(t, text, tok.Decode(tok.Encode(text, false)), c.Name)
		}
	}
}

// TestWordsAgainstDefinition encodes real words with the definition of merging.
func TestWordsAgainstDefinition(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(repoRoot(t), "testdata", "golm-llama", "tokenizer.json"))
	require.NoError(t, err)
	tok, err := Parse(data)
	require.NoError(t, err)
	m := &tok.engine.(*hfEngine).model
	rules := map[[2]int32]pair{}
	for rank, merge := range tok.about.model.merges {
		rules[merge] = pair{rank: uint32(rank), id: tok.about.model.results[rank]}
	}
	sc, err := newScanner(qwen2Pattern)
	require.NoError(t, err)
	text := ownSources(t)["alternatives.go"]
	var want []int32
	for i := 0; i < len(text); {
		_, end := sc.next(text, i)
		var symbols []int32
		for _, b := range []byte(text[i:end]) {
			symbols = append(symbols, m.bytes[b])
		}
		want = append(want, naiveMerge(symbols, rules)...)
		i = end
	}
	require.Equal(t, want, tok.Encode(text, false))
}
