package gptq

import (
	"math"

	"github.com/llmquant/quantize/formats/safeio"
)

// Stats are what calibration saw at the input of one linear, or of several that share it. All matrices are K×K,
// row-major, averages over tokens (or any common multiple of them).
type Stats struct {
	K int
	H []float64 // E[x xᵀ] of the inputs as the model quantized so far produces them; symmetric
	// D is E[(x_f − x) xᵀ] with x_f the input of the full-precision model; nil when unknown or zero. With D, the target
	// is shifted so that the output of the full-precision model is matched instead of that of the weight alone.
	D []float64
	// Half are the statistics of one half of the calibration windows, which decide how far the shift carries over to
	// text that was not used for it. Nil: Options.Rho is used as it is. Weight is the half's share of the tokens.
	Half *Half
	// Drift is E[(r_f − r) xᵀ], [N,K], for linears that write to the residual stream: r and r_f are the stream before
	// the addition. Nil for others. HalfDrift belongs to Half.
	Drift, HalfDrift []float64
}

// Half are the statistics H and D of a part of the tokens.
type Half struct {
	H, D   []float64
	Weight float64 // share of this half, 0 … 1
}

// check refuses matrices of the wrong size; content is judged by prepare.
func (s *Stats) check() error {
	n := s.K * s.K
	switch {
	case s.K < 1 || len(s.H) != n:
		return safeio.Corruptf("a Hessian of %d numbers for %d inputs", len(s.H), s.K)
	case s.D != nil && len(s.D) != n:
		return safeio.Corruptf("a mismatch matrix of %d numbers for %d inputs", len(s.D), s.K)
	case s.Half != nil && (len(s.Half.H) != n || len(s.Half.D) != n || !(s.Half.Weight > 0 && s.Half.Weight < 1)):
		return safeio.Corruptf("half statistics of %d and %d numbers, weight %v", len(s.Half.H), len(s.Half.D), s.Half.Weight)
	}
	return nil
}

// firstBad returns the position of the first number that is not finite, or -1.
func firstBad(m []float64) int {
	for i, v := range m {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return i
		}
	}
	return -1
}
