package ggml

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// requireSameFloats compares bit for bit; one NaN is as good as another.
func requireSameFloats(t *testing.T, want, got []float32, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) && !(want[i] != want[i] && got[i] != got[i]) {
			t.Fatalf("%s: weight %d: portable code decodes %v (%#x), kernels %v (%#x)", what, i, want[i], math.Float32bits(want[i]),
				got[i], math.Float32bits(got[i]))
		}
	}
}

// TestDecodeKernels decodes arbitrary bytes, scales that are not finite included, with vector and with portable code: any
// number of blocks, at any address, and not a weight beyond the last.
func TestDecodeKernels(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	eachKernelSet(t, func(t *testing.T, set *kernels) {
		for _, ty := range Types() {
			for _, blocks := range []int{0, 1, 2, 3, 5, 16, 67, 300} {
				src := make([]byte, blocks*ty.Bytes+3)[3:]
				for i := range src {
					src[i] = byte(r.Uint32())
				}
				want := make([]float32, blocks*ty.Elems)
				ty.decodeWith(nil, want, src)
				const canary = 12345
				got := make([]float32, len(want)+ty.Elems)
				for i := range got {
					got[i] = canary
				}
				ty.decodeWith(set, got[:len(want)], src)
				what := fmt.Sprintf("%s, %d blocks", ty.Name, blocks)
				requireSameFloats(t, want, got[:len(want)], what)
				for _, v := range got[len(want):] {
					require.EqualValues(t, canary, v, what)
				}
			}
		}
	})
}

// TestDecodeKernelsEveryByte puts every value into every byte of a block of zeros and of ones.
func TestDecodeKernelsEveryByte(t *testing.T) {
	eachKernelSet(t, func(t *testing.T, set *kernels) {
		for _, ty := range Types() {
			src := make([]byte, 2*256*ty.Bytes)
			want, got := make([]float32, 2*256*ty.Elems), make([]float32, 2*256*ty.Elems)
			step := 1
			if !long() {
				step = 5 // shares no factor with the sizes of fields and groups
			}
			for at := 0; at < ty.Bytes; at += step {
				for b := range 2 * 256 {
					block := src[b*ty.Bytes : (b+1)*ty.Bytes]
					for i := range block {
						block[i] = byte(b >> 8 * 0xff)
						if b >= 256 && i%2 == 1 { // a finite fp16
							block[i] = 0x3a
						}
					}
					block[at] = byte(b)
				}
				ty.decodeWith(nil, want, src)
				ty.decodeWith(set, got, src)
				requireSameFloats(t, want, got, fmt.Sprintf("%s, byte %d", ty.Name, at))
			}
		}
	})
}

// TestDecodeRows decodes rows one by one and all at once.
func TestDecodeRows(t *testing.T) {
	const rows, k = 3, 512
	x, im := gaussian(3, rows*k)
	for _, ty := range Types() {
		if !ty.CanEncode() {
			continue
		}
		src := encode(t, ty, x, rows, k, im[:k])
		size := len(src) / rows
		all, row := make([]float32, rows*k), make([]float32, k)
		ty.DecodeRow(all, src)
		for r := range rows {
			ty.DecodeRow(row, src[r*size:(r+1)*size])
			requireSameFloats(t, row, all[r*k:(r+1)*k], ty.Name)
		}
	}
}
