package quant

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/internal/testmodel"
)

// problem is a random matrix with the second moments of correlated, uneven inputs.
func problem(rows, cols int, kind uint64) ([]float32, *Stats) {
	ids := testmodel.IDs(rows*cols+4*cols*cols, 1<<20, kind)
	unit := func(i int) float64 { return float64(ids[i])/(1<<19) - 1 }
	w := make([]float32, rows*cols)
	for i := range w {
		w[i] = float32(unit(i) * unit((i*7)%len(w)) * 0.1)
	}
	st := &Stats{K: cols, Tokens: int64(4 * cols), Gram: make([]float64, cols*cols)}
	x := make([]float64, cols)
	for tok := range 4 * cols {
		common := unit(len(w) + tok)
		for k := range x {
			x[k] = unit(len(w)+tok*cols+k) + 0.5*common
			if k%13 == 0 {
				x[k] *= 8
			}
		}
		for i := range x {
			for j := range x {
				st.Gram[i*cols+j] += x[i] * x[j] / float64(4*cols)
			}
		}
	}
	return w, st
}

// outputErrors is δ·E[x xᵀ]·δᵀ per row and group, in float64.
func outputErrors(w []float32, l *packing.Linear, st *Stats) []float64 {
	values, err := decode(l)
	if err != nil {
		panic(err)
	}
	group := groupSpan(l.Scheme, l.In)
	var errs []float64
	for n := range l.Out {
		for c0 := 0; c0 < l.In; c0 += group {
			var sum float64
			for i := c0; i < min(c0+group, l.In); i++ {
				for k := c0; k < min(c0+group, l.In); k++ {
					di, dk := float64(values[n*l.In+i]-w[n*l.In+i]), float64(values[n*l.In+k]-w[n*l.In+k])
					sum += di * dk * st.Gram[i*st.K+k]
				}
			}
			errs = append(errs, sum)
		}
	}
	return errs
}

func matrixOf(w []float32, rows, cols int, s packing.Scheme, minZero int) *Matrix {
	return &Matrix{Linear: &arch.Linear{Name: "m", Out: rows, In: cols, Expert: -1}, Scheme: s, W: w, MinZero: minZero}
}

// The searched ranges are, group by group, never worse than the full range, on average far better, and everything is
// what the layout stores: codes and zero points in range, scales exact in their type.
func TestSearchedRanges(t *testing.T) {
	const rows, cols = 24, 64
	for kind, s := range []packing.Scheme{
		{Grid: "int", Bits: 4, GroupSize: 32}, {Grid: "int", Bits: 4, GroupSize: 32, Sym: true}, {Grid: "int", Bits: 2, GroupSize: 16},
		{Grid: "int", Bits: 3, GroupSize: -1, Sym: true}, {Grid: "int", Bits: 8, GroupSize: -1}, {Grid: "int", Bits: 4, GroupSize: 64, ScaleType: tensor.BF16},
	} {
		for _, minZero := range []int{0, 1} {
			w, st := problem(rows, cols, uint64(kind))
			m := matrixOf(w, rows, cols, s, minZero)
			plain, err := Nearest{}.Round(context.Background(), m, nil)
			require.NoError(t, err)
			got, err := Nearest{Search: true}.Round(context.Background(), m, st)
			require.NoError(t, err)
			stored := s.ScaleType
			if stored == tensor.Invalid {
				stored = tensor.F16
			}
			top := float32(int(1)<<s.Bits - 1)
			for _, v := range got.Scales {
				require.True(t, v > 0 && packing.RoundTo(stored, v) == v, v)
			}
			require.Equal(t, s.Sym, got.Zeros == nil)
			for _, z := range got.Zeros {
				require.True(t, z >= float32(minZero) && z <= top && z == float32(int(z)), z)
			}
			for _, q := range got.Codes {
				require.LessOrEqual(t, float32(q), top)
			}
			a, b := outputErrors(w, got, st), outputErrors(w, plain, st)
			var sumA, sumB float64
			for i := range a {
				require.LessOrEqual(t, a[i], b[i]*(1+1e-4)+1e-12, "group %d of %+v", i, s)
				sumA, sumB = sumA+a[i], sumB+b[i]
			}
			if s.Bits < 8 {
				require.Less(t, sumA, 0.9*sumB, "%+v", s)
			}
		}
	}
}

// On groups small enough to try every range and scale, the search comes close to the best there is.
func TestSearchedRangesAgainstBruteForce(t *testing.T) {
	const rows, cols = 16, 8
	s := packing.Scheme{Grid: "int", Bits: 3, GroupSize: 8}
	w, st := problem(rows, cols, 77)
	got, err := Nearest{Search: true}.Round(context.Background(), matrixOf(w, rows, cols, s, 0), st)
	require.NoError(t, err)
	found := outputErrors(w, got, st)
	var sum, best float64
	for n := range rows {
		row := w[n*cols : (n+1)*cols]
		least := math.Inf(1)
		lo, hi := rangeOf(row)
		for z := range 8 {
			for i := range 400 {
				scale := packing.RoundTo(tensor.F16, (hi-lo)/7*float32(0.3+0.003*float64(i)))
				l := &packing.Linear{Scheme: s, Out: 1, In: cols, Codes: make([]uint8, cols), Scales: []float32{scale}, Zeros: []float32{float32(z)}}
				for k, v := range row {
					l.Codes[k] = uint8(min(max(math.RoundToEven(float64(v/scale))+float64(z), 0), 7))
				}
				least = min(least, outputErrors(row, l, st)[0])
			}
		}
		sum, best = sum+found[n], best+least
	}
	t.Logf("search %.6g, every range and scale %.6g: ratio %.3f", sum, best, sum/best)
	require.Less(t, sum, 1.35*best)
}

// Rounding to even by pushing the fraction out of the mantissa is math.RoundToEven for all that codes can be.
func TestRoundEven(t *testing.T) {
	for _, x := range []float32{0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997, 255.5, 254.5, -255.49998, 1 << 21, 4194303.5, 5e6, -5e6, 1e30} {
		want := math.RoundToEven(float64(x))
		if math.Abs(float64(x)) > 1<<22 {
			want = float64(x)
		}
		require.EqualValues(t, want, roundEven(x), "%v", x)
	}
	for i := range 100_000 {
		x := float32(i-50_000) * 0.01234
		require.EqualValues(t, math.RoundToEven(float64(x)), roundEven(x))
	}
}

// The loss that methods are compared by is δ·E[x xᵀ]·δᵀ, summed over rows.
func TestOutputError(t *testing.T) {
	st := &Stats{K: 2, Tokens: 1, Gram: []float64{4, 1, 1, 9}}
	delta := kernel.MatF32(2, 2, []float32{1, 0, 1, -2})
	require.InDelta(t, 4+36, st.OutputError(nil, delta, make([]float32, 4)), 1e-9)
	st.Divide([]float32{2, 1})
	require.Equal(t, []float64{1, 0.5, 0.5, 9}, st.Gram)
	require.InDelta(t, 1+35, st.OutputError(nil, delta, make([]float32, 4)), 1e-9)
}
