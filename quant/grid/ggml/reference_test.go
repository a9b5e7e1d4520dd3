package ggml

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// referenceModels are the models whose quantized tensors are recorded; permuted ones have the rows of q and k interleaved by
// the converter, head by head.
var referenceModels = []struct {
	name  string
	heads map[string]int
}{
	{"golm-llama", map[string]int{"attn_q": 8, "attn_k": 4}},
	{"golm-llama-outlier", map[string]int{"attn_q": 8, "attn_k": 4}},
	{"golm-qwen2", nil},
	{"golm-qwen3moe", nil},
}

// TestReferenceTensors encodes whole tensors as every type and compares their hashes with what llama-quantize wrote, without
// and with its importance matrix: one small layer of one model by default, all of four models with QUANTIZE_LONG=1.
func TestReferenceTensors(t *testing.T) {
	for i, m := range referenceModels {
		if i > 0 && !long() {
			break
		}
		t.Run(m.name, func(t *testing.T) {
			var quantized struct {
				Ne       map[string][]int
				Variants map[string]map[string]json.RawMessage
			}
			readJSON(t, shared(t, "golden/llamacpp/quantize-"+m.name+".json"), &quantized)
			importance := readImportance(t, shared(t, "golden/llamacpp/imatrix-sums-"+m.name+".json"))
			model := openTensors(t, shared(t, "models/"+m.name+"/model.safetensors"))
			for name, variants := range quantized.Variants {
				ne := quantized.Ne[name]
				if len(ne) < 2 || !long() && name != "blk.1.attn_k.weight" {
					continue
				}
				x := ggufWeights(t, model, m.heads, name, ne)
				if x == nil {
					continue
				}
				for typ, raw := range variants {
					compareVariant(t, name, typ, raw, x, ne, importance[name])
				}
			}
		})
	}
}

// compareVariant checks one type of one tensor; raw is its hash, or hashes without and with importance.
func compareVariant(t *testing.T, name, typ string, raw json.RawMessage, x []float32, ne []int, importance [][]float32) {
	t.Helper()
	ty, ok := ByName(typ)
	require.True(t, ok, typ)
	var both struct{ Plain, Imatrix string }
	if json.Unmarshal(raw, &both.Plain) != nil {
		require.NoError(t, json.Unmarshal(raw, &both))
	}
	for _, c := range []struct {
		want string
		im   [][]float32
	}{{both.Plain, nil}, {both.Imatrix, importance}} {
		if c.want == "" || ty.NeedsImatrix && c.im == nil {
			continue
		}
		h := sha256.New()
		matrix := ne[0] * ne[1] // an expert
		for i := 0; i*matrix < len(x); i++ {
			var im []float32
			if c.im != nil {
				im = c.im[i]
			}
			h.Write(encode(t, ty, x[i*matrix:(i+1)*matrix], ne[1], ne[0], im))
		}
		require.Equal(t, c.want, hex.EncodeToString(h.Sum(nil)), "%s %s importance %v", name, typ, c.im != nil)
	}
}

// readImportance returns the importance of every column of every matrix of a tensor: mean squares of its inputs.
func readImportance(t *testing.T, path string) map[string][][]float32 {
	t.Helper()
	var sums map[string]struct {
		Counts []float32
		InSum2 json.RawMessage `json:"in_sum2"` // numbers, lists of numbers, or "as TENSOR"
	}
	readJSON(t, path, &sums)
	all := map[string][][]float32{}
	for name, s := range sums {
		if s.InSum2 == nil {
			continue
		}
		raw := s.InSum2
		var as string
		if json.Unmarshal(raw, &as) == nil {
			raw = sums[strings.TrimPrefix(as, "as ")].InSum2
		}
		var experts [][]float32
		if json.Unmarshal(raw, &experts) != nil {
			experts = make([][]float32, 1)
			require.NoError(t, json.Unmarshal(raw, &experts[0]), name)
		}
		for e := range experts {
			for i := range experts[e] {
				experts[e][i] /= s.Counts[e]
			}
		}
		all[name] = experts
	}
	return all
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, into), filepath.Base(path))
}

// ggufWeights reads a tensor by its GGUF name, experts stacked; nil for tensors that are never quantized.
func ggufWeights(t *testing.T, model *tensors, heads map[string]int, name string, ne []int) (x []float32) {
	t.Helper()
	parts := map[string]string{"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
		"attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
		"ffn_gate_exps": "mlp.experts.%d.gate_proj", "ffn_up_exps": "mlp.experts.%d.up_proj", "ffn_down_exps": "mlp.experts.%d.down_proj"}
	switch name {
	case "output.weight":
		return model.floats(t, "lm_head.weight")
	case "token_embd.weight":
		return model.floats(t, "model.embed_tokens.weight")
	}
	part := strings.Split(name, ".")
	hf := parts[part[2]]
	if hf == "" {
		return nil
	}
	if len(ne) == 3 {
		for e := range ne[2] {
			x = append(x, model.floats(t, fmt.Sprintf("model.layers.%s."+hf+".weight", part[1], e))...)
		}
		return x
	}
	x = model.floats(t, fmt.Sprintf("model.layers.%s.%s.weight", part[1], hf))
	if heads[part[2]] == 0 {
		return x
	}
	y := make([]float32, len(x))
	k, rows := ne[0], ne[1]
	dim := rows / heads[part[2]]
	for r := range rows {
		h, i := r/dim, r%dim
		to := h*dim + 2*(i%(dim/2)) + i/(dim/2)
		copy(y[to*k:(to+1)*k], x[r*k:(r+1)*k])
	}
	return y
}
