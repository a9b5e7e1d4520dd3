package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llmquant/quantize/formats/tensor"
)

// shapes is a Source without data.
type shapes struct {
	list  []tensor.Info
	index map[string]int
}

func (s *shapes) add(name string, dims ...int) {
	info := tensor.Info{Name: name, DType: tensor.BF16}
	for _, d := range dims {
		info.Shape = append(info.Shape, int64(d))
	}
	if s.index == nil {
		s.index = map[string]int{}
	}
	s.index[name] = len(s.list)
	s.list = append(s.list, info)
}

func (s *shapes) drop(name string) *shapes {
	c := &shapes{}
	for _, info := range s.list {
		if info.Name != name {
			c.add(info.Name)
			c.list[len(c.list)-1] = info
		}
	}
	return c
}

func (s *shapes) Tensors() []tensor.Info { return s.list }

func (s *shapes) Lookup(name string) (tensor.Info, bool) {
	i, ok := s.index[name]
	if !ok {
		return tensor.Info{}, false
	}
	return s.list[i], true
}

func (s *shapes) ReadTensor(string, []byte, int64) error { return errors.New("no data") }

// settings is a config.json under construction.
type settings map[string]any

// with returns a copy with some keys replaced; a value of nil is JSON null, the value absent removes the key.
func (s settings) with(pairs ...any) settings {
	c := maps.Clone(s)
	for i := 0; i < len(pairs); i += 2 {
		c[pairs[i].(string)] = pairs[i+1]
		if pairs[i+1] == absent {
			delete(c, pairs[i].(string))
		}
	}
	return c
}

var absent = new(int)

func (s settings) text() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return b
}

func (s settings) int(key string, def int) int {
	switch v := s[key].(type) {
	case int:
		return v
	case float64:
		return int(v)
	}
	return def
}

func (s settings) yes(key string) bool { b, _ := s[key].(bool); return b }

// tensors lists what a checkpoint of these settings contains, by rules written independently of the package.
func (s settings) tensors() *shapes {
	t := &shapes{}
	hidden, vocab, heads := s.int("hidden_size", 0), s.int("vocab_size", 0), s.int("num_attention_heads", 0)
	kv := s.int("num_key_value_heads", heads)
	dim := s.int("head_dim", hidden/max(heads, 1))
	inter := s.int("intermediate_size", 0)
	qwen2, qwen3 := s["model_type"] == "qwen2", s["model_type"] == "qwen3" || s["model_type"] == "qwen3_moe"
	experts := s.int("num_experts", s.int("num_local_experts", 0))
	step := s.int("decoder_sparse_step", 1)
	dense := fmt.Sprint(s["mlp_only_layers"])
	linear := func(name string, out, in int, bias bool) {
		t.add(name+".weight", out, in)
		if bias {
			t.add(name+".bias", out)
		}
	}
	t.add("model.embed_tokens.weight", vocab, hidden)
	for l := range s.int("num_hidden_layers", 0) {
		p := fmt.Sprintf("model.layers.%d.", l)
		ab := s.yes("attention_bias")
		linear(p+"self_attn.q_proj", heads*dim, hidden, ab || qwen2)
		linear(p+"self_attn.k_proj", kv*dim, hidden, ab || qwen2)
		linear(p+"self_attn.v_proj", kv*dim, hidden, ab || qwen2)
		linear(p+"self_attn.o_proj", hidden, heads*dim, ab)
		if qwen3 {
			t.add(p+"self_attn.q_norm.weight", dim)
			t.add(p+"self_attn.k_norm.weight", dim)
		}
		t.add(p+"input_layernorm.weight", hidden)
		t.add(p+"post_attention_layernorm.weight", hidden)
		if experts > 0 && (l+1)%step == 0 && dense != fmt.Sprintf("[%d]", l) {
			linear(p+"mlp.gate", experts, hidden, false)
			width := s.int("moe_intermediate_size", 768)
			for e := range experts {
				x := fmt.Sprintf("%smlp.experts.%d.", p, e)
				linear(x+"gate_proj", width, hidden, false)
				linear(x+"up_proj", width, hidden, false)
				linear(x+"down_proj", hidden, width, false)
			}
			continue
		}
		mb := s.yes("mlp_bias")
		linear(p+"mlp.gate_proj", inter, hidden, mb)
		linear(p+"mlp.up_proj", inter, hidden, mb)
		linear(p+"mlp.down_proj", hidden, inter, mb)
	}
	t.add("model.norm.weight", hidden)
	if !s.yes("tie_word_embeddings") {
		t.add("lm_head.weight", vocab, hidden)
	}
	return t
}

// tiny returns small valid settings of a family.
func tiny(f Family) settings {
	s := settings{
		"architectures": []string{f.Architectures[0]}, "model_type": f.Name,
		"hidden_size": 24, "intermediate_size": 40, "vocab_size": 50, "num_hidden_layers": 3,
		"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 128,
		"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false, "rope_theta": 10000.0,
		"torch_dtype": "bfloat16",
	}
	if f.experts != nil {
		return s.with("num_experts", 4, "num_experts_per_tok", 2, "moe_intermediate_size", 16, "decoder_sparse_step", 1, "norm_topk_prob", true)
	}
	return s
}

// sharedDir finds a directory beside the repository, or skips the test.
func sharedDir(t testing.TB, parts ...string) string {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if filepath.Dir(root) == root {
			t.Fatal("no go.mod above the package")
		}
		root = filepath.Dir(root)
	}
	dir := filepath.Join(append([]string{filepath.Dir(root), "shared"}, parts...)...)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("%s is not here; it is not part of the repository", filepath.Join(slices.Insert(parts, 0, "shared")...))
	}
	return dir
}
