package quant

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// The quick look over a row finds every kind of non-finite value wherever it lies, and takes nothing else for one.
func TestAllFinite(t *testing.T) {
	extremes := []float32{0, float32(math.Copysign(0, -1)), math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, -1}
	for n := range 11 {
		values := make([]float32, n)
		for i := range values {
			values[i] = extremes[i%len(extremes)]
		}
		require.True(t, allFinite(values))
		for i := range values {
			was := values[i]
			for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				values[i] = float32(bad)
				require.False(t, allFinite(values), "%d of %d", i, n)
				var c census
				c.lookFloats(values, 100, true)
				require.Equal(t, census{count: 1, first: int64(100 + i)}, c)
				require.Zero(t, values[i])
			}
			values[i] = was
		}
	}
	require.False(t, allFinite([]float32{math.Float32frombits(0xff800001)}), "a signalling NaN")
}
