package grid

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/kernel"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 11)) }

func normal(r *rand.Rand, n int) []float32 {
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(r.NormFloat64()) * 0.02
	}
	return w
}

func newInt(t *testing.T, s packing.Scheme, in int, o IntOptions) *Int {
	t.Helper()
	s.Grid = "int"
	g, err := NewInt(s, in, o)
	require.NoError(t, err)
	return g
}

func nearest(t *testing.T, w []float32, out, in int, g Grid, importance []float32) *packing.Linear {
	t.Helper()
	l, err := RoundNearest(context.Background(), kernel.NewPool(3), w, out, in, g, importance)
	require.NoError(t, err)
	return l
}

// The rules written out one weight at a time, in float64 but for the stored scale.
func TestRoundNearestFollowsTheRules(t *testing.T) {
	w := normal(newRand(1), 40*96)
	for _, bits := range []int{2, 3, 4, 8} {
		for _, sym := range []bool{true, false} {
			for _, store := range []tensor.DType{tensor.F16, tensor.BF16, tensor.F32} {
				g := newInt(t, packing.Scheme{Bits: bits, GroupSize: 32, Sym: sym, ScaleType: store}, 96, IntOptions{})
				l := nearest(t, w, 40, 96, g, nil)
				top := float64(int(1)<<bits - 1)
				for n := range 40 {
					for j := range 3 {
						lo, hi := 0.0, 0.0
						for _, v := range w[n*96+32*j : n*96+32*j+32] {
							lo, hi = min(lo, float64(v)), max(hi, float64(v))
						}
						if sym {
							hi = max(hi, -lo)
							lo = -hi
						}
						scale := float64(packing.RoundTo(store, float32(hi-lo)/float32(top)))
						zero := math.RoundToEven(-lo / scale)
						if sym {
							zero = (top + 1) / 2
						}
						require.Equal(t, scale, float64(l.Scales[n*3+j]))
						for k := 32 * j; k < 32*j+32; k++ {
							want := min(max(math.RoundToEven(float64(w[n*96+k]/float32(scale)))+zero, 0), top)
							require.Equal(t, uint8(want), l.Codes[n*96+k], "%d bits sym %v row %d column %d", bits, sym, n, k)
						}
						if !sym {
							require.Equal(t, zero, float64(l.Zeros[n*3+j]))
						}
					}
				}
			}
		}
	}
}

func TestAWQRange(t *testing.T) {
	g := newInt(t, packing.Scheme{Bits: 4, GroupSize: 4}, 4, IntOptions{Range: RangeAWQ})
	l := nearest(t, []float32{1, 1.5, 2, 2.5}, 1, 4, g, nil) // 0 is not in the range: everything above 15 steps clips
	require.Equal(t, packing.RoundTo(tensor.F16, 1.5/15), l.Scales[0])
	require.Equal(t, []float32{0}, l.Zeros)
	require.Equal(t, []uint8{10, 15, 15, 15}, l.Codes)
	g = newInt(t, packing.Scheme{Bits: 4, GroupSize: 4, Sym: true}, 4, IntOptions{Range: RangeAWQ})
	l = nearest(t, []float32{-7, 3, 0, 7}, 1, 4, g, nil)
	require.Equal(t, float32(1), l.Scales[0])
	require.Equal(t, []uint8{1, 11, 8, 15}, l.Codes)
}

