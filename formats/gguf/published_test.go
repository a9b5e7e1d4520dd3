package gguf

import (
	"fmt"
	"os"
	"testing"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/stretchr/testify/require"
)

// shapes is a source without data.
type shapes []tensor.Info

func (s shapes) Tensors() []tensor.Info { return s }

func (s shapes) Lookup(name string) (tensor.Info, bool) {
	for _, t := range s {
		if t.Name == name {
			return t, true
		}
	}
	return tensor.Info{}, false
}

func (s shapes) ReadTensor(string, []byte, int64) error { return os.ErrInvalid }

// indexed speeds Lookup up for models with many tensors.
type indexed struct {
	shapes
	byName map[string]tensor.Info
}

func (s indexed) Lookup(name string) (tensor.Info, bool) {
	t, ok := s.byName[name]
	return t, ok
}

// words is a vocabulary of the right size for a model nobody downloads here.
func words(n int) *TokenizerInfo {
	t := &TokenizerInfo{Model: ModelBPE, Pre: "llama-bpe", Tokens: make([]Token, n), Merges: []string{"a b"}}
	for i := range t.Tokens {
		t.Tokens[i] = Token{Text: fmt.Sprint(i), Type: TokenNormal}
	}
	return t
}

// convertConfig plans the conversion of the model that a config describes.
func convertConfig(t *testing.T, config []byte, name string) (*Header, []TensorMap) {
	t.Helper()
	m, infos, err := arch.Implied(config)
	require.NoError(t, err)
	src := indexed{infos, make(map[string]tensor.Info, len(infos))}
	for _, info := range infos {
		src.byName[info.Name] = info
	}
	h, maps, err := FromHF(m, src, ConvertOptions{Type: BF16, Config: config, Tokenizer: words(m.Vocab), Name: name})
	require.NoError(t, err)
	return h, maps
}

// Published models plan with the figures known of their GGUF files: tensors, label of the size, special tensors.
func TestPublishedModels(t *testing.T) {
	for _, c := range []struct {
		config, name  string
		tensors       int
		label         string
		architecture  string
		freqs, output bool
	}{
		{"plain/meta-llama--Meta-Llama-3.1-8B_config.json", "Meta-Llama-3.1-8B", 292, "8B", "llama", true, true},
		{"plain/meta-llama--Meta-Llama-3.1-70B_config.json", "x", 724, "71B", "llama", true, true},
		{"index/llama-3.2-3b/config.json", "x", 255, "3.2B", "llama", true, false},
		{"index/mistral-7b-v0.3/config.json", "x", 291, "7.2B", "llama", false, true},
		{"index/qwen2.5-14b-cogito/config.json", "x", 579, "15B", "qwen2", false, true},
		{"plain/Qwen--Qwen3-0.6B_config.json", "x", 310, "596M", "qwen3", false, false},
		{"plain/Qwen--Qwen3-8B_config.json", "x", 399, "8.2B", "qwen3", false, true},
		{"plain/Qwen--Qwen3-30B-A3B_config.json", "x", 579, "128x1.8B", "qwen3moe", false, true},
	} {
		t.Run(c.config, func(t *testing.T) {
			config, err := os.ReadFile(shared(t, "assets", "configs", c.config))
			require.NoError(t, err)
			h, maps := convertConfig(t, config, c.name)
			require.Len(t, h.Tensors, c.tensors)
			require.Len(t, maps, c.tensors)
			label, err := h.KV.String("general.size_label")
			require.NoError(t, err)
			require.Equal(t, c.label, label)
			architecture, err := h.Architecture()
			require.NoError(t, err)
			require.Equal(t, c.architecture, architecture)
			_, freqs := h.Find(nameRopeFreqs)
			require.Equal(t, c.freqs, freqs)
			_, output := h.Find(nameHead)
			require.Equal(t, c.output, output)
			p, err := Plan(h, PlanOptions{Name: "m.gguf", MaxBytes: 5_000_000_000})
			require.NoError(t, err)
			for _, f := range p.Files {
				require.LessOrEqual(t, f.Size-int64(len(f.Header)), int64(5_000_000_000))
			}
			checkPlan(t, h, maps)
		})
	}
}

