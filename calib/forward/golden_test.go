package forward

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safetensors"
	"github.com/llmquant/quantize/internal/kernel"
)

// closeEnough is the largest relative L2 distance from Transformers' float32 that counts as equal. Correct float32
// implementations are 1e-6 apart.
const closeEnough = 1e-5

var golmModels = []string{"golm-llama", "golm-llama-outlier", "golm-qwen3moe", "golm-qwen2"}

// TestGoldenStates compares hidden states, linear inputs, router decisions and logits with Transformers: one window of
// 256 tokens, and two of 64.
func TestGoldenStates(t *testing.T) {
	for _, name := range golmModels {
		t.Run(name, func(t *testing.T) {
			ref := openTensors(t, shared(t, "golden", "transformers", name+".safetensors"))
			src, m := openModel(t, shared(t, "models", name))
			head, err := LoadHead(src, m, LoadOptions{})
			require.NoError(t, err)
			ids := golmIDs(t, 384)
			pool := kernel.NewPool(2)
			worst := 0.0
			check := func(got kernel.Mat, name string) {
				if _, ok := ref.Lookup(name); !ok {
					return
				}
				d := distance(got, tensorF32(t, ref, name))
				require.Less(t, d, closeEnough, name)
				worst = max(worst, d)
			}
			inputs := []string{arch.AttnIn: "self_attn.q_proj", arch.OIn: "self_attn.o_proj", arch.MLPIn: "mlp.gate_proj", arch.DownIn: "mlp.down_proj"}

			long := NewRunner(m, pool, 1, 256)
			tap := func(layer int) Tap {
				return func(s Sample) {
					if s.Expert < 0 {
						check(rows(s.X, 192, 256), fmt.Sprintf("long.input.layer.%d.%s", layer, inputs[s.Kind]))
					}
				}
			}
			hidden := runAll(t, long, src, m, ids[:256], tap, func(layer int, h kernel.Mat) {
				check(rows(h, 192, 256), fmt.Sprintf("long.hidden.layer.%d", layer))
				if m.Blocks[layer].MoE != nil {
					checkRouting(t, long, ref, fmt.Sprintf("long.router.%%s.layer.%d", layer))
				}
			})
			check(rows(long.normed(hidden, head.Norm), 192, 256), "long.hidden.norm")
			logits := kernel.MatF32(32, m.Vocab, make([]float32, 32*m.Vocab))
			long.Logits(head, logits, rows(hidden, 224, 256))
			check(logits, "long.logits")

			batch := NewRunner(m, pool, 2, 64)
			last16 := func(h kernel.Mat) kernel.Mat { // of both windows
				g := newHidden(m, 32)
				for i := range 16 {
					copy(g.Row(i), h.Row(48+i))
					copy(g.Row(16+i), h.Row(112+i))
				}
				return g
			}
			hidden = runAll(t, batch, src, m, ids[256:], nil, func(layer int, h kernel.Mat) {
				check(last16(h), fmt.Sprintf("batch.hidden.layer.%d", layer))
			})
			batch.Logits(head, logits, last16(hidden))
			check(logits, "batch.logits")
			t.Logf("largest relative distance %.2g", worst)
		})
	}
}

// checkRouting compares the router decisions that are left in the runner's scratch after a block.
func checkRouting(t *testing.T, r *Runner, f *safetensors.File, pattern string) {
	require.Equal(t, tensorI32(t, f, fmt.Sprintf(pattern, "topk")), r.experts.chosen)
	want := tensorF32(t, f, fmt.Sprintf(pattern, "weights"))
	got := kernel.MatF32(want.Rows, want.Cols, r.experts.weights)
	require.Less(t, distance(got, want), closeEnough)
}

// TestCrossEntropy scores the evaluation ids by the standard protocol: windows of 512, every token but the first is a
// target. It takes minutes, so only QUANTIZE_LONG=1 runs it.
func TestCrossEntropy(t *testing.T) {
	if os.Getenv("QUANTIZE_LONG") == "" {
		t.Skip("set QUANTIZE_LONG=1")
	}
	want := map[string]float64{"golm-llama": 2.409431, "golm-llama-outlier": 2.409428, "golm-qwen3moe": 2.775626, "golm-qwen2": 3.338415}
	for _, name := range golmModels {
		t.Run(name, func(t *testing.T) {
			src, m := openModel(t, shared(t, "models", name))
			head, err := LoadHead(src, m, LoadOptions{})
			require.NoError(t, err)
			ids := golmIDs(t, 50000)
			r := NewRunner(m, kernel.NewPool(2), 98, 512)
			hidden := runAll(t, r, src, m, ids, nil, nil)
			scores, err := r.Loss(context.Background(), head, rows(hidden, 0, len(ids)-1), ids[1:])
			require.NoError(t, err)
			sum := 0.0
			for _, s := range scores {
				sum += s.NLL
			}
			ce := sum / float64(len(scores))
			t.Logf("cross-entropy %.6f, Transformers %.6f", ce, want[name])
			require.InDelta(t, want[name], ce, 1e-5)
		})
	}
}
