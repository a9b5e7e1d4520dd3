// Package testmodel writes small synthetic checkpoints for tests. Every weight comes from a counter keyed by the
// tensor's name, so a model has the same bytes on every machine, and tests can keep hashes of what is made from it.
//
// The models are random, but shaped like trained ones where it matters: one channel of the residual stream is large and
// positive for every token, and norm weights are uneven, so that activation-aware methods have something to gain.
package testmodel

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/llmquant/quantize/formats/safetensors"
	"github.com/llmquant/quantize/formats/tensor"
)

// Config is the shape of a model. The presets are small enough that a whole calibrated run takes well under a second.
type Config struct {
	Architecture, ModelType string // as config.json spells them
	Layers, Hidden, Inter   int
	Heads, KVHeads, HeadDim int
	Vocab, Context          int
	Experts, TopK           int  // mixture of experts with experts of Inter channels; 0: a dense MLP
	Bias                    bool // q, k and v have biases
	QKNorm                  bool // per-head norms of q and k
	Tied                    bool
	DType                   tensor.DType
	Extra                   map[string]any // further keys of config.json
	MaxShard                int64          // bytes per file; 0: one file
	// Patch may change the values of a tensor before they are rounded to DType; nil leaves all as they are.
	Patch func(name string, values []float32)
}

// Llama is a dense model with grouped-query attention and an untied head.
func Llama() Config {
	return Config{Architecture: "LlamaForCausalLM", ModelType: "llama", Layers: 2, Hidden: 64, Inter: 128, Heads: 4, KVHeads: 2,
		HeadDim: 16, Vocab: 128, Context: 64, DType: tensor.BF16}
}

// Qwen2 has biases on q, k and v, as many key heads as query heads, and a tied head.
func Qwen2() Config {
	c := Llama()
	c.Architecture, c.ModelType, c.Bias, c.Tied, c.KVHeads, c.DType = "Qwen2ForCausalLM", "qwen2", true, true, 4, tensor.F16
	return c
}

// Qwen3MoE is a mixture of four experts, of which every token takes two. The last expert of every layer is never taken.
func Qwen3MoE() Config {
	c := Llama()
	c.Architecture, c.ModelType, c.QKNorm, c.Experts, c.TopK, c.Inter = "Qwen3MoeForCausalLM", "qwen3_moe", true, 4, 2, 64
	return c
}

// Write makes dir and writes config.json and the weights into it.
func (c Config) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	config, err := json.MarshalIndent(c.json(), "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), append(config, '\n'), 0o644); err != nil {
		return err
	}
	plan, index, err := safetensors.Plan(c.Tensors(), c.MaxShard, nil)
	if err != nil {
		return err
	}
	if index != nil {
		if err := os.WriteFile(filepath.Join(dir, safetensors.IndexName), index, 0o644); err != nil {
			return err
		}
	}
	files := make([][]byte, len(plan.Files))
	for i, f := range plan.Files {
		files[i] = make([]byte, f.Size)
		copy(files[i], f.Header)
	}
	infos := map[string]tensor.Info{}
	for _, t := range c.Tensors() {
		infos[t.Name] = t
	}
	for _, t := range plan.Tensors {
		info := infos[t.Name]
		if err := tensor.FromFloat32(files[t.File][t.Offset:t.Offset+t.Bytes], info.DType, c.Values(info)); err != nil {
			return err
		}
	}
	for i, f := range plan.Files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), files[i], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// json is the model's config.json.
func (c Config) json() map[string]any {
	m := map[string]any{
		"architectures": []string{c.Architecture}, "model_type": c.ModelType, "hidden_act": "silu",
		"hidden_size": c.Hidden, "intermediate_size": c.Inter, "num_hidden_layers": c.Layers,
		"num_attention_heads": c.Heads, "num_key_value_heads": c.KVHeads, "head_dim": c.HeadDim,
		"vocab_size": c.Vocab, "max_position_embeddings": c.Context, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
		"tie_word_embeddings": c.Tied, "torch_dtype": map[tensor.DType]string{tensor.BF16: "bfloat16", tensor.F16: "float16", tensor.F32: "float32"}[c.DType],
	}
	if c.Experts > 0 {
		m["num_experts"], m["num_experts_per_tok"], m["moe_intermediate_size"], m["norm_topk_prob"] = c.Experts, c.TopK, c.Inter, true
	}
	for k, v := range c.Extra {
		m[k] = v
	}
	return m
}

