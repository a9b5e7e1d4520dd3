package gptq

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid"
)

func prepared(t *testing.T, st *Stats, damp float64, order Order) *Prepared {
	t.Helper()
	g := intGrid(t, scheme(4, 32, true), st.K, grid.IntOptions{})
	p, err := Prepare(kernel.NewPool(2), st, g, Options{Damp: damp, Order: order, Rho: 1})
	require.NoError(t, err)
	require.Empty(t, p.Fallback)
	return p
}

func minus(a, b []float64) []float64 {
	d := make([]float64, len(a))
	for i := range a {
		d[i] = a[i] - b[i]
	}
	return d
}

func narrowed(m []float64) []float32 {
	n := make([]float32, len(m))
	for i, v := range m {
		n[i] = float32(v)
	}
	return n
}

// Without a mismatch the target is the weight itself.
func TestNoMismatchNoShift(t *testing.T) {
	const out, k = 8, 32
	r := newRand(30)
	x := inputs(r, 200, k)
	w := gaussian(r, out*k, 1)
	for _, d := range [][]float32{nil, make([]float32, k*k)} {
		p := prepared(t, &Stats{K: k, H: gram(x, x, k), D: d}, 0.01, Natural)
		wt, _ := p.target(nil, w, out)
		require.Equal(t, w, wt)
	}
}

// x = x_f·A with A invertible: the shifted weight undoes A, x·Wtᵀ = x_f·Wᵀ, in any visiting order.
func TestTargetUndoesALinearMismatch(t *testing.T) {
	const out, k = 8, 32
	r := newRand(31)
	xf := inputs(r, 400, k)
	a := make([]float64, k*k)
	for i := range a {
		a[i] = 0.05 * r.NormFloat64()
	}
	for i := range k {
		a[i*k+i] += 1
	}
	x := make([]float64, len(xf))
	for t := range 400 {
		for i := range k {
			for j := range k {
				x[t*k+j] += xf[t*k+i] * a[i*k+j]
			}
		}
	}
	w := gaussian(r, out*k, 1)
	for _, order := range []Order{Natural, GroupAware, ActOrder} {
		p := prepared(t, &Stats{K: k, H: gram(x, x, k), D: narrowed(gram(minus(xf, x), x, k))}, 1e-9, order)
		wt, rho := p.target(kernel.NewPool(2), w, out)
		require.Equal(t, 1.0, rho)
		for tok := range 20 {
			for n := range out {
				var want, got float64
				for c := range k {
					want += xf[tok*k+c] * float64(w[n*k+c])
					got += x[tok*k+c] * float64(wt[n*k+c])
				}
				require.InDelta(t, want, got, 2e-3)
			}
		}
	}
}

// ρ from held-out halves: near 1 when both halves say the same, near 0 when the mismatch of the second is noise.
func TestHeldOutRho(t *testing.T) {
	const out, k, tokens = 16, 32, 800
	r := newRand(32)
	w := gaussian(r, out*k, 1)
	rho := func(signal, noise float64) float64 {
		x, xf := inputs(r, tokens, k), make([]float64, tokens*k)
		for t := range tokens {
			for c := range k {
				xf[t*k+c] = x[t*k+c] + signal*x[t*k+(c+1)%k] + noise*r.NormFloat64()*(1+x[t*k]*x[t*k])
			}
		}
		n := tokens / 2 * k
		st := &Stats{K: k, H: gram(x, x, k), D: narrowed(gram(minus(xf, x), x, k)),
			Half: &Half{H: gram(x[:n], x[:n], k), D: narrowed(gram(minus(xf[:n], x[:n]), x[:n], k)), Weight: 0.5}}
		p := prepared(t, st, 0.01, GroupAware)
		_, rho := p.target(nil, w, out)
		return rho
	}
	require.Greater(t, rho(0.3, 0), 0.9)
	require.Less(t, rho(0, 0.3), 0.15)
	middle := rho(0.02, 0.1)
	require.True(t, middle > 0.05 && middle < 0.95, "%v", middle)
}

// The drift of the residual stream is matched by an output offset: E = cov(r_f − r, x).
func TestDriftTerm(t *testing.T) {
	const out, k = 4, 32
	r := newRand(33)
	x := inputs(r, 500, k)
	b := gaussian(r, out*k, 0.3) // the drift is a linear map of x, which the target can absorb
	drift := make([]float64, out*k)
	h := gram(x, x, k)
	for n := range out {
		for j := range k {
			for i := range k {
				drift[n*k+j] += float64(b[n*k+i]) * h[i*k+j]
			}
		}
	}
	w := gaussian(r, out*k, 1)
	p := prepared(t, &Stats{K: k, H: h, D: make([]float32, k*k), Drift: narrowed(drift)}, 1e-9, Natural)
	wt, _ := p.target(nil, w, out)
	for i := range w {
		require.InDelta(t, float64(w[i])+float64(b[i]), float64(wt[i]), 2e-3)
	}
}

// A mismatch matrix that is not finite is ignored rather than spread over the weights.
func TestPoisonedMismatch(t *testing.T) {
	const out, k = 4, 32
	r := newRand(34)
	x := inputs(r, 100, k)
	d := make([]float32, k*k)
	d[3] = float32(math.NaN())
	w := gaussian(r, out*k, 1)
	p := prepared(t, &Stats{K: k, H: gram(x, x, k), D: d}, 0.01, Natural)
	wt, rho := p.target(nil, w, out)
	require.Zero(t, rho)
	require.Equal(t, w, wt)
	half := &Half{H: gram(x, x, k), D: d, Weight: 0.5}
	p = prepared(t, &Stats{K: k, H: gram(x, x, k), D: make([]float32, k*k), Half: half}, 0.01, Natural)
	_, rho = p.target(nil, w, out)
	require.Zero(t, rho)
}
