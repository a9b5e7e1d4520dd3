package gguf

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/stretchr/testify/require"
)

// readAll returns the bytes of a tensor.
func readAll(t testing.TB, src tensor.Source, name string) []byte {
	t.Helper()
	info, ok := src.Lookup(name)
	require.True(t, ok, name)
	n, ok := info.Bytes()
	require.True(t, ok)
	b := make([]byte, n)
	require.NoError(t, src.ReadTensor(name, b, 0))
	return b
}

// A converted checkpoint comes back bit for bit, and converting the result gives the same GGUF file.
func TestThereAndBackAgain(t *testing.T) {
	for _, name := range []string{"golm-llama", "golm-qwen2", "golm-qwen3moe"} {
		t.Run(name, func(t *testing.T) {
			c := openModel(t, modelDir(t, name))
			first := c.convert(t, BF16)
			f, err := Open(write(t, "m.gguf", first))
			require.NoError(t, err)
			defer f.Close()
			m, err := f.ToHF()
			require.NoError(t, err)
			require.Len(t, m.Tensors.Tensors(), len(c.Tensors()))
			for _, info := range c.Tensors() {
				got, ok := m.Tensors.Lookup(info.Name)
				require.True(t, ok, info.Name)
				require.Equal(t, info, got)
				require.True(t, bytes.Equal(readAll(t, c, info.Name), readAll(t, m.Tensors, info.Name)), info.Name)
			}
			model, err := arch.Resolve(m.Config, m.Tensors)
			require.NoError(t, err)
			require.Equal(t, c.model, model, "%s", m.Config)
			checkTokenizer(t, c.side["tokenizer.json"], m.Files["tokenizer.json"])

			h, maps, err := FromHF(model, m.Tensors, ConvertOptions{Type: BF16, Config: m.Config, Side: m.Files, Name: "other"})
			require.NoError(t, err)
			p, err := Plan(h, PlanOptions{Name: "m.gguf"})
			require.NoError(t, err)
			second := fill(t, p, func(i int, dst []byte) {
				rows := make([]float32, maps[i].Elements())
				require.NoError(t, maps[i].ReadRows(m.Tensors, rows, 0))
				require.NoError(t, EncodeRows(dst, maps[i].Type, rows))
			})[0]
			require.Equal(t, sum(first), sum(second))
		})
	}
}

// checkTokenizer compares what decides the ids.
func checkTokenizer(t *testing.T, want, got []byte) {
	t.Helper()
	type file struct {
		Added []struct {
			ID      int
			Content string
			Special bool
		} `json:"added_tokens"`
		Pre   json.RawMessage `json:"pre_tokenizer"`
		Model struct {
			Vocab        map[string]int
			Merges       []json.RawMessage
			IgnoreMerges bool `json:"ignore_merges"`
		}
	}
	var a, b file
	require.NoError(t, json.Unmarshal(want, &a))
	require.NoError(t, json.Unmarshal(got, &b))
	require.Equal(t, a.Added, b.Added)
	for _, added := range a.Added { // may stand in the vocabulary as well
		delete(a.Model.Vocab, added.Content)
		delete(b.Model.Vocab, added.Content)
	}
	require.Equal(t, a.Model.Vocab, b.Model.Vocab)
	require.Equal(t, a.Model.IgnoreMerges, b.Model.IgnoreMerges)
	require.Equal(t, plainMerges(t, a.Model.Merges), plainMerges(t, b.Model.Merges))
	var pa, pb map[string]any
	require.NoError(t, json.Unmarshal(a.Pre, &pa))
	require.NoError(t, json.Unmarshal(b.Pre, &pb))
	dropKey(pa, "trim_offsets")
	dropKey(pb, "trim_offsets")
	require.Equal(t, pa, pb)
}

func dropKey(v any, key string) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, key)
		for _, x := range v {
			dropKey(x, key)
		}
	case []any:
		for _, x := range v {
			dropKey(x, key)
		}
	}
}