// Groups of zeros, of tiny and of huge weights get scales that exist in the stored type, and no code leaves its field.
func TestScaleGuards(t *testing.T) {
	for _, tt := range []struct {
		name  string
		w     float32
		store tensor.DType
		scale float32
	}{
		{"zeros", 0, tensor.F16, 1},
		{"below the smallest half", 1e-12, tensor.F16, 0x1p-24},
		{"above the largest half", 1e9, tensor.F16, 65504},
		{"largest float in bfloat16", math.MaxFloat32, tensor.BF16, 0},
		{"smallest float in bfloat16", math.SmallestNonzeroFloat32, tensor.BF16, 0x1p-126},
		{"subnormal half kept", 1e-5, tensor.F16, 0},
	} {
		for _, sym := range []bool{true, false} {
			for _, search := range []bool{true, false} {
				g := newInt(t, packing.Scheme{Bits: 4, GroupSize: 4, Sym: sym, ScaleType: tt.store}, 4, IntOptions{Search: search, Positive: true})
				l := nearest(t, []float32{tt.w, 0, -tt.w, tt.w / 2}, 1, 4, g, nil)
				s := l.Scales[0]
				require.Positive(t, s, tt.name)
				require.Equal(t, packing.RoundTo(tt.store, s), s, tt.name)
				require.False(t, math.IsInf(float64(s), 0), tt.name)
				if tt.scale != 0 && !search {
					require.Equal(t, tt.scale, s, tt.name)
				}
				for _, q := range l.Codes {
					require.LessOrEqual(t, q, uint8(15))
				}
				if tt.w == 0 {
					require.Equal(t, []uint8{8, 8, 8, 8}, l.Codes)
				}
			}
		}
	}
}

// A zero point below MinZero, which version 1 of GPTQ cannot store, is never chosen.
func TestMinZero(t *testing.T) {
	w := []float32{1, 2, 3, 4} // positive: the natural zero point is 0
	g := newInt(t, packing.Scheme{Bits: 4, GroupSize: 4}, 4, IntOptions{MinZero: 1})
	require.Equal(t, []float32{1}, nearest(t, w, 1, 4, g, nil).Zeros)
	g = newInt(t, packing.Scheme{Bits: 4, GroupSize: 4}, 4, IntOptions{})
	require.Equal(t, []float32{0}, nearest(t, w, 1, 4, g, nil).Zeros)
}

func weighted(t *testing.T, w []float32, l *packing.Linear, importance []float32) float64 {
	t.Helper()
	q := make([]float32, len(w))
	require.NoError(t, l.Dequantize(q, 0, l.Out))
	sum := 0.0
	for i, v := range w {
		d := float64(v) - float64(q[i])
		im := 1.0
		if importance != nil {
			im = float64(importance[i%l.In])
		}
		sum += im * d * d
	}
	return sum
}

// Searching never loses against the full range, group by group, and a free sign never against a positive scale.
func TestSearchImproves(t *testing.T) {
	r := newRand(2)
	w := normal(r, 64*128)
	importance := make([]float32, 128)
	for i := range importance {
		importance[i] = float32(math.Exp(2 * r.NormFloat64()))
	}
	for _, bits := range []int{2, 3, 4, 8} {
		for _, sym := range []bool{true, false} {
			s := packing.Scheme{Bits: bits, GroupSize: 64, Sym: sym}
			full := weighted(t, w, nearest(t, w, 64, 128, newInt(t, s, 128, IntOptions{}), importance), importance)
			positive := weighted(t, w, nearest(t, w, 64, 128, newInt(t, s, 128, IntOptions{Search: true, Positive: true}), importance), importance)
			either := weighted(t, w, nearest(t, w, 64, 128, newInt(t, s, 128, IntOptions{Search: true}), importance), importance)
			require.Less(t, positive, full)
			require.LessOrEqual(t, either, positive*1.0001)
			t.Logf("%d bits sym %v: full 1, search %.3f, either sign %.3f", bits, sym, positive/full, either/full)
		}
	}
}

func TestProposalsAreLegal(t *testing.T) {
	r := newRand(3)
	const rows, cols = 20, 32
	w := NewTile(rows, cols)
	copy(w.Data, normal(r, rows*cols))
	for _, s := range []packing.Scheme{{Bits: 2, GroupSize: 32, Sym: true}, {Bits: 4, GroupSize: 32}} {
		s.ScaleType = tensor.F16
		g := newInt(t, s, cols, IntOptions{Search: true, MinZero: 1})
		p, out := make(Params, 2*rows), make(Params, 2*rows)
		g.Fit(p, w, nil)
		count := 0
		for next := g.Propose(0, w, nil); next(out, p); {
			if count == 0 {
				require.Equal(t, p, out, "the first proposal is the fit itself")
			}
			for i := range rows {
				require.NotZero(t, out[i])
				require.Equal(t, packing.RoundTo(tensor.F16, out[i]), out[i])
				z := out[rows+i]
				require.True(t, z >= 1 && z < float32(int(1)<<s.Bits) && z == float32(int(z)))
			}
			count++
		}
		require.Greater(t, count, 15)
	}
}

