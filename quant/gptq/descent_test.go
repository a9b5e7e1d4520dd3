package gptq

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid"
)

// descended rounds w plainly and lets the codes descend on h.
func descended(t *testing.T, w []float32, out, k int, h []float64, g *grid.Int, passes, threads int) (near, got *packing.Linear) {
	ctx, pool := context.Background(), kernel.NewPool(threads)
	o := Best()
	o.Passes = passes
	p, err := PrepareDescent(pool, &Stats{K: k, H: h}, g, o)
	require.NoError(t, err)
	require.Empty(t, p.Fallback)
	round := func() *packing.Linear {
		l, err := grid.RoundNearest(ctx, pool, w, out, k, g, nil)
		require.NoError(t, err)
		return l
	}
	near, got = round(), round()
	require.NoError(t, p.Descend(ctx, pool, got, w, g))
	return near, got
}

// Descent lowers the quadratic from wherever it starts, more with every pass, keeps to the format, and stays where the
// inputs are uncorrelated: the nearest code is the best one then.
func TestDescend(t *testing.T) {
	const out, k = 70, 96
	r := newRand(3)
	w := gaussian(r, out*k, 0.1)
	x := inputs(newRand(5), 400, k)
	h := gram(x, x, k)
	for _, s := range []packing.Scheme{scheme(4, 32, true), scheme(4, 32, false), scheme(2, 32, false), scheme(8, -1, true)} {
		g := intGrid(t, s, k, grid.IntOptions{Positive: true})
		last := math.Inf(1)
		for _, passes := range []int{1, 4} {
			near, got := descended(t, w, out, k, h, g, passes, 2)
			require.NoError(t, packing.Validate(got, mustLayout(t, "compressed-tensors")))
			before, after := quadratic(w, dense(t, near), h, k), quadratic(w, dense(t, got), h, k)
			require.Less(t, after, 0.9*before, "%v", s)
			require.LessOrEqual(t, after, 1.0001*last)
			last = after
			for n, scale := range got.Scales {
				require.Positive(t, scale, "scale %d", n)
			}
			_, alone := descended(t, w, out, k, h, g, passes, 1)
			require.Equal(t, got, alone, "threads change nothing")
		}
	}
	same := make([]float64, k*k)
	for i := range k {
		same[i*(k+1)] = 2
	}
	g := intGrid(t, scheme(4, 32, false), k, grid.IntOptions{})
	near, got := descended(t, w, out, k, same, g, 1, 2)
	require.LessOrEqual(t, quadratic(w, dense(t, got), same, k), quadratic(w, dense(t, near), same, k))
}

// Statistics that are no use leave the rounding alone; weights and shapes that do not fit are refused.
func TestDescendBadInput(t *testing.T) {
	const out, k = 3, 64
	ctx, pool := context.Background(), kernel.NewPool(1)
	w := gaussian(newRand(1), out*k, 1)
	g := intGrid(t, scheme(4, 32, true), k, grid.IntOptions{})
	poisoned := make([]float64, k*k)
	poisoned[5] = math.NaN()
	for _, h := range [][]float64{make([]float64, k*k), poisoned} {
		p, err := PrepareDescent(pool, &Stats{K: k, H: h}, g, Best())
		require.NoError(t, err)
		require.NotEmpty(t, p.Fallback)
		l, err := grid.RoundNearest(ctx, pool, w, out, k, g, nil)
		require.NoError(t, err)
		was := append([]uint8(nil), l.Codes...)
		require.NoError(t, p.Descend(ctx, pool, l, w, g))
		require.Equal(t, was, l.Codes)
	}
	_, err := PrepareDescent(pool, &Stats{K: k, H: make([]float64, 3)}, g, Best())
	require.ErrorIs(t, err, safeio.ErrCorrupt)

	one := make([]float64, k*k)
	for i := range k { // a single dead channel among unit ones
		one[i*(k+1)] = float64(min(i, 1))
	}
	p, err := PrepareDescent(pool, &Stats{K: k, H: one}, g, Best())
	require.NoError(t, err)
	require.Equal(t, []int{0}, p.Dead)
	l, err := grid.RoundNearest(ctx, pool, w, out, k, g, nil)
	require.NoError(t, err)
	require.NoError(t, p.Descend(ctx, pool, l, w, g))
	require.ErrorIs(t, p.Descend(ctx, pool, l, w[:k], g), safeio.ErrCorrupt)
	require.ErrorIs(t, p.Descend(ctx, pool, l, w, intGrid(t, scheme(4, 64, true), k, grid.IntOptions{})), safeio.ErrUnsupported)
	w[70] = float32(math.Inf(1))
	require.Error(t, p.Descend(ctx, pool, l, w, g))
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	w[70] = 0
	require.ErrorIs(t, p.Descend(stopped, pool, l, w, g), context.Canceled)
}

func mustLayout(t *testing.T, name string) *packing.Layout {
	l, ok := packing.Lookup(name)
	require.True(t, ok)
	return l
}
