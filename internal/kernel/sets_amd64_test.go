//go:build !noasm

package kernel

import (
	"math"
	"math/bits"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// An instruction that rounded, ordered or flushed differently would be found out.
func TestSameWords(t *testing.T) {
	if !slices.Contains(Available(), "avx512") {
		t.Skip("no AVX-512 here")
	}
	real := &setAVX512.bf16
	require.True(t, sameWords(real, real))
	whole := real.tiles[real.mr-1]
	with := func(f tileFunc[float32]) *kernels[float32] {
		ks := *real
		ks.tiles = slices.Clone(ks.tiles)
		ks.tiles[ks.mr-1] = f
		return &ks
	}
	// each tile in Go, with another step
	slow := func(step func(acc float32, a, b uint32) float32) *kernels[float32] {
		return with(func(k int, a, b, c *float32, ldc int, _ bool) {
			pa, pb, pc := unsafe.Slice(a, k*real.aStride), unsafe.Slice(b, k*real.nr), unsafe.Slice(c, real.mr*ldc)
			for i := range pc {
				pc[i] = 0
				for p := range k {
					pc[i] = step(pc[i], math.Float32bits(pa[p*real.aStride+i/ldc]), math.Float32bits(pb[p*real.nr+i%ldc]))
				}
			}
		})
	}
	require.True(t, sameWords(real, slow(dotPair)))
	for name, step := range map[string]func(acc float32, a, b uint32) float32{
		"lower half first": func(acc float32, a, b uint32) float32 {
			return dotPair(acc, bits.RotateLeft32(a, 16), bits.RotateLeft32(b, 16))
		},
		"products added first": func(acc float32, a, b uint32) float32 { return acc + dotPair(0, a, b) },
		"denormal results kept": func(acc float32, a, b uint32) float32 {
			return fma32(lowerBF16(a), lowerBF16(b), fma32(upperBF16(a), upperBF16(b), acc))
		},
		"rounded once": func(acc float32, a, b uint32) float32 {
			return float32(float64(upperBF16(a))*float64(upperBF16(b)) + float64(lowerBF16(a))*float64(lowerBF16(b)) + float64(acc))
		},
	} {
		require.False(t, sameWords(real, slow(step)), name)
	}
	require.False(t, sameWords(real, with(func(k int, a, b, c *float32, ldc int, add bool) {
		whole(k, a, b, c, ldc, add)
		unsafe.Slice(c, real.mr*ldc)[real.mr*ldc-1]++
	})), "one element")
}
