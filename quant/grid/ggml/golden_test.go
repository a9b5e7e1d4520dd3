package ggml

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

const goldenColumns = 1024

// TestGoldenEncode compares every type with the reference's bytes on real, special and importance-weighted rows.
func TestGoldenEncode(t *testing.T) {
	f := goldenFile(t)
	cases := []struct {
		name string
		x    []float32
		im   []float32
	}{
		{"real", f.floats(t, "src.real"), nil},
		{"real.imatrix", f.floats(t, "src.real"), f.floats(t, "imatrix")},
		{"edge", f.floats(t, "src.edge"), nil},
	}
	for _, ty := range Types() {
		found := false
		for _, c := range cases {
			want := f.bytes(ty.Name + "." + c.name)
			if want == nil {
				continue
			}
			found = true
			rows := len(c.x) / goldenColumns
			got := encode(t, ty, c.x, rows, goldenColumns, c.im)
			require.Len(t, got, len(want))
			size := len(want) / rows
			for r := range rows {
				if c.name == "edge" && deviates(ty.Name, r) {
					continue
				}
				require.Equal(t, want[r*size:(r+1)*size], got[r*size:(r+1)*size], "%s %s row %d", ty.Name, c.name, r)
			}
		}
		require.Equal(t, ty.CanEncode() && ty.Name != "F32", found, ty.Name)
	}
}

// TestGoldenDecode compares the decoders bit for bit.
func TestGoldenDecode(t *testing.T) {
	f := goldenFile(t)
	for _, ty := range Types() {
		if f.bytes(ty.Name+".decoded8") == nil {
			continue
		}
		want := f.floats(t, ty.Name+".decoded8")
		name := ty.Name + ".real"
		if f.bytes(name) == nil {
			name += ".imatrix"
		}
		got := make([]float32, len(want))
		size, err := ty.RowBytes(len(want))
		require.NoError(t, err)
		ty.DecodeRow(got, f.bytes(name)[:size])
		require.Equal(t, want, got, ty.Name)
	}
}

// TestRowsAreIndependent encodes rows one by one and all at once.
func TestRowsAreIndependent(t *testing.T) {
	const rows, k = 5, 768
	x, im := gaussian(7, rows*k)
	im = im[:k]
	for _, ty := range Types() {
		if !ty.CanEncode() {
			continue
		}
		t.Run(ty.Name, func(t *testing.T) {
			for _, weights := range [][]float32{nil, im} {
				if weights == nil && ty.NeedsImatrix {
					continue
				}
				all := encode(t, ty, x, rows, k, weights)
				size := len(all) / rows
				for r := range rows {
					one := encode(t, ty, x[r*k:(r+1)*k], 1, k, weights)
					require.Equal(t, all[r*size:(r+1)*size], one, fmt.Sprintf("row %d", r))
				}
			}
		})
	}
}
