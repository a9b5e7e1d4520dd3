package gptq

import (
	"math"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
)

// Stats are what calibration saw at the input of one linear, or of several that share it. All matrices are K×K,
// row-major, averages over tokens (or any common multiple of them).
type Stats struct {
	K int
	H []float64 // E[x xᵀ] of the inputs as the model quantized so far produces them; symmetric
	// H32 stands in for H where the input is too wide for float64. Narrow factors in float32, too.
	H32    []float32
	Narrow bool
	// D is E[(x_f − x) xᵀ] with x_f the input of the full-precision model; nil when unknown or zero. With D, the target
	// is shifted so that the output of the full-precision model is matched instead of that of the weight alone.
	D []float32
	// Half are the statistics of one half of the calibration windows, which decide how far the shift carries over to
	// text that was not used for it. Nil: Options.Rho is used as it is.
	Half *Half
	// Drift is E[(r_f − r) xᵀ], [N,K], for linears that write to the residual stream: r and r_f are the stream before
	// the addition. Nil for others. HalfDrift belongs to Half.
	Drift, HalfDrift []float32
	// Scratch allows Prepare to use the memory of H, Half.H and H32, which it leaves undefined.
	Scratch bool
}

// Half are the statistics H (or H32) and D of a part of the tokens.
type Half struct {
	H      []float64
	H32    []float32
	D      []float32
	Weight float64 // share of this half in the tokens of H, 0 … 1
	// DWeight is its share in the tokens of D and of the drifts, where those come from fewer tokens; 0: Weight.
	DWeight float64
}

// ShiftWeight is the half's share in the tokens of D.
func (h *Half) ShiftWeight() float64 {
	if h.DWeight > 0 {
		return h.DWeight
	}
	return h.Weight
}

// moments is a K×K matrix in either type; one of the fields is nil.
type moments struct {
	wide   []float64
	narrow []float32
}

func (m moments) len() int { return len(m.wide) + len(m.narrow) }

func (m moments) at(i int) float64 {
	if m.wide != nil {
		return m.wide[i]
	}
	return float64(m.narrow[i])
}

func (s *Stats) h() moments { return moments{s.H, s.H32} }

func (h *Half) h() moments { return moments{h.H, h.H32} }

// check refuses matrices of the wrong size; content is judged by prepare.
func (s *Stats) check() error {
	n := s.K * s.K
	switch {
	case s.K < 1 || s.h().len() != n:
		return safeio.Corruptf("a Hessian of %d numbers for %d inputs", s.h().len(), s.K)
	case s.D != nil && len(s.D) != n:
		return safeio.Corruptf("a mismatch matrix of %d numbers for %d inputs", len(s.D), s.K)
	case s.Half != nil && (s.Half.h().len() != n || len(s.Half.D) != n || !(s.Half.Weight > 0 && s.Half.ShiftWeight() < 1)):
		return safeio.Corruptf("half statistics of %d and %d numbers, weight %v", s.Half.h().len(), len(s.Half.D), s.Half.Weight)
	}
	return nil
}

// bounded is what rows of either type hold.
type bounded interface{ ~float32 | ~float64 }

// firstBad returns the position of the first number of a matrix of k columns that is not finite, or -1.
func firstBad[T bounded](pool *kernel.Pool, m []T, k int) int {
	bad := make([]int, len(m)/k)
	pool.Run(len(bad), func(i int) {
		bad[i] = -1
		for j, v := range m[i*k : (i+1)*k] {
			if d := float64(v); math.IsNaN(d) || math.IsInf(d, 0) {
				bad[i] = j
				return
			}
		}
	})
	for i, j := range bad {
		if j >= 0 {
			return i*k + j
		}
	}
	return -1
}

// firstBad is the position of the first number that is not finite, or -1.
func (m moments) firstBad(pool *kernel.Pool, k int) int {
	if m.wide != nil {
		return firstBad(pool, m.wide, k)
	}
	return firstBad(pool, m.narrow, k)
}

// scaled returns the matrix divided by mean in float32. With less, the statistic of a part that holds share of the
// tokens, it is that of the other tokens. dst may be the matrix itself, nil: new memory.
func (m moments) scaled(pool *kernel.Pool, dst []float32, k int, mean float64, less moments, share float64) []float32 {
	if dst == nil {
		dst = make([]float32, m.len())
	}
	pool.Run(k, func(i int) {
		for j := i * k; j < (i+1)*k; j++ {
			v := m.at(j)
			if less.len() > 0 {
				v = (v - float64(share*less.at(j))) / (1 - share)
			}
			dst[j] = float32(v / mean)
		}
	})
	return dst
}
