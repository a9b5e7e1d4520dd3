package ggml

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// This file lists where the encoders depart from the reference on purpose.

// deviations names the rows of the golden edge cases whose bytes differ, with the reason.
var deviations = []struct {
	typ string
	row int
	why string
}{
	{"IQ3_S", 1, "the reference skips a sub-block of zeros without advancing, so the rest of the super-block is shifted"},
}

func deviates(typ string, row int) bool {
	for _, d := range deviations {
		if d.typ == typ && d.row == row {
			return true
		}
	}
	return false
}

// relativeError returns ‖decode(encode(x)) − x‖ / ‖x‖.
func relativeError(t *testing.T, ty *Type, x, im []float32) float64 {
	t.Helper()
	y := make([]float32, len(x))
	ty.DecodeRow(y, encode(t, ty, x, 1, len(x), im))
	var e, n float64
	for i := range x {
		e += math.Pow(float64(x[i])-float64(y[i]), 2)
		n += math.Pow(float64(x[i]), 2)
	}
	return math.Sqrt(e / n)
}

// A zero sub-block of IQ3_S must not shift its neighbours: the error stays that of the type.
func TestDeviationIQ3SZeroSubBlock(t *testing.T) {
	f := goldenFile(t)
	row := f.floats(t, "src.edge")[goldenColumns : 2*goldenColumns]
	ty, _ := ByName("IQ3_S")
	require.Less(t, relativeError(t, ty, row, nil), 0.25)

	theirs := f.bytes("IQ3_S.edge")
	size := len(theirs) / (len(f.bytes("src.edge")) / 4 / goldenColumns)
	ours := encode(t, ty, row, 1, goldenColumns, nil)
	require.NotEqual(t, theirs[size:2*size], ours, "the reference no longer shifts: drop this deviation")
	require.Equal(t, theirs[size+ty.Bytes:2*size], ours[ty.Bytes:], "only the super-block with the zeros may differ")
}

// Zero sub-blocks of IQ1_S and IQ1_M take the codeword of zeros. The reference takes codeword 0, eight times -1, which
// decodes to about 5 % of the super-block's maximum.
func TestDeviationIQ1ZeroSubBlock(t *testing.T) {
	x, im := gaussian(3, superBlock)
	clear(x[64:96])
	var peak float64
	for _, v := range x {
		peak = max(peak, math.Abs(float64(v)))
	}
	y := make([]float32, superBlock)
	for _, name := range []string{"IQ1_S", "IQ1_M"} {
		ty, _ := ByName(name)
		ty.DecodeRow(y, encode(t, ty, x, 1, superBlock, im))
		for _, v := range y[64:96] {
			require.Less(t, math.Abs(float64(v)), 0.01*peak, name)
		}
	}
}

// The exponent of MXFP4 stops at 0 where the reference wraps to the byte that means NaN.
func TestDeviationMXFP4Underflow(t *testing.T) {
	ty, _ := ByName("MXFP4")
	x := make([]float32, 32)
	for _, amax := range []float32{0x1p-126, 0x1.8p-126, 0x1p-140} {
		x[5] = -amax
		b := encode(t, ty, x, 1, 32, nil)
		require.Zero(t, b[0])
		require.NoError(t, ty.Validate(b))
	}
}

// Importance of zeros throughout counts as none known: 1 everywhere. The reference writes zeros.
func TestDeviationZeroImportance(t *testing.T) {
	x, _ := gaussian(4, superBlock)
	ones := make([]float32, superBlock)
	for i := range ones {
		ones[i] = 1
	}
	for _, ty := range Types() {
		if ty.CanEncode() && ty.UsesImatrix {
			zero := encode(t, ty, x, 1, superBlock, make([]float32, superBlock))
			require.Equal(t, encode(t, ty, x, 1, superBlock, ones), zero, ty.Name)
		}
	}
}
