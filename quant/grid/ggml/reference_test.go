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

// TestReferenceTensors encodes whole tensors of the golm-llama model as every type and compares their hashes with what
// llama-quantize wrote, without and with its importance matrix. One small layer by default, all with QUANTIZE_LONG=1.
func TestReferenceTensors(t *testing.T) {
	var quantized struct {
		Ne       map[string][]int
		Variants map[string]map[string]json.RawMessage
	}
	readJSON(t, shared(t, "golden/llamacpp/quantize-golm-llama.json"), &quantized)
	var sums map[string]struct {
		Counts []float32
		InSum2 json.RawMessage `json:"in_sum2"` // numbers, or "as TENSOR"
	}
	readJSON(t, shared(t, "golden/llamacpp/imatrix-sums-golm-llama.json"), &sums)
	model := openTensors(t, filepath.Join(root(t), "testdata", "golm-llama", "model.safetensors"))

	for name, variants := range quantized.Variants {
		ne := quantized.Ne[name]
		if len(ne) != 2 || !long() && name != "blk.1.attn_k.weight" {
			continue
		}
		k, rows := ne[0], ne[1]
		x := ggufWeights(t, model, name, rows, k)
		var im []float32
		if s, ok := sums[name]; ok {
			im = make([]float32, k)
			var as string
			if json.Unmarshal(s.InSum2, &as) == nil {
				s = sums[strings.TrimPrefix(as, "as ")]
			}
			require.NoError(t, json.Unmarshal(s.InSum2, &im))
			for i := range im {
				im[i] /= s.Counts[0]
			}
		}
		for typ, raw := range variants {
			ty, ok := ByName(typ)
			require.True(t, ok, typ)
			var same string
			var both struct{ Plain, Imatrix string }
			if json.Unmarshal(raw, &same) != nil {
				require.NoError(t, json.Unmarshal(raw, &both))
			}
			check := func(want string, im []float32) {
				if want == "" || ty.NeedsImatrix && im == nil {
					return
				}
				sum := sha256.Sum256(encode(t, ty, x, rows, k, im))
				require.Equal(t, want, hex.EncodeToString(sum[:]), "%s %s importance %v", name, typ, im != nil)
			}
			if same != "" {
				check(same, nil)
				continue
			}
			check(both.Plain, nil)
			check(both.Imatrix, im)
		}
	}
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, into))
}

// ggufWeights reads a tensor by its GGUF name, with the rows of q and k interleaved as the converter does for Llama.
func ggufWeights(t *testing.T, model *tensors, name string, rows, k int) []float32 {
	t.Helper()
	heads := map[string]int{"attn_q": 8, "attn_k": 4}
	rename := map[string]string{"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
		"attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
	hf := map[string]string{"output.weight": "lm_head.weight", "token_embd.weight": "model.embed_tokens.weight"}[name]
	part := strings.Split(name, ".")
	if hf == "" {
		hf = fmt.Sprintf("model.layers.%s.%s.weight", part[1], rename[part[2]])
	}
	x := model.floats(t, hf)
	require.Len(t, x, rows*k, hf)
	if len(part) < 3 || heads[part[2]] == 0 {
		return x
	}
	y := make([]float32, len(x))
	dim := rows / heads[part[2]]
	for r := range rows {
		h, i := r/dim, r%dim
		to := h*dim + 2*(i%(dim/2)) + i/(dim/2)
		copy(y[to*k:(to+1)*k], x[r*k:(r+1)*k])
	}
	return y
}
