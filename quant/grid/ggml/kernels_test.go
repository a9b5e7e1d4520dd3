package ggml

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/internal/kernel"
)

// eachKernelSet runs f for every set of vector kernels that this processor can run.
func eachKernelSet(t *testing.T, f func(t *testing.T, k *kernels)) {
	ran := false
	for _, name := range kernel.Available() {
		if k := kernelSets[name]; k != nil {
			ran = true
			t.Run(name, func(t *testing.T) { f(t, k) })
		}
	}
	if !ran {
		t.Skip("no vector kernels here")
	}
}

// strangeRows returns rows of n weights of many shapes: what the searches branch on.
func strangeRows(seed uint64, n int) [][]float32 {
	r := rand.New(rand.NewPCG(seed, 99))
	row := func(f func(i int) float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(f(i))
		}
		return x
	}
	return [][]float32{
		row(func(int) float64 { return r.NormFloat64() * 0.02 }),
		row(func(int) float64 { return math.Pow(r.NormFloat64(), 5) }),
		row(func(i int) float64 { return r.NormFloat64() * math.Pow(10, float64(i/16%22-16)) }),
		row(func(i int) float64 { return r.NormFloat64() * math.Pow(2, float64(i/32%50)-60) }),
		row(func(i int) float64 { return r.NormFloat64() * float64(i/32%2) }),
		row(func(i int) float64 { return math.Abs(r.NormFloat64()) * float64(1-i/128%2*2) }),
		row(func(int) float64 { return float64(r.IntN(3)-1) * 0.25 }),
		row(func(int) float64 { return math.Round(r.NormFloat64()*4) / 8 }),
		row(func(i int) float64 { return float64(i/32) - 3.5 }),
		row(func(int) float64 { return r.NormFloat64() * 1e-14 }),
		row(func(int) float64 { return r.NormFloat64() * 2e-15 }),
		row(func(int) float64 { return float64(r.IntN(9)-4) * 0x1p-50 }),
		row(func(int) float64 { return float64(r.IntN(17)-8) * 0.125 }),
		row(func(int) float64 { return r.NormFloat64() * 1e-38 }),
		row(func(int) float64 { return r.NormFloat64() * 1e-44 }),
		row(func(i int) float64 {
			if r.IntN(40) == 0 {
				return r.NormFloat64() * 1e4
			}
			return math.Copysign(0, r.NormFloat64())
		}),
		row(func(int) float64 { return 0 }),
	}
}

// strangeImportance returns importance vectors for n columns; the first is nil.
func strangeImportance(seed uint64, n int) [][]float32 {
	r := rand.New(rand.NewPCG(seed, 98))
	all := [][]float32{nil}
	for _, f := range []func(i int) float64{
		func(int) float64 { return r.ExpFloat64() },
		func(int) float64 { return math.Pow(10, 6*r.NormFloat64()) },
		func(int) float64 { return float64(r.IntN(2)) },
		func(i int) float64 { return float64(i / 32 % 2) },
		func(int) float64 { return float64(r.IntN(30) / 29) },
		func(int) float64 { return math.Pow(10, 30*r.Float64()-10) },
	} {
		im := make([]float32, n)
		for i := range im {
			im[i] = float32(f(i))
		}
		all = append(all, im)
	}
	return all
}

// TestKernelsAgree encodes with vector and with portable code: any number of rows, any shape of weights.
func TestKernelsAgree(t *testing.T) {
	const k = 512
	seeds := uint64(1)
	if long() {
		seeds = 30
	}
	eachKernelSet(t, func(t *testing.T, set *kernels) {
		for _, ty := range Types() {
			if !ty.CanEncode() || ty.Elems == 1 {
				continue
			}
			for seed := range seeds {
				var x []float32
				for _, row := range strangeRows(seed, k) {
					x = append(x, row...)
				}
				for n, im := range strangeImportance(seed, k) {
					if im == nil && ty.NeedsImatrix || im != nil && !ty.UsesImatrix {
						continue
					}
					compareEncoders(t, ty, set, x, k, im, fmt.Sprintf("%s seed %d importance %d", ty.Name, seed, n))
				}
			}
		}
	})
}

