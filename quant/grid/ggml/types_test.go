package ggml

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	last := -1
	for _, ty := range Types() {
		require.Greater(t, int(ty.ID), last, ty.Name)
		last = int(ty.ID)
		require.NotEmpty(t, ty.Doc, ty.Name)
		require.Equal(t, 8*float64(ty.Bytes)/float64(ty.Elems), ty.BitsPerWeight, ty.Name)
		require.LessOrEqual(t, ty.Elems, superBlock)
		require.True(t, ty.UsesImatrix || !ty.NeedsImatrix, ty.Name)
		byName, ok := ByName(ty.Name)
		require.True(t, ok)
		require.Same(t, ty, byName)
		byID, ok := ByID(ty.ID)
		require.True(t, ok)
		require.Same(t, ty, byID)
		if s, ok := ty.Scalar(); ok {
			require.Equal(t, ty.Name, s.Type)
			require.Equal(t, ty.Elems, s.Span)
			require.LessOrEqual(t, s.SubBlocks(), 16)
		}
	}
	for _, retired := range []uint32{4, 5, 31, 32, 33, 36, 37, 38, 43} {
		_, ok := ByID(retired)
		require.False(t, ok, retired)
	}
	lower, ok := ByName("q4_k")
	require.True(t, ok)
	require.Equal(t, "Q4_K", lower.Name)
	_, ok = ByName("Q4_K_M")
	require.False(t, ok, "a mixture is no type")
}

func TestRowBytes(t *testing.T) {
	q4k, _ := ByName("Q4_K")
	n, err := q4k.RowBytes(4096)
	require.NoError(t, err)
	require.EqualValues(t, 4096/256*144, n)
	for _, k := range []int{0, -256, 255, 288} {
		_, err := q4k.RowBytes(k)
		require.Error(t, err, k)
	}
	f64, _ := ByName("F64")
	_, err = f64.RowBytes(math.MaxInt)
	require.Error(t, err)
}

func TestEncodeRowsRefuses(t *testing.T) {
	q4k, _ := ByName("Q4_K")
	iq2, _ := ByName("IQ2_XS")
	q8k, _ := ByName("Q8_K")
	x, im := gaussian(1, 512)
	dst := make([]byte, 2*144)
	require.ErrorContains(t, q8k.EncodeRows(dst, x, 2, 256, nil), "cannot be produced")
	require.ErrorContains(t, iq2.EncodeRows(make([]byte, 2*74), x, 2, 256, nil), "importance matrix")
	require.ErrorContains(t, q4k.EncodeRows(dst, x, 2, 255, nil), "255 weights")
	require.ErrorContains(t, q4k.EncodeRows(dst[:143], x, 2, 256, nil), "143 bytes")
	require.ErrorContains(t, q4k.EncodeRows(dst, x[:511], 2, 256, nil), "511 weights")
	require.ErrorContains(t, q4k.EncodeRows(dst, x, -2, 256, nil), "-2 rows")
	require.ErrorContains(t, q4k.EncodeRows(dst, x, 2, 256, im[:255]), "255 importance")
	require.NoError(t, q4k.EncodeRows(nil, nil, 0, 256, nil))

	var bad *NonFiniteError
	for _, v := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		for _, ty := range Types() {
			if !ty.CanEncode() {
				continue
			}
			x, im := gaussian(1, 512)
			x[300] = v
			size, err := ty.RowBytes(256)
			require.NoError(t, err)
			require.ErrorAs(t, ty.EncodeRows(make([]byte, 2*size), x, 2, 256, im[:256]), &bad)
			require.Equal(t, 300, bad.Index)
			require.ErrorContains(t, bad, "weight 300 is")
		}
	}
	for _, v := range []float32{float32(math.NaN()), float32(math.Inf(1)), -1} {
		im := append([]float32(nil), im[:256]...)
		im[17] = v
		require.ErrorAs(t, q4k.EncodeRows(dst, x, 2, 256, im), &bad)
		require.Equal(t, 17, bad.Index)
		require.Equal(t, "importance", bad.What)
	}
}

// Weights beyond what an fp16 scale reaches are an error that names the block; formats with wider scales take them.
func TestEncodeRowsOverflow(t *testing.T) {
	for _, ty := range Types() {
		if !ty.CanEncode() {
			continue
		}
		x, im := gaussian(2, 1024)
		x[700] = 1e38
		size, err := ty.RowBytes(512)
		require.NoError(t, err)
		err = ty.EncodeRows(make([]byte, 2*size), x, 2, 512, im[:512])
		switch ty.Name {
		case "F32", "BF16", "MXFP4": // 1e38 < 2^127
			require.NoError(t, err, ty.Name)
			continue
		}
		var over *OverflowError
		require.ErrorAs(t, err, &over, ty.Name)
		require.Equal(t, 1, over.Row, ty.Name)
		require.Equal(t, (700-512)/ty.Elems, over.Block, ty.Name)
		require.ErrorContains(t, err, ty.Name)
	}
}

func TestValidate(t *testing.T) {
	x, im := gaussian(5, 512)
	for _, ty := range Types() {
		if !ty.CanEncode() {
			continue
		}
		b := encode(t, ty, x, 1, 512, im)
		require.NoError(t, ty.Validate(b), ty.Name)
		if ty.Bytes > 1 {
			require.ErrorContains(t, ty.Validate(b[:len(b)-1]), "whole blocks", ty.Name)
		}
		if ty.Name == "NVFP4" { // every byte is a legal scale
			continue
		}
		for i := range b[ty.Bytes : 2*ty.Bytes] {
			b[ty.Bytes+i] = 0xff
		}
		var bad *NonFiniteError
		require.True(t, errors.As(ty.Validate(b), &bad), ty.Name)
		require.Equal(t, 1, bad.Index, ty.Name)
	}
}