// Round gives the member of the grid that is nearest, which Decode reproduces from the code.
func TestRoundIsNearest(t *testing.T) {
	g := newInt(t, packing.Scheme{Bits: 3, GroupSize: 8, ScaleType: tensor.F32}, 8, IntOptions{})
	r := newRand(4)
	const rows = 50
	p := make(Params, 2*rows)
	x, y, back, codes := make([]float32, rows), make([]float32, rows), make([]float32, rows), make([]uint8, rows)
	for i := range rows {
		p[i], p[rows+i], x[i] = float32(r.NormFloat64()), float32(r.IntN(8)), float32(3*r.NormFloat64())
	}
	g.Round(p, 0, x, y, codes)
	g.Decode(p, 0, codes, back)
	require.Equal(t, y, back)
	for i := range rows {
		for q := range 8 {
			other := p[i] * (float32(q) - p[rows+i])
			require.LessOrEqual(t, math.Abs(float64(x[i]-y[i])), math.Abs(float64(x[i]-other))+1e-6)
		}
	}
}

func TestNotFinite(t *testing.T) {
	w := make([]float32, 64)
	w[40] = float32(math.NaN())
	w[41] = float32(math.Inf(1))
	g := newInt(t, packing.Scheme{Bits: 4, GroupSize: 32}, 32, IntOptions{})
	_, err := RoundNearest(context.Background(), nil, w, 2, 32, g, nil)
	require.ErrorIs(t, err, safeio.ErrCorrupt)
	require.ErrorContains(t, err, "2 weights are not finite, the first at row 1, column 8")
}

func TestMeanImportance(t *testing.T) {
	require.Equal(t, []float32{0.5, 1.5}, MeanImportance([]float64{1e300, 3e300}))
	for _, bad := range [][]float64{{0, 0}, {1, -1}, {1, math.NaN()}, {1, math.Inf(1)}} {
		require.Nil(t, MeanImportance(bad))
	}
}

func TestNewIntRefuses(t *testing.T) {
	for _, s := range []packing.Scheme{{Grid: "nf4", Bits: 4, GroupSize: 32}, {Grid: "int", Bits: 9, GroupSize: 32}, {Grid: "int", Bits: 4}, {Grid: "int", Bits: 4, GroupSize: -2}} {
		_, err := NewInt(s, 32, IntOptions{})
		require.ErrorIs(t, err, safeio.ErrUnsupported)
	}
	_, err := NewInt(packing.Scheme{Grid: "int", Bits: 2, GroupSize: 32}, 32, IntOptions{MinZero: 4})
	require.Error(t, err)
}

// Any group size works, a short last group included, and threads change nothing.
func TestRaggedGroupsAndThreads(t *testing.T) {
	w := normal(newRand(5), 300*70)
	for _, size := range []int{-1, 1, 7, 32, 64, 500} {
		g := newInt(t, packing.Scheme{Bits: 4, GroupSize: size, Sym: true}, 70, IntOptions{Search: true})
		one, err := RoundNearest(context.Background(), nil, w, 300, 70, g, nil)
		require.NoError(t, err)
		for _, threads := range []int{2, 7} {
			many, err := RoundNearest(context.Background(), kernel.NewPool(threads), w, 300, 70, g, nil)
			require.NoError(t, err)
			require.Equal(t, one, many)
		}
		require.Less(t, weighted(t, w, one, nil), 0.05*300*70*0.0004)
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := RoundNearest(canceled, nil, w, 300, 70, newInt(t, packing.Scheme{Bits: 4, GroupSize: 35}, 70, IntOptions{}), nil)
	require.ErrorIs(t, err, context.Canceled)
}