// Tensors lists the model's tensors in forward order.
func (c Config) Tensors() []tensor.Info {
	var all []tensor.Info
	add := func(name string, dims ...int64) {
		all = append(all, tensor.Info{Name: name, DType: c.DType, Shape: dims})
	}
	h, q, kv, inter := int64(c.Hidden), int64(c.Heads*c.HeadDim), int64(c.KVHeads*c.HeadDim), int64(c.Inter)
	add("model.embed_tokens.weight", int64(c.Vocab), h)
	for l := range c.Layers {
		p := fmt.Sprintf("model.layers.%d.", l)
		add(p+"input_layernorm.weight", h)
		for _, lin := range []struct {
			name string
			out  int64
		}{{"q_proj", q}, {"k_proj", kv}, {"v_proj", kv}} {
			add(p+"self_attn."+lin.name+".weight", lin.out, h)
			if c.Bias {
				add(p+"self_attn."+lin.name+".bias", lin.out)
			}
		}
		if c.QKNorm {
			add(p+"self_attn.q_norm.weight", int64(c.HeadDim))
			add(p+"self_attn.k_norm.weight", int64(c.HeadDim))
		}
		add(p+"self_attn.o_proj.weight", h, q)
		add(p+"post_attention_layernorm.weight", h)
		if c.Experts > 0 {
			add(p+"mlp.gate.weight", int64(c.Experts), h)
		}
		for e := range max(c.Experts, 1) {
			mlp := p + "mlp."
			if c.Experts > 0 {
				mlp = fmt.Sprintf("%smlp.experts.%d.", p, e)
			}
			add(mlp+"gate_proj.weight", inter, h)
			add(mlp+"up_proj.weight", inter, h)
			add(mlp+"down_proj.weight", h, inter)
		}
	}
	add("model.norm.weight", h)
	if !c.Tied {
		add("lm_head.weight", int64(c.Vocab), h)
	}
	return all
}

// Values are the numbers of a tensor before they are rounded to the stored type.
func (c Config) Values(t tensor.Info) []float32 {
	n, _ := t.Elements()
	values := make([]float32, n)
	key := fnv.New64a()
	key.Write([]byte(t.Name))
	rng := counter{key: key.Sum64()}
	for i := range values {
		x := rng.normal()
		switch {
		case len(t.Shape) == 2:
			values[i] = float32(x / math.Sqrt(float64(t.Shape[1])))
		case strings.HasSuffix(t.Name, ".bias"):
			values[i] = float32(0.1 * x)
		default: // a norm
			values[i] = float32(max(0.2, 1+float64(0.45*x)))
		}
	}
	switch {
	case strings.HasSuffix(t.Name, ".embed_tokens.weight"):
		for i := range values {
			values[i] *= 8
			if i%c.Hidden == 0 { // the large channel
				values[i] = 6 + values[i]/8
			}
		}
	case strings.HasSuffix(t.Name, ".mlp.gate.weight"):
		for i := range c.Experts {
			values[i*c.Hidden] = 0
		}
		values[(c.Experts-1)*c.Hidden] = -40
	}
	if c.Patch != nil {
		c.Patch(t.Name, values)
	}
	return values
}

// IDs are n token ids below vocab, of a kind: 0, 1, … give different texts.
func IDs(n, vocab int, kind uint64) []int32 {
	rng := counter{key: 0x1d5 + kind}
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(rng.next() % uint64(vocab))
	}
	return ids
}

// counter is SplitMix64 over a counter.
type counter struct{ key, n uint64 }

func (c *counter) next() uint64 {
	c.n++
	z := c.key + c.n*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// normal is the sum of twelve uniform numbers less six: close enough to a standard normal, and exact everywhere.
func (c *counter) normal() float64 {
	sum := -6.0
	for range 12 {
		sum += float64(c.next()>>11) / (1 << 53)
	}
	return sum
}
