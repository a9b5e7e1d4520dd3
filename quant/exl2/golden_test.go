package exl2

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/internal/kernel"
)

// wholeNumbers makes a problem without a rounding in it, so that it is the same on every machine.
func wholeNumbers(out, k int) (w []float32, h []float64) {
	state := uint32(1)
	next := func(n int) int {
		state = state*1664525 + 1013904223
		return int(state>>16) % n
	}
	const tokens = 256
	x := make([]int, tokens*k)
	for i := range x {
		x[i] = (next(9) - 4) * (1 + i%k%7)
	}
	h = make([]float64, k*k)
	for t := range tokens {
		for i := range k {
			for j := range k {
				h[i*k+j] += float64(x[t*k+i] * (x[t*k+j] + x[t*k+(j+1)%k]/2) / 2)
			}
		}
	}
	for i := range k {
		for j := range i {
			s := (h[i*k+j] + h[j*k+i]) / 2
			h[i*k+j], h[j*k+i] = s, s
		}
		h[i*(k+1)] += 5000
	}
	w = make([]float32, out*k)
	for i := range w {
		w[i] = float32(next(2001)-1000) / 8192
	}
	return w, h
}

// The bytes are the same on every machine, with every kernel and whatever the compiler fuses.
func TestGolden(t *testing.T) {
	const out, k = 100, 160
	w, h := wholeNumbers(out, k)
	layout, _ := packing.Lookup("exl2")
	for candidate, want := range map[string]string{
		"2 g64":              "7345a17fba3ae0f0",
		"4/3 50/50 g32":      "b1cf60430d827510",
		"8/5/4 20/30/50 g32": "06c3f5d9b958dd4f",
	} {
		c := mustCandidate(t, candidate)
		l, rep, err := prepared(t, k, h, Best()).Quantize(context.Background(), kernel.NewPool(2), w, out, c.Groups(k))
		require.NoError(t, err)
		require.Empty(t, rep.Fallback)
		require.Less(t, rep.Loss, 0.9*rep.NearestLoss)
		parts := map[string][]byte{}
		plan := layout.Plan("m", l.Scheme, out, k)
		for _, info := range plan {
			n, _ := info.Bytes()
			parts[strings.TrimPrefix(info.Name, "m.")] = make([]byte, n)
		}
		require.NoError(t, layout.Pack(l, func(suffix string) []byte { return parts[suffix] }))
		sum := sha256.New()
		for _, info := range plan {
			sum.Write(parts[strings.TrimPrefix(info.Name, "m.")])
		}
		require.Equal(t, want, hex.EncodeToString(sum.Sum(nil)[:8]), candidate)
	}
}
