package gptq

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
	"github.com/llmquant/quantize/quant/grid"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 13)) }

func gaussian(r *rand.Rand, n int, scale float64) []float32 {
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(scale * r.NormFloat64())
	}
	return w
}

// inputs makes tokens×k correlated activations, row-major.
func inputs(r *rand.Rand, tokens, k int) []float64 {
	x := make([]float64, tokens*k)
	for t := range tokens {
		carry := 0.0
		for c := range k {
			carry = 0.7*carry + r.NormFloat64()
			x[t*k+c] = carry * (1 + 3*float64(c%7)/7)
		}
	}
	return x
}

// gram returns aᵀb/tokens for row-major a, b of k columns.
func gram(a, b []float64, k int) []float64 {
	tokens := len(a) / k
	h := make([]float64, k*k)
	for t := range tokens {
		for i := range k {
			for j := range k {
				h[i*k+j] += a[t*k+i] * b[t*k+j]
			}
		}
	}
	for i := range h {
		h[i] /= float64(tokens)
	}
	return h
}

func scheme(bits, group int, sym bool) packing.Scheme {
	return packing.Scheme{Grid: "int", Bits: bits, GroupSize: group, Sym: sym, ScaleType: tensor.F16}
}

func intGrid(t *testing.T, s packing.Scheme, k int, o grid.IntOptions) *grid.Int {
	t.Helper()
	g, err := grid.NewInt(s, k, o)
	require.NoError(t, err)
	return g
}

func solve(t *testing.T, w []float32, out int, st *Stats, g grid.Grid, o Options) (*packing.Linear, Report) {
	t.Helper()
	l, rep, err := Solve(context.Background(), kernel.NewPool(3), Problem{W: w, Out: out, Stats: st, Grid: g}, o)
	require.NoError(t, err)
	return l, rep
}

func dense(t *testing.T, l *packing.Linear) []float32 {
	t.Helper()
	q := make([]float32, l.Out*l.In)
	require.NoError(t, l.Dequantize(q, 0, l.Out))
	return q
}

// quadratic returns Σ rows of (w−q)·h·(w−q)ᵀ in float64.
func quadratic(w, q []float32, h []float64, k int) float64 {
	sum := 0.0
	for n := 0; n < len(w); n += k {
		for i := range k {
			di := float64(w[n+i]) - float64(q[n+i])
			for j := range k {
				sum += di * h[i*k+j] * (float64(w[n+j]) - float64(q[n+j]))
			}
		}
	}
	return sum
}

// With H = c·I no column can make up for another: every mode gives plain rounding, and refinement finds nothing to do
// when the parameters are the search's own.
func TestIdentityHessianIsPlainRounding(t *testing.T) {
	const out, k = 40, 96
	w := gaussian(newRand(1), out*k, 0.02)
	st := &Stats{K: k, H: make([]float64, k*k)}
	for i := range k {
		st.H[i*k+i] = 7.5
	}
	for _, order := range []Order{Natural, GroupAware, ActOrder} {
		for _, damp := range []float64{0, 0.01, 0.5} {
			for _, sym := range []bool{true, false} {
				g := intGrid(t, scheme(4, 32, sym), k, grid.IntOptions{})
				o := Reference(damp, order)
				o.Guard = true // compares
				l, rep := solve(t, w, out, st, g, o)
				want, err := grid.RoundNearest(context.Background(), nil, w, out, k, g, nil)
				require.NoError(t, err)
				require.Equal(t, want, l)
				require.InEpsilon(t, rep.NearestLoss, rep.Loss, 1e-9)
			}
		}
	}
}

// K = 2, H = [[2,1],[1,2]]: rounding column 0 with error δ = w0 − q0 moves column 1 by δ·H01/H11 = δ/2.
func TestTwoColumns(t *testing.T) {
	st := &Stats{K: 2, H: []float64{2, 1, 1, 2}}
	g := intGrid(t, packing.Scheme{Grid: "int", Bits: 4, GroupSize: -1, ScaleType: tensor.F32}, 2, grid.IntOptions{})
	// Range −1 … 14 gives scale 1 and zero point 1; a third column would be needed to pin the range, so use the ends.
	for _, w0 := range []float32{-1, -0.8} {
		w := []float32{w0, 14 + 1 + w0 - 0.6}
		lo, hi := min(w0, 0), w[1]
		scale := (hi - lo) / 15
		zero := float32(math.RoundToEven(float64(-lo / scale)))
		q0 := float32(math.RoundToEven(float64(w0/scale))) * scale
		q1 := min(max(float32(math.RoundToEven(float64((w[1]+(w0-q0)/2)/scale))), -zero), 15-zero) * scale
		l, _ := solve(t, w, 1, st, g, Reference(0, Natural))
		require.InDelta(t, scale, l.Scales[0], 1e-6)
		got := dense(t, l)
		require.InDelta(t, q0, got[0], 1e-5)
		require.InDelta(t, q1, got[1], 1e-5)
	}
}

