package gptq

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid"
)

// BenchmarkSolve reports the time of one weight of 512 rows, factorization apart. A pass costs 2·N·K² operations; GPTQ
// as published is half a pass, Best about sixteen and the look-ahead.
func BenchmarkSolve(b *testing.B) {
	const out, k = 512, 2048
	r := newRand(60)
	h := make([]float64, k*k)
	for i := range k {
		scale := 1 + 3*r.Float64()
		h[i*k+i] = scale
		for j := range i {
			if i-j < 40 {
				h[i*k+j] = 0.6 / float64(1+i-j)
				h[j*k+i] = h[i*k+j]
			}
		}
	}
	w := gaussian(r, out*k, 0.02)
	ahead := Best()
	ahead.Passes, ahead.Restarts = 0, 0
	once := Best()
	once.Restarts = 0
	for _, run := range []struct {
		name string
		o    Options
	}{{"gptq", Reference(0.01, Natural)}, {"lookahead", ahead}, {"refined", once}, {"best", Best()}} {
		for _, bits := range []int{4, 2} {
			g, err := grid.NewInt(scheme(bits, 128, true), k, grid.IntOptions{Search: true})
			require.NoError(b, err)
			p, err := Prepare(kernel.NewPool(2), &Stats{K: k, H: h}, g, run.o)
			require.NoError(b, err)
			require.Empty(b, p.Fallback)
			b.Run(fmt.Sprintf("%s/%dbit", run.name, bits), func(b *testing.B) {
				for b.Loop() {
					_, _, err := p.Solve(context.Background(), kernel.NewPool(1), w, out, g)
					require.NoError(b, err)
				}
			})
		}
	}
}
