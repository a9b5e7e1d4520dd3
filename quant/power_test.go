package quant

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// The functions agree with the standard library's over the range of scales and statistics, and are exact where it counts.
func TestPower(t *testing.T) {
	for i := -600; i <= 600; i++ {
		x := math.Exp(float64(i) * 0.057)
		require.InDelta(t, math.Log(x), logarithm(x), 1e-15+2e-15*math.Abs(math.Log(x)))
		y := float64(i) * 0.61
		require.InEpsilon(t, math.Exp(y), exponential(y), 3e-15)
		for _, p := range []float64{0, 0.05, 0.5, 0.95, 1} {
			require.InEpsilon(t, math.Pow(x, p), power(x, p), 1e-13)
		}
	}
	require.EqualValues(t, 0, logarithm(1))
	require.EqualValues(t, 1, exponential(0))
	require.EqualValues(t, 1, power(0, 0))
	require.EqualValues(t, 0, power(0, 0.3))
	require.True(t, math.IsInf(exponential(1e6), 1))
	require.Zero(t, exponential(-1e6))
	require.True(t, math.IsNaN(exponential(math.NaN())))
	require.Less(t, logarithm(5e-324), -744.0)
}