// compareEncoders encodes rows of k weights with a kernel set and with portable code. A row that overflows must do so in
// both.
func compareEncoders(t *testing.T, ty *Type, set *kernels, x []float32, k int, im []float32, what string) {
	t.Helper()
	rows := len(x) / k
	size, err := ty.RowBytes(k)
	require.NoError(t, err)
	got, want := make([]byte, rows*int(size)), make([]byte, rows*int(size))
	errGot, errWant := ty.encodeWith(set, got, x, rows, k, im), ty.encodeWith(nil, want, x, rows, k, im)
	require.Equal(t, errWant, errGot, what)
	if errWant != nil {
		require.ErrorContains(t, errWant, "its scale overflows", what) // found after encoding: the bytes can be compared
	}
	for r := range rows {
		from, to := r*int(size), (r+1)*int(size)
		if !bytes.Equal(want[from:to], got[from:to]) {
			t.Fatalf("%s row %d: portable code writes %x, kernels %x", what, r, want[from:to], got[from:to])
		}
	}
}

// TestFitSubKernels compares the vector form of FitSub with the portable searches.
func TestFitSubKernels(t *testing.T) {
	eachKernelSet(t, func(t *testing.T, set *kernels) {
		eachScalar(t, func(t *testing.T, _ *Type, s *Scalar) {
			if !s.search.vector() {
				t.Skip("no kernel")
			}
			for _, x := range strangeRows(5, lanes*s.Sub) {
				w, _ := gaussian(6, len(x))
				for i := range w {
					w[i] *= w[i]
				}
				n := len(x) / s.Sub
				got, want := make([]float32, 2*n), make([]float32, 2*n)
				s.fitSubPlanes(newCoder(set), got[:n], got[n:], 0, x, w)
				for j := range n { // one at a time: portable
					s.FitSub(want[j:j+1], want[n+j:n+j+1], x[j*s.Sub:(j+1)*s.Sub], w[j*s.Sub:(j+1)*s.Sub])
				}
				require.Equal(t, want, got)
			}
		})
	})
}

// TestKernelsAnyShape encodes matrices of odd sizes.
func TestKernelsAnyShape(t *testing.T) {
	eachKernelSet(t, func(t *testing.T, set *kernels) {
		for _, ty := range Types() {
			if !ty.CanEncode() || ty.Elems == 1 {
				continue
			}
			for _, shape := range [][2]int{{1, 1}, {1, 3}, {3, 1}, {7, 5}, {17, 1}, {33, 2}} {
				rows, k := shape[0], shape[1]*ty.Elems
				x, im := gaussian(uint64(rows), rows*k)
				if !ty.NeedsImatrix {
					compareEncoders(t, ty, set, x, k, nil, fmt.Sprint(ty.Name, shape))
				}
				if ty.UsesImatrix {
					compareEncoders(t, ty, set, x, k, im[:k], fmt.Sprint(ty.Name, shape, "importance"))
				}
			}
		}
	})
}

// TestPackKernels packs random codes of many blocks with kernels and one by one with the portable code.
func TestPackKernels(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	eachKernelSet(t, func(t *testing.T, set *kernels) {
		packed := 0
		eachScalar(t, func(t *testing.T, ty *Type, s *Scalar) {
			pack := set.pack[ty.Name]
			if pack == nil {
				t.Skip("no kernel")
			}
			packed++
			const blocks = 5
			codes := make([]uint8, blocks*s.Span)
			for i := range codes {
				codes[i] = uint8(r.IntN(len(s.Levels)))
			}
			p := Params{D: 0.5, DMin: 0.25}
			for j := range s.SubBlocks() {
				p.Scale[j], p.Min[j] = s.ScaleMin+int16(r.IntN(int(s.ScaleMax-s.ScaleMin)+1)), int16(r.IntN(int(s.MinMax)+1))
			}
			got, want := make([]byte, blocks*ty.Bytes), make([]byte, blocks*ty.Bytes)
			pack(&got[0], &codes[0], blocks)
			for b := range blocks {
				s.head(got[b*ty.Bytes:(b+1)*ty.Bytes], &p)
				s.Pack(want[b*ty.Bytes:(b+1)*ty.Bytes], &p, codes[b*s.Span:(b+1)*s.Span])
			}
			require.Equal(t, want, got)
		})
		require.Equal(t, len(set.pack), packed, "a kernel of no type")
	})
}

// TestKernelNames looks for kernels that no type would find.
func TestKernelNames(t *testing.T) {
	eachKernelSet(t, func(t *testing.T, set *kernels) {
		for name, f := range set.decode {
			_, ok := ByName(name)
			require.True(t, ok && f != nil, name)
		}
		for name, f := range unpackers {
			ty, ok := ByName(name)
			require.True(t, ok && f != nil && ty.Elems == superBlock, name)
		}
	})
}
