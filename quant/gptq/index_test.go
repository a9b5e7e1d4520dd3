package gptq

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid"
	"github.com/llmquant/quantize/quant/grid/ggml"
)

// Groups formed in activation order are those of the same problem with its columns sorted beforehand: codes, scales and
// losses agree, g_idx says where the columns went, and the target's shift is computed in natural order all the same.
func TestIndexedIsTheSortedProblem(t *testing.T) {
	const out, k = 24, 96
	r := newRand(70)
	x, w := inputs(r, 400, k), gaussian(r, out*k, 0.02)
	xf := slices.Clone(x)
	for i := range xf {
		xf[i] += 0.05 * r.NormFloat64() * x[i-i%k]
	}
	st := &Stats{K: k, H: gram(x, x, k), D: narrowed(gram(minus(xf, x), x, k))}
	diag := make([]float64, k)
	for i := range diag {
		diag[i] = st.H[i*k+i]
	}
	order := descending(diag)
	sorted := &Stats{K: k, H: make([]float64, k*k), D: make([]float32, k*k)}
	ws := make([]float32, len(w))
	for i, ci := range order {
		for j, cj := range order {
			sorted.H[i*k+j], sorted.D[i*k+j] = st.H[ci*k+cj], st.D[ci*k+cj]
		}
		for n := range out {
			ws[n*k+i] = w[n*k+ci]
		}
	}
	g := intGrid(t, scheme(3, 32, true), k, grid.IntOptions{Search: true})
	o := Best()
	o.Rho = 0 // no shift: the sorted problem has the same sums in another order
	o.Order = Natural
	want, wantRep := solve(t, ws, out, sorted, g, o)
	o.Order = Indexed
	got, rep := solve(t, w, out, st, g, o)
	require.Equal(t, want.Scales, got.Scales)
	require.InEpsilon(t, wantRep.Loss, rep.Loss, 1e-9)
	for pos, c := range order {
		require.EqualValues(t, pos/32, got.GIdx[c])
		for n := range out {
			require.Equal(t, want.Codes[n*k+pos], got.Codes[n*k+c])
		}
	}
	require.InEpsilon(t, rep.Loss, quadratic(w, dense(t, got), st.H, k)+o.Damp*mean(diag)*squares(w, dense(t, got)), 1e-3)

	o.Rho = 1
	p, err := Prepare(nil, st, g, o)
	require.NoError(t, err)
	o.Order = GroupAware
	q, err := Prepare(nil, st, g, o)
	require.NoError(t, err)
	a, _ := p.target(nil, w, out)
	b, _ := q.target(nil, w, out)
	require.InDeltaSlice(t, b, a, 1e-5)
	require.True(t, p.For(nil, intGrid(t, scheme(3, 16, true), k, grid.IntOptions{})).Serves(intGrid(t, scheme(3, 16, true), k, grid.IntOptions{})))

	block, ok := ggml.ByName("Q4_0")
	require.True(t, ok)
	bg, err := grid.NewBlock(block, k)
	require.NoError(t, err)
	o.Order = Indexed
	_, _, err = Solve(context.Background(), nil, Problem{w, out, st, bg}, o)
	require.ErrorIs(t, err, safeio.ErrUnsupported)
}

func mean(x []float64) (m float64) {
	for _, v := range x {
		m += v / float64(len(x))
	}
	return m
}

func squares(a, b []float32) (sum float64) {
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		sum += d * d
	}
	return sum
}

// Statistics in float32, and statistics that may be overwritten, lead to the same codes but for a few.
func TestNarrowAndScratch(t *testing.T) {
	const out, k = 32, 128
	r := newRand(71)
	x, w := inputs(r, 600, k), gaussian(r, out*k, 0.02)
	h := gram(x, x, k)
	half := &Half{H: gram(x[:300*k], x[:300*k], k), D: gaussian(r, k*k, 1e-3), Weight: 0.5}
	whole := func() *Stats { return &Stats{K: k, H: slices.Clone(h), D: gaussian(newRand(1), k*k, 1e-3), Half: half} }
	g := intGrid(t, scheme(4, 32, true), k, grid.IntOptions{Search: true})
	want, wantRep := solve(t, w, out, whole(), g, Best())

	scratch := whole()
	scratch.Scratch = true
	scratch.Half = &Half{H: slices.Clone(half.H), D: half.D, Weight: 0.5}
	got, rep := solve(t, w, out, scratch, g, Best())
	require.Equal(t, want, got)
	require.Equal(t, wantRep, rep)

	narrow := whole()
	narrow.H, narrow.H32, narrow.Narrow = nil, narrowed(h), true
	narrow.Half = &Half{H32: narrowed(half.H), D: half.D, Weight: 0.5}
	got, rep = solve(t, w, out, narrow, g, Best())
	require.InEpsilon(t, wantRep.Loss, rep.Loss, 1e-2)
	differ := 0
	for i, c := range got.Codes {
		if c != want.Codes[i] {
			differ++
		}
	}
	require.Less(t, differ, out*k/20)
}

// Squared is the quadratic form of the Hessian as it was given, dead channels, damping and order apart.
func TestSquared(t *testing.T) {
	const out, k = 10, 64
	r := newRand(72)
	x, w := inputs(r, 300, k), gaussian(r, out*k, 1)
	for i := 5; i < len(x); i += k {
		x[i] = 0
	}
	h := gram(x, x, k)
	want := quadratic(w, make([]float32, len(w)), h, k)
	g := intGrid(t, scheme(4, 32, true), k, grid.IntOptions{})
	for _, order := range []Order{Natural, GroupAware, ActOrder, Indexed} {
		o := Best()
		o.Order = order
		p, err := Prepare(kernel.NewPool(2), &Stats{K: k, H: h}, g, o)
		require.NoError(t, err)
		require.Equal(t, []int{5}, p.Dead)
		require.InEpsilon(t, want, p.Squared(kernel.NewPool(2), kernel.MatF32(out, k, w)), 1e-5)
	}
	h[0] = -1
	p, err := Prepare(nil, &Stats{K: k, H: h}, g, Best())
	require.NoError(t, err)
	require.NotEmpty(t, p.Fallback)
	require.InEpsilon(t, quadratic(w, make([]float32, len(w)), h, k), p.Squared(nil, kernel.MatF32(out, k, w)), 1e-5)
}
