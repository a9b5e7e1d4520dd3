package gptq

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid"
	"github.com/llmquant/quantize/quant/grid/ggml"
)

// Error feedback and refinement into ggml blocks: far below what the reference's importance-weighted search reaches with
// the same statistics, in bytes that the type's own decoder reads, the same at any thread count.
func TestBlockTypes(t *testing.T) {
	const out, k = 16, 256
	r := newRand(50)
	x := inputs(r, 600, k)
	st := &Stats{K: k, H: gram(x, x, k)}
	im := make([]float32, k)
	for i := range im {
		im[i] = float32(st.H[i*k+i])
	}
	w := gaussian(r, out*k, 0.02)
	for _, name := range []string{"Q2_K", "Q3_K", "Q4_K", "Q6_K", "Q4_0", "Q5_1", "Q8_0", "IQ4_NL", "IQ4_XS", "MXFP4"} {
		typ, ok := ggml.ByName(name)
		require.True(t, ok)
		g, err := grid.NewBlock(typ, k)
		require.NoError(t, err)
		l, rep := solve(t, w, out, st, g, Best())
		require.Equal(t, name, l.Grid)
		got := decodeRows(typ, l.Blocks, out, k)
		row, err := typ.RowBytes(k)
		require.NoError(t, err)
		reference := make([]byte, int(row)*out)
		require.NoError(t, typ.EncodeRows(reference, w, out, k, im))
		ratio := quadratic(w, got, st.H, k) / quadratic(w, decodeRows(typ, reference, out, k), st.H, k)
		t.Logf("%s: %.3f of the reference's error", name, ratio)
		require.Less(t, ratio, 0.5, name)
		require.Less(t, rep.Loss, rep.NearestLoss)

		again, _, err := Solve(context.Background(), kernel.NewPool(1), Problem{w, out, st, g}, Best())
		require.NoError(t, err)
		require.Equal(t, l, again, name)
	}
}

func decodeRows(typ *ggml.Type, blocks []byte, out, k int) []float32 {
	q, row := make([]float32, out*k), len(blocks)/out
	for n := range out {
		typ.DecodeRow(q[n*k:(n+1)*k], blocks[n*row:(n+1)*row])
	}
	return q
}