// Σ (err/U_kk)² over the columns is L: the identity behind the look-ahead fit. The report's loss, computed from decoded
// values, must say the same as a direct evaluation.
func TestReportedLossIsTheQuadratic(t *testing.T) {
	const out, k, damp = 24, 64, 0.01
	r := newRand(2)
	x := inputs(r, 300, k)
	st := &Stats{K: k, H: gram(x, x, k)}
	w := gaussian(r, out*k, 0.02)
	for _, o := range []Options{Reference(damp, Natural), Best()} {
		l, rep := solve(t, w, out, st, intGrid(t, scheme(3, 32, true), k, grid.IntOptions{Search: true}), o)
		h := append([]float64(nil), st.H...)
		mean := 0.0
		for i := range k {
			mean += h[i*k+i] / k
		}
		for i := range k {
			h[i*k+i] += damp * mean
		}
		require.InEpsilon(t, quadratic(w, dense(t, l), h, k), rep.Loss, 1e-4)
	}
}

// The order of the improvements, on averages over many rows: nearest, GPTQ, searched fits, look-ahead, refinement.
func TestEachStepLowersTheLoss(t *testing.T) {
	const out, k = 128, 128
	r := newRand(3)
	x := inputs(r, 500, k)
	st := &Stats{K: k, H: gram(x, x, k)}
	w := gaussian(r, out*k, 0.02)
	for _, s := range []packing.Scheme{scheme(4, 64, true), scheme(4, 32, false), scheme(3, 64, true), scheme(2, 32, true), scheme(4, -1, true), scheme(8, 32, true)} {
		loss := func(o Options, io grid.IntOptions) float64 {
			_, rep := solve(t, w, out, st, intGrid(t, s, k, io), o)
			return rep.Loss
		}
		compared := Reference(0.01, Natural)
		compared.Guard = true
		_, nearest := solve(t, w, out, st, intGrid(t, s, k, grid.IntOptions{}), compared)
		ahead := Best()
		ahead.Passes, ahead.Restarts = 0, 0
		one := Best()
		one.Restarts = 0
		steps := []float64{
			nearest.NearestLoss, loss(Reference(0.01, Natural), grid.IntOptions{}),
			loss(Reference(0.01, Natural), grid.IntOptions{Search: true, Positive: true}),
			loss(ahead, grid.IntOptions{Search: true}), loss(one, grid.IntOptions{Search: true}), loss(Best(), grid.IntOptions{Search: true}),
		}
		t.Logf("%d bits g%d sym %v: %.3g", s.Bits, s.GroupSize, s.Sym, steps)
		for i := 1; i < len(steps); i++ {
			require.LessOrEqual(t, steps[i], steps[i-1]*1.0001, "step %d of %+v", i, s)
		}
		require.Less(t, steps[5], 0.75*steps[1])
	}
}

// Permuting the columns of W and x together leaves the losses of the orders by importance unchanged.
func TestActOrderIgnoresColumnOrder(t *testing.T) {
	const out, k = 32, 64
	r := newRand(4)
	x := inputs(r, 300, k)
	h := gram(x, x, k)
	w := gaussian(r, out*k, 0.02)
	perm := r.Perm(k)
	ph, pw := make([]float64, k*k), make([]float32, out*k)
	for i, a := range perm {
		for j, b := range perm {
			ph[i*k+j] = h[a*k+b]
		}
		for n := range out {
			pw[n*k+i] = w[n*k+a]
		}
	}
	g := intGrid(t, scheme(4, -1, true), k, grid.IntOptions{})
	for _, order := range []Order{ActOrder, GroupAware} {
		_, a := solve(t, w, out, &Stats{K: k, H: h}, g, Reference(0.01, order))
		_, b := solve(t, pw, out, &Stats{K: k, H: ph}, g, Reference(0.01, order))
		require.InEpsilon(t, a.Loss, b.Loss, 1e-6)
	}
}