func plainMerges(t *testing.T, raw []json.RawMessage) []string {
	t.Helper()
	var out []string
	for _, r := range raw {
		var pair [2]string
		var text string
		if json.Unmarshal(r, &pair) == nil {
			text = pair[0] + " " + pair[1]
		} else {
			require.NoError(t, json.Unmarshal(r, &text))
		}
		out = append(out, text)
	}
	return out
}

// The view serves any range of bytes, also inside permuted heads and quantized rows.
func TestViewServesAnyRange(t *testing.T) {
	for _, file := range []string{"golm-llama-F16.gguf", "golm-llama-Q4_K_M.gguf", "golm-qwen3moe-MXFP4_MOE.gguf"} {
		t.Run(file, func(t *testing.T) {
			f, err := Open(shared(t, "golden", "llamacpp", file))
			require.NoError(t, err)
			defer f.Close()
			_, v, err := f.HF()
			require.NoError(t, err)
			names := []string{"model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.k_proj.weight", "model.norm.weight"}
			if file == "golm-qwen3moe-MXFP4_MOE.gguf" {
				names = append(names, "model.layers.2.mlp.experts.5.down_proj.weight", "model.layers.0.mlp.gate.weight")
			}
			for _, name := range names {
				whole := readAll(t, v, name)
				for _, span := range [][2]int{{0, 1}, {3, 1021}, {len(whole) / 2, len(whole)/2 + 5000}, {len(whole) - 7, len(whole)}} {
					span[1] = min(span[1], len(whole))
					part := make([]byte, span[1]-span[0])
					require.NoError(t, v.ReadTensor(name, part, int64(span[0])))
					require.True(t, bytes.Equal(whole[span[0]:span[1]], part), "%s %v", name, span)
				}
				require.Error(t, v.ReadTensor(name, make([]byte, 2), int64(len(whole))-1))
				require.Error(t, v.ReadTensor(name, make([]byte, 2), -1))
			}
			require.Error(t, v.ReadTensor("no such tensor", nil, 0))
		})
	}
}

// Decoded weights lie near the original's, in the original's row order.
func TestQuantizedFilesOpenInHFNames(t *testing.T) {
	for file, model := range map[string]string{"golm-llama-Q4_K_M.gguf": "golm-llama", "golm-qwen2-Q5_0.gguf": "golm-qwen2", "golm-qwen3moe-MXFP4_MOE.gguf": "golm-qwen3moe"} {
		f, err := Open(shared(t, "golden", "llamacpp", file))
		require.NoError(t, err)
		defer f.Close()
		config, v, err := f.HF()
		require.NoError(t, err)
		c := openModel(t, modelDir(t, model))
		m, err := arch.Resolve(config, v)
		require.NoError(t, err)
		require.Empty(t, m.Unknown)
		m.DType = c.model.DType
		require.Equal(t, c.model, m)
		require.Len(t, v.Tensors(), len(c.Tensors()))
		for _, info := range c.Tensors() {
			want := floats(t, c, info.Name)
			got := floats(t, v, info.Name)
			var num, den float64
			for i := range want {
				d := float64(got[i]) - float64(want[i])
				num, den = num+d*d, den+float64(want[i])*float64(want[i])
			}
			require.Less(t, num, 0.02*den, "%s %s", file, info.Name)
		}
	}
}

func floats(t testing.TB, src tensor.Source, name string) []float32 {
	t.Helper()
	info, _ := src.Lookup(name)
	raw := readAll(t, src, name)
	out := make([]float32, len(raw)/int(info.DType.Size()))
	require.NoError(t, tensor.ToFloat32(out, info.DType, raw))
	return out
}

// Every pre-tokenizer of the table survives the way through tokenizer.json.
func TestPreTokenizersRoundTrip(t *testing.T) {
	for _, p := range PreTokenizers() {
		v, ignore, ok := preOf(p.Name)
		require.True(t, ok)
		require.Equal(t, p.IgnoreMerges, ignore)
		steps, err := describe(v)
		require.NoError(t, err)
		require.Equal(t, p.Steps, steps)
	}
	for alias, name := range preAliases {
		require.True(t, slices.ContainsFunc(pres[:], func(p pre) bool { return p.name == name }), alias)
	}
}
