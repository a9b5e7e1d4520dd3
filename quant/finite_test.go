package quant

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/tensor"
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

// Every half is told apart, at every place of a row.
func TestFiniteHalves(t *testing.T) {
	for d, mask := range map[tensor.DType]uint64{tensor.F16: 0x7c00, tensor.BF16: 0x7f80} {
		for bits := range 1 << 16 {
			raw := make([]byte, 2*(4+bits%7))
			at := bits % (len(raw) / 2)
			binary.LittleEndian.PutUint16(raw[2*at:], uint16(bits))
			finite := uint64(bits)&mask != mask
			require.Equal(t, finite, finiteHalves(raw, mask), "%s %#x", d, bits)
			var c census
			if c.look(d, raw, 0, false); !finite {
				require.Equal(t, census{count: 1, first: int64(at)}, c)
			} else {
				require.Zero(t, c)
			}
		}
	}
}
