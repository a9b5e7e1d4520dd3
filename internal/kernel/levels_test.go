package kernel

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every set gives the bits of the loop in Go, on lengths around whole vectors, ties and values beyond both ends.
func TestRoundLevels(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, top := range []float32{3, 7, 15, 255} {
		for _, n := range []int{0, 1, 15, 16, 17, 64, 1000} {
			x, scale, zero := make([]float32, n), make([]float32, n), make([]float32, n)
			for i := range x {
				scale[i] = float32(math.Ldexp(r.Float64()+0.5, r.IntN(20)-10))
				if r.IntN(4) == 0 {
					scale[i] = -scale[i]
				}
				zero[i] = float32(r.IntN(int(top) + 1))
				x[i] = scale[i] * float32(r.IntN(4*int(top)+8)-2*int(top)-4) / 2 // halves are ties
				if r.IntN(2) == 0 {
					x[i] += scale[i] * float32(r.NormFloat64())
				}
			}
			wantY, wantCodes := make([]float32, n), make([]uint8, n)
			generic.roundLevels(wantY, wantCodes, x, scale, zero, top)
			for i := range x {
				q := math.RoundToEven(math.Min(math.Max(float64(x[i]/scale[i]), -float64(zero[i])), float64(top-zero[i])))
				require.Equal(t, uint8(q+float64(zero[i])), wantCodes[i])
				require.Equal(t, scale[i]*float32(q), wantY[i])
			}
			eachSet(t, func(t *testing.T, s *set) {
				y, codes := make([]float32, n), make([]uint8, n)
				s.roundLevels(y, codes, x, scale, zero, top)
				require.Equal(t, wantCodes, codes)
				for i := range y {
					require.Equal(t, math.Float32bits(wantY[i]), math.Float32bits(y[i]))
				}
			})
		}
	}
}

func TestFeedbackErrors(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{0, 1, 16, 31, 500} {
		x, y, loss := make([]float32, n), make([]float32, n), make([]float32, n)
		for i := range x {
			x[i], y[i], loss[i] = float32(r.NormFloat64()), float32(r.NormFloat64()), r.Float32()
		}
		const inv = 1.7
		eachSet(t, func(t *testing.T, s *set) {
			e, sum := make([]float32, n), append([]float32(nil), loss...)
			s.feedbackErrors(e, sum, x, y, inv)
			for i := range e {
				v := (y[i] - x[i]) * inv
				require.Equal(t, v, e[i])
				require.Equal(t, loss[i]+float32(v*v), sum[i])
			}
		})
	}
}
