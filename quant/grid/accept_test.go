package grid

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// A move is taken where it brings the value nearer by the margin, and nowhere else; NaN moves nothing.
func TestAccept(t *testing.T) {
	nan := float32(math.NaN())
	x := []float32{0.9, 0.4, 0.50001, 1, nan}
	y := []float32{1, 1, 1, 1, 1}
	q := []float32{0, 0, 0, 1, 0}
	d, codes, old := make([]float32, 5), []uint8{9, 9, 9, 9, 9}, []uint8{1, 2, 3, 4, 5}
	require.True(t, Accept(x, y, q, d, codes, old))
	require.Equal(t, []float32{1, 0, 0, 1, 0}, q, "too far, within the margin, there already, no number")
	require.Equal(t, []float32{1, 0, 0, 0, 0}, d)
	require.Equal(t, []uint8{9, 2, 3, 4, 5}, old)
	require.False(t, Accept(x, y, q, d, codes, old))
}