func TestThreadsChangeNothing(t *testing.T) {
	const out, k = 200, 96
	r := newRand(5)
	x := inputs(r, 200, k)
	st := &Stats{K: k, H: gram(x, x, k)}
	w := gaussian(r, out*k, 0.02)
	g := intGrid(t, scheme(3, 32, false), k, grid.IntOptions{Search: true})
	var first *packing.Linear
	for _, threads := range []int{1, 2, 5, 64} { // 64 threads make tiles of another height
		l, _, err := Solve(context.Background(), kernel.NewPool(threads), Problem{w, out, st, g}, Best())
		require.NoError(t, err)
		if first == nil {
			first = l
		}
		require.Equal(t, first, l, "%d threads", threads)
	}
}

// Refinement with the same H, started from any point, never raises L and stops at a fixed point.
func TestRefineIsMonotone(t *testing.T) {
	const out, k = 48, 96
	r := newRand(6)
	x := inputs(r, 300, k)
	st := &Stats{K: k, H: gram(x, x, k)}
	o := Best()
	for _, s := range []packing.Scheme{scheme(2, 32, true), scheme(4, 32, false), scheme(3, -1, true)} {
		g := intGrid(t, s, k, grid.IntOptions{Search: true})
		p, err := Prepare(nil, st, g, o)
		require.NoError(t, err)
		goal := grid.NewTile(out, k)
		goal.Load(gaussian(r, out*k, 0.02), k, 0)
		tl := newTile(p, g, goal).nearest(goal)
		last := tl.losses(tl.q)
		for range 20 {
			p.opt.Passes = 1
			again := tl.refine()
			now := tl.losses(tl.q)
			for i := range now {
				require.LessOrEqual(t, now[i], last[i]*(1+1e-5)+1e-12)
			}
			last = now
			if again == 0 {
				break
			}
		}
		require.Zero(t, tl.refine(), "a fixed point")
		for i := range p.layout.spans { // values always are what the codes decode to
			sp := p.layout.spans[i]
			y := make([]float32, out)
			for c := sp.col0; c < sp.col1; c++ {
				g.Decode(tl.params[i], c-sp.col0, tl.col(c), y)
				require.Equal(t, y, tl.q.Col(c))
			}
		}
	}
}

// Small rows against all 4^8 code vectors with the same scale: never below the optimum, and at it more often than not.
func TestAgainstBruteForce(t *testing.T) {
	const k, rows = 6, 120
	r := newRand(7)
	g := intGrid(t, packing.Scheme{Grid: "int", Bits: 2, GroupSize: -1, Sym: true, ScaleType: tensor.F32}, k, grid.IntOptions{})
	exact := 0
	for range rows {
		x := inputs(r, 30, k)
		st := &Stats{K: k, H: gram(x, x, k)}
		w := gaussian(r, k, 1)
		o := Reference(0, Natural)
		o.Passes, o.Inner, o.Restarts = 8, 2, 1
		l, _ := solve(t, w, 1, st, g, o)
		got := quadratic(w, dense(t, l), st.H, k)
		best, q := math.Inf(1), make([]float32, k)
		for v := range 1 << (2 * k) {
			for c := range q {
				q[c] = l.Scales[0] * float32(v>>(2*c)&3-2)
			}
			best = min(best, quadratic(w, q, st.H, k))
		}
		require.GreaterOrEqual(t, got, best*(1-1e-6))
		if got <= best*(1+1e-6) {
			exact++
		}
	}
	t.Logf("optimal in %d of %d", exact, rows)
	require.Greater(t, exact, rows/2)
}

