package kernel

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNarrowRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(39, 40))
	for _, d := range [][2]int{{0, 3}, {3, 0}, {1, 1}, {7, 33}, {65, 2000}} {
		rows, cols := d[0], d[1]
		x := MatF32(rows, cols, samples(rng, rows*cols))
		want := make([]uint16, rows*cols)
		generic.narrowBF16(want, x.F32)
		f16 := MatU16(F16, rows, cols, make([]uint16, rows*cols))
		generic.narrowF16(f16.U16, x.F32)
		wide, want16 := make([]float32, rows*cols), make([]uint16, rows*cols)
		generic.widen(wide, f16.U16, F16)
		generic.narrowBF16(want16, wide)
		eachPool(t, func(t *testing.T, p *Pool) {
			got, again := MatU16(BF16, rows, cols, make([]uint16, rows*cols)), MatU16(BF16, rows, cols, make([]uint16, rows*cols))
			NarrowRows(p, got, x)
			require.Equal(t, want, got.U16)
			NarrowRows(p, again, got)
			require.Equal(t, want, again.U16)
			NarrowRows(p, got, f16)
			require.Equal(t, want16, got.U16)
			words := MatU16(Pairs, (rows+1)/2, cols, make([]uint16, (rows+1)/2*2*cols))
			PairRows(p, words, x)
			for i := range rows + rows%2 {
				for j := range cols {
					w := uint16(0)
					if i < rows {
						w = want[i*cols+j]
					}
					require.Equal(t, w, words.U16[2*(i/2*cols+j)+i%2])
				}
			}
		})
	}
}
