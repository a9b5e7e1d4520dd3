package ggml

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

var notNumbers = []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), math.Float32frombits(0xff800001)}

// requireNonFinite wants the error for weight i.
func requireNonFinite(t *testing.T, err error, i int, what string) {
	t.Helper()
	bad, ok := err.(*NonFiniteError)
	require.True(t, ok, "%s: %v", what, err)
	require.Equal(t, "weight", bad.What, what)
	require.Equal(t, i, bad.Index, what)
}

// TestNonFiniteAnywhere puts a NaN or an infinity at every place of every block of three rows, of every type.
func TestNonFiniteAnywhere(t *testing.T) {
	check := func(t *testing.T, set *kernels) {
		for _, ty := range Types() {
			if !ty.CanEncode() {
				continue
			}
			k := ty.Elems * max(1, 64/ty.Elems)
			x, im := gaussian(4, 3*k)
			size, err := ty.RowBytes(k)
			require.NoError(t, err)
			dst := make([]byte, 3*size)
			for i := range x {
				good := x[i]
				x[i] = notNumbers[i%len(notNumbers)]
				requireNonFinite(t, ty.encodeWith(set, dst, x, 3, k, im[:k]), i, ty.Name)
				x[i] = good
			}
		}
	}
	t.Run("portable", func(t *testing.T) { check(t, nil) })
	eachKernelSet(t, check)
}

// TestNonFiniteFirst wants the first of several, also behind weights that are too large and beside bad importance.
func TestNonFiniteFirst(t *testing.T) {
	const rows, k = 3, 256
	for _, ty := range Types() {
		if !ty.CanEncode() || ty.Name == "F32" {
			continue
		}
		x, im := gaussian(5, rows*k)
		im = im[:k]
		size, err := ty.RowBytes(k)
		require.NoError(t, err)
		dst := make([]byte, rows*size)
		x[3] = math.MaxFloat32
		if ty.limit > math.MaxFloat32/2 { // wide scales
			x[3] = 0
		}
		x[rows*k-1] = notNumbers[0]
		requireNonFinite(t, ty.EncodeRows(dst, x, rows, k, im), rows*k-1, ty.Name)
		x[2*k+7] = notNumbers[1]
		requireNonFinite(t, ty.EncodeRows(dst, x, rows, k, im), 2*k+7, ty.Name)
		im[0] = -1
		requireNonFinite(t, ty.EncodeRows(dst, x, rows, k, im), 2*k+7, ty.Name)
	}
}

// TestTiles encodes matrices of more weights than a tile, which is how EncodeRows takes them in turn: the bytes, and the
// places in errors, are those of single rows.
func TestTiles(t *testing.T) {
	const rows, k = 33, 2048 // a tile is 32 rows
	x, im := gaussian(6, rows*k)
	im = im[:k]
	for _, ty := range Types() {
		if !ty.CanEncode() {
			continue
		}
		all := encode(t, ty, x, rows, k, im)
		size := len(all) / rows
		for _, r := range []int{0, 31, 32} {
			require.Equal(t, encode(t, ty, x[r*k:(r+1)*k], 1, k, im), all[r*size:(r+1)*size], fmt.Sprint(ty.Name, " row ", r))
		}
		last := (rows-1)*k + 300
		good := x[last]
		x[last] = notNumbers[2]
		requireNonFinite(t, ty.EncodeRows(all, x, rows, k, im), last, ty.Name)
		x[last] = math.MaxFloat32
		if err := ty.EncodeRows(all, x, rows, k, im); ty.Name != "F32" {
			var over *OverflowError
			require.ErrorAs(t, err, &over, ty.Name)
			require.Equal(t, OverflowError{Type: ty.Name, Row: rows - 1, Block: 300 / ty.Elems}, *over)
		}
		x[last] = good
	}
}