// Hessians from too few tokens, without tokens, with holes or with poison: a documented result, never a panic.
func TestDifficultHessians(t *testing.T) {
	const out, k = 16, 64
	r := newRand(8)
	w := gaussian(r, out*k, 0.02)
	g := intGrid(t, scheme(4, 32, true), k, grid.IntOptions{Search: true})
	one := inputs(r, 1, k)
	holes := inputs(r, 50, k)
	for t := range 50 {
		holes[t*k+5], holes[t*k+40] = 0, 0
	}
	scaled := func(h []float64, f float64) []float64 {
		for i := range h {
			h[i] *= f
		}
		return h
	}
	with := func(h []float64, i int, v float64) []float64 { h[i] = v; return h }
	indefinite := make([]float64, k*k)
	for i := range k {
		for j := range k {
			indefinite[i*k+j] = 3
		}
		indefinite[i*k+i] = 1
	}
	tests := []struct {
		name     string
		h        []float64
		fallback string
		dead     int
	}{
		{"one token", gram(one, one, k), "", 0},
		{"dead channels", gram(holes, holes, k), "", 2},
		{"huge units", scaled(gram(one, one, k), 1e200), "", 0},
		{"tiny units", scaled(gram(one, one, k), 1e-200), "", 0},
		{"no tokens", make([]float64, k*k), "no calibration token", k},
		{"NaN", with(gram(one, one, k), 70, math.NaN()), "NaN at channel 1", 0},
		{"Inf", with(gram(one, one, k), 3, math.Inf(1)), "Inf", 0},
		{"negative diagonal", with(gram(one, one, k), 65, -1), "negative diagonal", 0},
		{"indefinite", indefinite, "cannot be factored", 0},
	}
	for _, tt := range tests {
		l, rep := solve(t, w, out, &Stats{K: k, H: tt.h}, g, Best())
		require.Equal(t, tt.dead, rep.Dead, tt.name)
		if tt.fallback != "" {
			require.Contains(t, rep.Fallback, tt.fallback, tt.name)
			want, err := grid.RoundNearest(context.Background(), nil, w, out, k, g, nil)
			require.NoError(t, err)
			require.Equal(t, want, l, tt.name)
			continue
		}
		require.Empty(t, rep.Fallback, tt.name)
		require.LessOrEqual(t, rep.Loss, rep.NearestLoss, tt.name)
		for _, s := range l.Scales {
			require.False(t, s == 0 || s-s != 0, tt.name)
		}
		for c := range tt.dead { // dead channels hold zeros
			for n := range out {
				require.Zero(t, dense(t, l)[n*k+[]int{5, 40}[c]])
			}
		}
	}
}

// The ladder of dampings: a matrix that needs more than the first step says so.
func TestDampingLadder(t *testing.T) {
	const k = 8
	st := &Stats{K: k, H: make([]float64, k*k)}
	for i := range k {
		for j := range k {
			st.H[i*k+j] = 1.02 // slightly indefinite: off-diagonal above the diagonal
		}
		st.H[i*k+i] = 1
	}
	g := intGrid(t, scheme(4, -1, true), k, grid.IntOptions{})
	_, rep := solve(t, gaussian(newRand(9), 4*k, 1), 4, st, g, Reference(0.001, Natural))
	require.Empty(t, rep.Fallback)
	require.Greater(t, rep.Damp, 0.015)
	require.LessOrEqual(t, rep.Damp, 0.04)
}

func TestExtremeWeights(t *testing.T) {
	const out, k = 8, 64
	r := newRand(10)
	x := inputs(r, 100, k)
	st := &Stats{K: k, H: gram(x, x, k)}
	for _, scale := range []float64{1e-9, 1e-4, 1e4, 1e30} {
		w := gaussian(r, out*k, scale)
		for _, o := range []Options{Reference(0.01, Natural), Best()} {
			l, rep := solve(t, w, out, st, intGrid(t, scheme(4, 32, true), k, grid.IntOptions{Search: true}), o)
			require.False(t, math.IsNaN(rep.Loss))
			for _, s := range l.Scales {
				require.NotZero(t, s)
			}
		}
	}
	w := gaussian(r, out*k, 1)
	w[100] = float32(math.Inf(-1))
	_, _, err := Solve(context.Background(), nil, Problem{w, out, st, intGrid(t, scheme(4, 32, true), k, grid.IntOptions{})}, Best())
	require.ErrorIs(t, err, safeio.ErrCorrupt)
}

func TestWrongShapes(t *testing.T) {
	g := intGrid(t, scheme(4, 32, true), 64, grid.IntOptions{})
	for _, st := range []*Stats{{K: 64}, {K: 0}, {K: 64, H: make([]float64, 4096), D: make([]float32, 3)},
		{K: 64, H: make([]float64, 4096), Half: &Half{Weight: 2}}} {
		_, err := Prepare(nil, st, g, Best())
		require.ErrorIs(t, err, safeio.ErrCorrupt)
	}
	r := newRand(11)
	x := inputs(r, 100, 64)
	p, err := Prepare(nil, &Stats{K: 64, H: gram(x, x, 64)}, g, Best())
	require.NoError(t, err)
	_, _, err = p.Solve(context.Background(), nil, make([]float32, 63), 1, g)
	require.ErrorIs(t, err, safeio.ErrCorrupt)
	_, _, err = p.Solve(context.Background(), nil, make([]float32, 64), 1, intGrid(t, scheme(4, 16, true), 64, grid.IntOptions{}))
	require.ErrorIs(t, err, safeio.ErrUnsupported)
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err = p.Solve(canceled, nil, make([]float32, 64), 1, g)
	require.ErrorIs(t, err, context.Canceled)
}