// checkPlan reads the header back and compares it with what was planned.
func checkPlan(t *testing.T, h *Header, maps []TensorMap) {
	t.Helper()
	for i := range maps {
		require.Equal(t, h.Tensors[i], maps[i].Tensor)
		if maps[i].Data == nil {
			require.Len(t, maps[i].Sources, int(maps[i].NE[2]))
		}
		if maps[i].RotaryQK > 0 {
			require.Zero(t, maps[i].NE[max(maps[i].Dims-1, 0)]%int64(2*maps[i].RotaryQK))
		}
	}
}

// llamaConfig is a small Llama with every optional part.
const llamaConfig = `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 4,
	"num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 32, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "attention_bias": true,
	"mlp_bias": true, "rope_theta": 10000.0, "torch_dtype": "float16", %s}`

func TestRopeScalingKeys(t *testing.T) {
	for scaling, want := range map[string]map[string]string{
		`"rope_scaling": null`:                                           {},
		`"rope_scaling": {"type": "linear", "factor": 2.0}`:              {"type": "linear", "factor": "2"},
		`"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}`:        {},
		`"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}`: {},
		`"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 16, "attention_factor": 1.5}`: {
			"type": "yarn", "factor": "4", "original_context_length": "16", "yarn_beta_fast": "16", "yarn_attn_factor": "1.5"},
		`"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "attn_factor": 0.5, "beta_slow": 2}`: {
			"type": "yarn", "factor": "4", "original_context_length": "16", "yarn_beta_slow": "2", "yarn_attn_factor": "0.5"},
	} {
		h, _ := convertConfig(t, []byte(fmt.Sprintf(llamaConfig, scaling)), "x")
		got := map[string]string{}
		for key, v := range h.KV.All() {
			const prefix = "llama.rope.scaling."
			if len(key) > len(prefix) && key[:len(prefix)] == prefix {
				got[key[len(prefix):]] = v.Format(1)
			}
		}
		require.Equal(t, want, got, scaling)
	}
}

func TestBiasesAndVocabularyExceptions(t *testing.T) {
	h, maps := convertConfig(t, []byte(fmt.Sprintf(llamaConfig, `"rope_scaling": null`)), "x")
	for _, c := range []struct {
		name  string
		heads int
		typ   Type
	}{
		{"blk.1.attn_q.weight", 4, BF16}, {"blk.1.attn_q.bias", 4, F32}, {"blk.1.attn_k.weight", 2, BF16}, {"blk.1.attn_k.bias", 2, F32},
		{"blk.1.attn_v.bias", 0, F32}, {"blk.1.attn_output.bias", 0, F32}, {"blk.0.ffn_down.bias", 0, F32}, {"blk.0.ffn_up.weight", 0, BF16},
	} {
		found := false
		for i := range maps {
			if maps[i].Name == c.name {
				found = true
				require.Equal(t, c.heads, maps[i].RotaryQK, c.name)
				require.Equal(t, c.typ, maps[i].Type, c.name)
			}
		}
		require.True(t, found, c.name)
	}
	require.False(t, h.KV.Has("tokenizer.ggml.prefix_token_id"))

	w := &writer{kv: &Metadata{}, model: &arch.Model{Vocab: 32016}}
	w.vocabularyExceptions()
	require.Equal(t, 4, w.kv.Len(), "CodeLlama's infilling tokens")
	w = &writer{kv: &Metadata{}, model: &arch.Model{Vocab: 49152}}
	w.kv.Set("tokenizer.ggml.add_bos_token", Bool(true))
	w.vocabularyExceptions()
	b, err := w.kv.Bool("tokenizer.ggml.add_bos_token")
	require.NoError(t, err)
	require.False(t, b, "Granite's code models")
}

// A tokenizer with more tokens than the embedding has rows belongs to another model.
func TestTokenizerMustFit(t *testing.T) {
	m, infos, err := arch.Implied([]byte(fmt.Sprintf(llamaConfig, `"rope_scaling": null`)))
	require.NoError(t, err)
	_, _, err = FromHF(m, shapes(infos), ConvertOptions{Type: F16, Config: []byte(`{"intermediate_size": 24}`), Tokenizer: words(33)})
	require.ErrorContains(t, err, "33 tokens")
}
