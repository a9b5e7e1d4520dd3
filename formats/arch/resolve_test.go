package arch

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

func familyNamed(t testing.TB, name string) Family {
	for _, f := range Families() {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no family %q", name)
	return Family{}
}

func TestFamilyTable(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range Families() {
		require.NotEmpty(t, f.Doc)
		require.NotEmpty(t, f.GGUF.Arch)
		require.NotNil(t, f.window)
		require.False(t, seen[f.Name])
		seen[f.Name] = true
		for _, a := range f.Architectures {
			require.False(t, seen[a], a)
			seen[a] = true
		}
		m, err := Resolve(tiny(f).text(), tiny(f).tensors())
		require.NoError(t, err)
		require.Equal(t, f.Name, m.Family)
		require.Equal(t, "silu", m.Activation)
		require.Len(t, m.Blocks, 3)
		require.Empty(t, m.Unknown)
		checkModel(t, m)
	}
}

// TestEveryTensorIsNeeded drops each tensor in turn, and gives each a wrong shape and type: every mistake is an error
// that names the tensor.
func TestEveryTensorIsNeeded(t *testing.T) {
	for _, f := range Families() {
		s := tiny(f)
		if f.Name == "llama" {
			s = s.with("attention_bias", true, "mlp_bias", true)
		}
		all := s.tensors()
		for i, info := range all.list {
			_, err := Resolve(s.text(), all.drop(info.Name))
			require.ErrorIs(t, err, safeio.ErrCorrupt, info.Name)
			require.ErrorContains(t, err, info.Name)

			all.list[i].Shape = append([]int64{1}, info.Shape...)
			_, err = Resolve(s.text(), all)
			require.ErrorIs(t, err, safeio.ErrCorrupt, info.Name)
			require.ErrorContains(t, err, info.Name)

			all.list[i] = info
			all.list[i].DType = tensor.F8E4M3
			_, err = Resolve(s.text(), all)
			require.ErrorIs(t, err, safeio.ErrUnsupported, info.Name)
			all.list[i] = info
		}
	}
}

func TestUnknownTensorsAreListed(t *testing.T) {
	s := tiny(familyNamed(t, "llama"))
	src := s.tensors()
	src.add("model.layers.0.self_attn.rotary_emb.inv_freq", 2)
	src.add("model.layers.3.eh_proj.weight", 24, 48) // a layer beyond the count, as multi-token prediction has
	m, err := Resolve(s.text(), src)
	require.NoError(t, err)
	require.Equal(t, []string{"model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.3.eh_proj.weight"}, m.Unknown)
}

func TestTying(t *testing.T) {
	s := tiny(familyNamed(t, "qwen3"))
	untied, tied := s.tensors(), s.with("tie_word_embeddings", true).tensors()
	for _, c := range []struct {
		name string
		s    settings
		src  *shapes
		tied bool
		head string
	}{
		{"untied", s, untied, false, "lm_head.weight"},
		{"tied", s.with("tie_word_embeddings", true), tied, true, "model.embed_tokens.weight"},
		{"tied with a stored head", s.with("tie_word_embeddings", true), untied, true, "lm_head.weight"},
		{"silent, no head", s.with("tie_word_embeddings", absent), tied, true, "model.embed_tokens.weight"},
		{"silent, head", s.with("tie_word_embeddings", absent), untied, false, "lm_head.weight"},
	} {
		m, err := Resolve(c.s.text(), c.src)
		require.NoError(t, err, c.name)
		require.Equal(t, c.tied, m.Tied, c.name)
		require.Equal(t, c.head, m.Head, c.name)
		require.Empty(t, m.Unknown, c.name)
	}
	_, err := Resolve(s.text(), tied)
	require.ErrorContains(t, err, "lm_head.weight")
}

func TestSlidingWindows(t *testing.T) {
	types := func(s string) []string {
		full := map[rune]string{'f': fullAttention, 's': slidingAttention}
		var all []string
		for _, r := range s {
			all = append(all, full[r])
		}
		return all
	}
	for _, c := range []struct {
		family string
		keys   []any
		want   string // per layer, or part of the error
	}{
		{"llama", nil, "[0 0 0]"},
		{"llama", []any{"sliding_window", 16}, "[0 0 0]"}, // Llama does not know the key
		{"llama", []any{"layer_types", types("ffs")}, "layer_types"},
		{"mistral", nil, "[4096 4096 4096]"},
		{"mistral", []any{"sliding_window", nil}, "[0 0 0]"},
		{"mistral", []any{"sliding_window", 16}, "[16 16 16]"},
		{"mistral", []any{"sliding_window", 16, "layer_types", types("sss")}, "[16 16 16]"},
		{"mistral", []any{"sliding_window", 16, "layer_types", types("sfs")}, "layer_types"},
		{"mistral", []any{"sliding_window", 0}, "sliding_window"},
		{"qwen2", []any{"sliding_window", 16, "max_window_layers", 1}, "[0 0 0]"},
		{"qwen2", []any{"use_sliding_window", true, "sliding_window", 16, "max_window_layers", 1}, "[0 16 16]"},
		{"qwen2", []any{"use_sliding_window", true, "sliding_window", nil, "max_window_layers", 1}, "[0 0 0]"},
		{"qwen2", []any{"use_sliding_window", true, "sliding_window", 16}, "[0 0 0]"}, // 28 layers before the first
		{"qwen3", []any{"use_sliding_window", true, "sliding_window", 16, "layer_types", types("sfs")}, "[16 0 16]"},
		{"qwen3", []any{"layer_types", types("fff")}, "[0 0 0]"},
		{"qwen3", []any{"layer_types", types("ffs")}, "no sliding window"},
		{"qwen3", []any{"layer_types", types("ff")}, "2 entries"},
		{"qwen3", []any{"layer_types", []string{"full_attention", "linear_attention", "full_attention"}}, "linear_attention"},
		{"qwen3_moe", []any{"use_sliding_window", true, "sliding_window", 16}, "[16 16 16]"},
		{"qwen3_moe", []any{"use_sliding_window", false, "sliding_window", 16}, "[0 0 0]"},
	} {
		s := tiny(familyNamed(t, c.family)).with(c.keys...)
		m, err := Resolve(s.text(), s.tensors())
		if err != nil {
			require.ErrorContains(t, err, c.want, "%s %v", c.family, c.keys)
			continue
		}
		var got []int
		for _, b := range m.Blocks {
			got = append(got, b.SlidingWindow)
		}
		require.Equal(t, c.want, fmt.Sprint(got), "%s %v", c.family, c.keys)
	}
}

func TestMixedLayers(t *testing.T) {
	s := tiny(familyNamed(t, "qwen3_moe")).with("num_hidden_layers", 6, "decoder_sparse_step", 2, "mlp_only_layers", []int{3})
	m, err := Resolve(s.text(), s.tensors())
	require.NoError(t, err)
	var sparse []int
	for _, b := range m.Blocks {
		if b.MoE != nil {
			sparse = append(sparse, b.Index)
			require.Zero(t, b.Gate)
			require.Equal(t, 2, b.MoE.TopK)
			require.True(t, b.MoE.NormTopK)
			require.Len(t, b.MoE.Experts, 4)
			require.Equal(t, 3, b.MoE.Experts[3].Down.Expert)
		}
	}
	require.Equal(t, []int{1, 5}, sparse)
	checkModel(t, m)

	now := s.with("num_experts", absent, "num_local_experts", 4) // Transformers 5
	_, err = Resolve(now.text(), now.tensors())
	require.NoError(t, err)
	_, err = Resolve(now.with("num_experts", 5).text(), now.tensors())
	require.ErrorContains(t, err, "disagree")
	_, err = Resolve(s.with("num_experts_per_tok", 5).text(), s.tensors())
	require.ErrorContains(t, err, "5 experts per token of 4")
}

// TestBadConfigs: each mistake gives the right class and names its cause.
func TestBadConfigs(t *testing.T) {
	llama := tiny(familyNamed(t, "llama"))
	corrupt, unsupported := safeio.ErrCorrupt, safeio.ErrUnsupported
	for _, c := range []struct {
		keys  []any
		class error
		word  string
	}{
		{[]any{"architectures", []string{"MixtralForCausalLM"}, "model_type", "mixtral"}, unsupported, "MixtralForCausalLM"},
		{[]any{"architectures", absent, "model_type", "gemma"}, unsupported, `"gemma"`},
		{[]any{"architectures", absent, "model_type", absent}, unsupported, "architecture"},
		{[]any{"architectures", []string{"LlamaForCausalLM", "X"}}, unsupported, "2 architectures"},
		{[]any{"model_type", "mistral"}, unsupported, "engines differ"},
		{[]any{"architectures", "LlamaForCausalLM"}, corrupt, "architectures"},
		{[]any{"hidden_act", "gelu"}, unsupported, `"gelu"`},
		{[]any{"hidden_size", absent}, corrupt, "hidden_size"},
		{[]any{"hidden_size", nil}, corrupt, "hidden_size"},
		{[]any{"hidden_size", "24"}, corrupt, "hidden_size"},
		{[]any{"hidden_size", 24.5}, corrupt, "hidden_size"},
		{[]any{"hidden_size", -1}, corrupt, "hidden_size"},
		{[]any{"vocab_size", 1 << 21}, corrupt, "vocab_size"},
		{[]any{"num_hidden_layers", 0}, corrupt, "num_hidden_layers"},
		{[]any{"num_hidden_layers", 1 << 20}, corrupt, "model.layers.3."},
		{[]any{"num_attention_heads", 0}, corrupt, "num_attention_heads"},
		{[]any{"num_key_value_heads", 4}, corrupt, "no multiple"},
		{[]any{"head_dim", 5}, corrupt, "odd"},
		{[]any{"head_dim", absent, "num_attention_heads", 5, "num_key_value_heads", 5}, corrupt, "no multiple"},
		{[]any{"head_dim", 1 << 20}, corrupt, "heads of"},
		{[]any{"rms_norm_eps", 0}, corrupt, "rms_norm_eps"},
		{[]any{"rms_norm_eps", -1e-5}, corrupt, "rms_norm_eps"},
		{[]any{"rope_theta", 0.0}, corrupt, "rope_theta"},
		{[]any{"rope_theta", "big"}, corrupt, "rope_theta"},
		{[]any{"rope_scaling", settings{"rope_type": "longrope", "factor": 2}}, unsupported, `"longrope"`},
		{[]any{"rope_scaling", settings{"type": "mrope"}}, unsupported, `"mrope"`},
		{[]any{"rope_scaling", settings{"type": "linear"}}, corrupt, "factor"},
		{[]any{"rope_scaling", settings{"type": "linear", "factor": 0}}, corrupt, "factor"},
		{[]any{"rope_scaling", settings{"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}}, corrupt, "high_freq_factor"},
		{[]any{"rope_scaling", []int{1}}, corrupt, "rope_scaling"},
		{[]any{"rope_parameters", settings{"full_attention": settings{"rope_type": "default"}}}, unsupported, "per layer type"},
		{[]any{"partial_rotary_factor", 0.5}, unsupported, "partial_rotary_factor"},
		{[]any{"attention_bias", 1}, corrupt, "attention_bias"},
		{[]any{"max_position_embeddings", int64(1) << 40}, corrupt, "max_position_embeddings"},
		{[]any{"tie_word_embeddings", "yes"}, corrupt, "tie_word_embeddings"},
	} {
		_, err := Resolve(llama.with(c.keys...).text(), llama.tensors())
		require.ErrorIs(t, err, c.class, "%v", c.keys)
		require.ErrorContains(t, err, c.word, "%v", c.keys)
		var e *safeio.Error
		require.True(t, errors.As(err, &e), "%v", c.keys)
	}
	for _, text := range []string{"", "[]", "null", "{", `{"a":1,"a":2}`} {
		_, err := Resolve([]byte(text), llama.tensors())
		require.ErrorIs(t, err, safeio.ErrCorrupt, text)
	}
}

// TestDefaults: what Transformers assumes for keys that are absent or null.
func TestDefaults(t *testing.T) {
	for _, c := range []struct {
		family      string
		keys        []any
		kv, headDim int
	}{
		{"llama", []any{"num_key_value_heads", absent, "head_dim", absent}, 6, 4},
		{"llama", []any{"num_key_value_heads", nil, "head_dim", nil}, 6, 4},
		{"llama", []any{"head_dim", 8}, 2, 8},
		{"mistral", []any{"num_attention_heads", 24, "head_dim", 2, "num_key_value_heads", absent}, 8, 2},
		{"mistral", []any{"num_key_value_heads", nil}, 6, 4},
		{"qwen3", []any{"head_dim", absent}, 2, 128},
	} {
		s := tiny(familyNamed(t, c.family)).with(c.keys...)
		src := s.with("num_key_value_heads", c.kv, "head_dim", c.headDim).tensors()
		m, err := Resolve(s.text(), src)
		require.NoError(t, err, "%v", c.keys)
		require.Equal(t, c.kv, m.KVHeads)
		require.Equal(t, c.headDim, m.HeadDim)
	}
}

// TestLayerCountAllocatesNothing: a config of a few bytes cannot make Resolve reserve memory for a million layers.
func TestLayerCountAllocatesNothing(t *testing.T) {
	s := tiny(familyNamed(t, "qwen3_moe"))
	src := s.tensors()
	text := s.with("num_hidden_layers", 1<<20, "num_experts", 1<<20, "max_position_embeddings", 1<<27).text()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Resolve(text, src)
	runtime.ReadMemStats(&after)
	require.Error(t, err)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

// TestImplied: without a checkpoint the model is the same, and its tensors are those a checkpoint has.
func TestImplied(t *testing.T) {
	for _, f := range Families() {
		for _, tied := range []bool{false, true} {
			s := tiny(f).with("tie_word_embeddings", tied)
			want, err := Resolve(s.text(), s.tensors())
			require.NoError(t, err)
			m, tensors, err := Implied(s.text())
			require.NoError(t, err)
			require.Equal(t, want, m)
			require.ElementsMatch(t, s.tensors().list, tensors)
		}
	}
	s := tiny(familyNamed(t, "qwen3_moe")).with("num_hidden_layers", 1<<20, "num_experts", 1<<20)
	_, _, err := Implied(s.text())
	require.ErrorIs(t, err, safeio.ErrLimit)
	_, _, err = Implied([]byte(`{"architectures":["GPT2LMHeadModel"]}`))
	require.ErrorContains(t, err, "GPT2LMHeadModel")
}

// FuzzResolve: no config panics, and one that resolves describes a consistent model.
func FuzzResolve(f *testing.F) {
	for _, fam := range Families() {
		f.Add(tiny(fam).text())
		f.Add(tiny(fam).with("rope_scaling", settings{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32}).text())
		f.Add(tiny(fam).with("rope_parameters", settings{"rope_type": "llama3", "factor": 4, "rope_theta": 5e5}).text())
	}
	src := &shapes{}
	for _, fam := range Families() { // one source with the tensors of all families
		for _, info := range tiny(fam).with("attention_bias", true).tensors().list {
			if _, ok := src.Lookup(info.Name); !ok {
				src.add(info.Name)
				src.list[len(src.list)-1] = info
			}
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := Resolve(text, src)
		if err != nil {
			if !errors.Is(err, safeio.ErrCorrupt) && !errors.Is(err, safeio.ErrUnsupported) && !errors.Is(err, safeio.ErrLimit) {
				t.Fatalf("no class: %v", err)
			}
			return
		}
		checkModel(t, m)
		again, err := Resolve(bytes.Clone(text), src)
		require.NoError(t, err)
		require.Equal(t, m, again)
	})
}
