package exl2

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/gptq"
)

// moments returns E[aᵀb] of tokens in the rows.
func moments(a, b [][]float64) []float64 {
	m := make([]float64, len(a[0])*len(b[0]))
	for t := range a {
		for i, x := range a[t] {
			for j, y := range b[t] {
				m[i*len(b[t])+j] += x * y / float64(len(a))
			}
		}
	}
	return m
}

func single(m []float64) []float32 {
	n := make([]float32, len(m))
	for i, v := range m {
		n[i] = float32(v)
	}
	return n
}

func random(seed uint64, rows, cols int) [][]float64 {
	r := newRand(seed)
	m := make([][]float64, rows)
	for i := range m {
		m[i] = make([]float64, cols)
		for j := range m[i] {
			m[i][j] = r.NormFloat64()
		}
	}
	return m
}

func minus(a, b [][]float64) [][]float64 {
	d := make([][]float64, len(a))
	for t := range a {
		d[t] = make([]float64, len(a[t]))
		for i := range d[t] {
			d[t][i] = a[t][i] - b[t][i]
		}
	}
	return d
}

// When the quantized model's inputs are a linear function of the original's, the whole shift restores the outputs.
func TestTargetRestoresOutputs(t *testing.T) {
	const out, k, tokens = 5, 64, 400
	ctx := context.Background()
	xf := random(1, tokens, k)
	mix := random(2, k, k)
	xq := make([][]float64, tokens)
	for i := range xq {
		xq[i] = make([]float64, k)
		for a, v := range xf[i] {
			for b := range k {
				xq[i][b] += v * 0.02 * mix[a][b]
			}
			xq[i][a] += v
		}
	}
	w, _ := problem(3, out, k)
	st := &gptq.Stats{K: k, H: moments(xq, xq), D: single(moments(minus(xf, xq), xq))}
	p := prepared(t, k, st.H, Options{Damp: 1e-9, Rho: 1})
	for _, c := range []string{"4 g32", "4/3 50/50 g32"} {
		target, rho, err := p.Target(ctx, kernel.NewPool(2), st, w, out, mustCandidate(t, c).Groups(k))
		require.NoError(t, err)
		require.EqualValues(t, 1, rho)
		for i := range 10 {
			for n := range out {
				var want, got float64
				for j := range k {
					want += float64(w[n*k+j]) * xf[i][j]
					got += float64(target[n*k+j]) * xq[i][j]
				}
				require.InDelta(t, want, got, 1e-4)
			}
		}
	}
}

// Half the windows decide how much of the shift to use: all of it when the other half agrees, none when it does not.
func TestHeldOutShare(t *testing.T) {
	const out, k, tokens = 12, 32, 2000
	ctx := context.Background()
	pool := kernel.NewPool(2)
	w, _ := problem(4, out, k)
	groups := mustCandidate(t, "4 g32").Groups(k)
	x := random(5, 2*tokens, k)
	share := func(distance [][]float64) float64 {
		st := &gptq.Stats{K: k, H: moments(x, x), D: single(moments(distance, x)),
			Half: &gptq.Half{H: moments(x[:tokens], x[:tokens]), D: single(moments(distance[:tokens], x[:tokens])), Weight: 0.5}}
		_, rho, err := prepared(t, k, st.H, Best()).Target(ctx, pool, st, w, out, groups)
		require.NoError(t, err)
		return rho
	}
	require.Less(t, share(random(6, 2*tokens, k)), 0.1, "noise does not carry over")
	same := make([][]float64, 2*tokens) // the distance is the same linear function of x everywhere
	mix := random(7, k, k)
	for i := range same {
		same[i] = make([]float64, k)
		for a, v := range x[i] {
			for b := range k {
				same[i][b] += v * mix[a][b]
			}
		}
	}
	require.Greater(t, share(same), 0.95)

	// Nothing to shift: the weights themselves.
	st := &gptq.Stats{K: k, H: moments(x, x)}
	p := prepared(t, k, st.H, Best())
	got, rho, err := p.Target(ctx, pool, st, w, out, groups)
	require.NoError(t, err)
	require.Zero(t, rho)
	require.Same(t, &w[0], &got[0])
	st.D = make([]float32, k*k-1)
	_, _, err = p.Target(ctx, pool, st, w, out, groups)
	require.Error(t, err)
	// The drift of the residual stream counts like an error of the outputs.
	st.D, st.Drift = make([]float32, k*k), make([]float32, out*k)
	for n := range out {
		st.Drift[n*k+n] = float32(st.H[n*k+n])
	}
	got, rho, err = p.Target(ctx, pool, st, w, out, groups)
	require.NoError(t, err)
	require.Equal(t, 0.5, rho)
	require.InDelta(t, w[3*k+3]+0.5, got[3*k+3], 0.05)
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	_, _, err = p.Target(ctx, pool, st, w, out, groups)
	require.ErrorIs(t, err, context.Canceled)
}
