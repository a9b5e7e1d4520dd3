package forward

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/internal/kernel"
)

// A half of a block from the inputs of its last linear has the bits of the half from its start, in both arithmetics.
func TestForwardFrom(t *testing.T) {
	for _, dir := range familyDirs(t) {
		src, m := openModel(t, dir)
		for _, bf16 := range []bool{false, true} {
			r := NewRunner(m, kernel.NewPool(2), 70, 16)
			if bf16 {
				r.UseBF16()
			}
			for layer := range m.Blocks {
				b, err := Load(src, m, layer, LoadOptions{})
				require.NoError(t, err)
				whole, last := randomHidden(m, 70*16, uint64(layer)), newHidden(m, 70*16)
				for _, kind := range []arch.InputKind{arch.OIn, arch.DownIn} {
					half := r.ForwardAttn
					if kind == arch.DownIn {
						half = r.ForwardMLP
						if b.Arch.MoE != nil {
							continue
						}
					}
					before := clone(whole)
					copy(last.F32, whole.F32)
					var inputs []float32
					var width int
					ctx := context.Background()
					require.NoError(t, half(ctx, b, whole, func(in Sample) {
						if in.Kind == kind {
							width = in.X.Cols
							for i := range in.X.Rows {
								inputs = append(inputs, in.X.Row(i)...)
							}
						}
					}))
					require.NoError(t, r.ForwardFrom(ctx, b, kind, last, kernel.MatF32(70*16, width, inputs)))
					require.Equal(t, whole.F32, last.F32, "%s layer %d %v bf16 %v", dir, layer, kind, bf16)
					if bf16 && width%2 == 0 {
						kept := kernel.MatU16(kernel.BF16, 70*16, width, make([]uint16, len(inputs)))
						kernel.NarrowRows(nil, kept, kernel.MatF32(70*16, width, inputs))
						copy(last.F32, before.F32)
						require.NoError(t, r.ForwardFrom(ctx, b, kind, last, kept))
						require.Equal(t, whole.F32, last.F32)
					}
				}
			}
		}
	}
}

// Products in bfloat16 change a block's output by little more than their rounding, some 2⁻⁸, the same
// at any number of threads; weights may be stored in any type.
func TestForwardInBF16(t *testing.T) {
	for _, dir := range familyDirs(t) {
		src, m := openModel(t, dir)
		for layer := range m.Blocks {
			b, err := Load(src, m, layer, LoadOptions{})
			require.NoError(t, err)
			input := randomHidden(m, 48, uint64(layer))
			exact, want := clone(input), clone(input)
			run := func(h kernel.Mat, threads int, bf16 bool) {
				r := NewRunner(m, kernel.NewPool(threads), 3, 16)
				if bf16 {
					r.UseBF16()
				}
				require.NoError(t, r.Forward(context.Background(), b, h, nil))
			}
			run(exact, 1, false)
			run(want, 1, true)
			require.NotEqual(t, exact.F32, want.F32)
			require.Less(t, distance(want, exact), 5e-2, dir)
			threaded := clone(input)
			run(threaded, 3, true)
			require.Equal(t, want.F32, threaded.F32)
			for _, l := range b.Linears() { // already rounded weights, as they are after quantization
				n := kernel.MatU16(kernel.BF16, l.W.Rows, l.W.Cols, make([]uint16, l.W.Rows*l.W.Cols))
				kernel.NarrowRows(nil, n, l.W)
				l.W = n
			}
			narrow := clone(input)
			run(narrow, 2, true)
			require.Equal(t, want.F32, narrow.F32)
		}
	}
}

// Sums over tokens in bfloat16 lie within its rounding of the exact ones, an odd number of tokens included.
func TestProductsInBF16(t *testing.T) {
	x := kernel.MatF32(7, 3, []float32{1, 2, 3, -1, 0.5, 4, 2, 2, 2, 0, 1, 0, 1, 1, 1, 5, -3, 0.25, 1, 0, 2})
	y := kernel.MatF32(7, 2, []float32{1, 0, 2, 1, 0, 1, 3, -1, 1, 1, 0, 2, 1, 1})
	for _, bf16 := range []bool{false, true} { // these numbers are exact in both
		p := Products{Pool: kernel.NewPool(2), BF16: bf16}
		gram, narrow, cross := make([]float64, 9), make([]float32, 9), make([]float32, 6)
		p.Gram(gram, 3, x)
		p.Gram32(kernel.MatF32(3, 3, narrow), x)
		p.Cross(kernel.MatF32(3, 2, cross), x, y)
		for i := range 3 {
			for j := range 3 {
				var want float32
				for k := range 7 {
					want += x.Row(k)[i] * x.Row(k)[j]
				}
				require.Equal(t, want, narrow[i*3+j])
				if j <= i {
					require.Equal(t, float64(want), gram[i*3+j])
				}
			}
			for j := range 2 {
				var want float32
				for k := range 7 {
					want += x.Row(k)[i] * y.Row(k)[j]
				}
				require.Equal(t, want, cross[i*2+j])
			}
		}
	}
}
