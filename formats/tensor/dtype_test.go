package tensor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDTypes(t *testing.T) {
	seen := map[string]bool{}
	last := int64(0)
	for _, d := range DTypes() {
		require.False(t, seen[d.String()])
		seen[d.String()] = true
		parsed, ok := ParseDType(d.String())
		require.True(t, ok)
		require.Equal(t, d, parsed)
		require.GreaterOrEqual(t, d.Size(), last, "the order is by size")
		last = d.Size()
		if d.IsFloat() {
			require.NoError(t, ToFloat32(make([]float32, 3), d, make([]byte, 3*d.Size())))
		} else {
			require.Error(t, ToFloat32(make([]float32, 3), d, make([]byte, 3*d.Size())))
		}
	}
	require.Len(t, seen, 17)
	for _, name := range []string{"", "invalid", "bf16", "BF16 ", "F4"} {
		_, ok := ParseDType(name)
		require.False(t, ok, name)
	}
	require.Zero(t, Invalid.Size())
	require.Zero(t, DType(200).Size())
	require.Equal(t, "DType(200)", DType(200).String())
	require.False(t, DType(200).IsFloat())
}

func TestInfo(t *testing.T) {
	i := Info{Name: "t", DType: BF16, Shape: []int64{3, 5}}
	n, ok := i.Bytes()
	require.True(t, ok)
	require.EqualValues(t, 30, n)
	require.True(t, i.SameShape(3, 5))
	require.False(t, i.SameShape(5, 3))
	require.False(t, i.SameShape(15))
	for _, bad := range []Info{{DType: Invalid, Shape: []int64{1}}, {DType: F64, Shape: []int64{1 << 61}}, {DType: U8, Shape: []int64{-1}}, {DType: U8, Shape: []int64{1 << 32, 1 << 32}}} {
		_, ok := bad.Bytes()
		require.False(t, ok, "%v", bad)
	}
}
