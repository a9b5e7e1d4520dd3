package grid

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/tensor"
)

// problem is one group of rows with a random positive definite H.
type problem struct {
	rows, cols int
	h          []float32
	w, q       Tile
	codes      []uint8
	p          Params
}

func newProblem(g *Int, rows, cols int, seed uint64) *problem {
	r := newRand(seed)
	pr := &problem{rows: rows, cols: cols, w: NewTile(rows, cols), q: NewTile(rows, cols), codes: make([]uint8, rows*cols), p: make(Params, 2*rows)}
	copy(pr.w.Data, normal(r, rows*cols))
	x := make([]float64, 3*cols*cols)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	pr.h = make([]float32, cols*cols)
	for i := range cols {
		for j := range cols {
			s := 0.0
			for t := range 3 * cols {
				s += x[t*cols+i] * x[t*cols+j]
			}
			pr.h[i*cols+j] = float32(s / float64(3*cols))
		}
	}
	g.Fit(pr.p, pr.w, nil)
	for k := range cols {
		g.Round(pr.p, k, pr.w.Col(k), pr.q.Col(k), pr.codes[k*rows:(k+1)*rows])
	}
	return pr
}

// loss returns δHδᵀ of a row and residual(w − q)·H for all.
func (pr *problem) loss(q Tile, row int) float64 {
	d := make([]float64, pr.cols)
	for i := range d {
		d[i] = float64(pr.w.Col(i)[row]) - float64(q.Col(i)[row])
	}
	s := 0.0
	for i, di := range d {
		for j, dj := range d {
			s += di * float64(pr.h[i*pr.cols+j]) * dj
		}
	}
	return s
}

func (pr *problem) residual() Tile {
	r := NewTile(pr.rows, pr.cols)
	for k := range pr.cols {
		for j := range pr.cols {
			for i := range pr.rows {
				r.Col(k)[i] += (pr.w.Col(j)[i] - pr.q.Col(j)[i]) * pr.h[j*pr.cols+k]
			}
		}
	}
	return r
}

func (pr *problem) decoded(g Grid, p Params) Tile {
	q := NewTile(pr.rows, pr.cols)
	for k := range pr.cols {
		g.Decode(p, k, pr.codes[k*pr.rows:(k+1)*pr.rows], q.Col(k))
	}
	return q
}

// Refit lowers the error of every row that it changes and reaches what trying every neighbouring scale and zero point
// reaches.
func TestRefitIsOptimal(t *testing.T) {
	for _, s := range []packing.Scheme{{Bits: 4, GroupSize: 16, Sym: true}, {Bits: 3, GroupSize: 16}, {Bits: 2, GroupSize: 16}} {
		s.ScaleType = tensor.BF16 // coarse, so that neighbours differ
		g := newInt(t, s, 16, IntOptions{MinZero: 1})
		pr := newProblem(g, 24, 16, 6)
		before := append(Params(nil), pr.p...)
		require.True(t, g.Refit(pr.p, pr.codes, pr.residual(), pr.h))
		after := pr.decoded(g, pr.p)
		improved := 0
		for i := range pr.rows {
			best := pr.loss(after, i)
			old := pr.loss(pr.q, i)
			require.LessOrEqual(t, best, old*(1+1e-5))
			if pr.p[i] != before[i] || pr.p[24+i] != before[24+i] {
				improved++
			}
			trial := append(Params(nil), pr.p...)
			for dz := float32(-1); dz <= 1; dz++ {
				z := before[24+i] + dz
				if dz != 0 && (s.Sym || z < 1 || z > g.top) {
					continue
				}
				scale := before[i] * 0.7
				for scale < before[i]*1.3 {
					trial[i], trial[24+i] = scale, z
					require.LessOrEqual(t, best, pr.loss(pr.decoded(g, trial), i)*(1+1e-4)+1e-12, "row %d scale %v zero %v", i, scale, z)
					scale = tensor.BF16ToF32(tensor.F32ToBF16(scale) + 1)
				}
			}
		}
		require.Positive(t, improved)
	}
}

// Right codes with a scale that is off by a third are repaired to the stored neighbour of the true scale.
func TestRefitRepairsAScale(t *testing.T) {
	g := newInt(t, packing.Scheme{Bits: 4, GroupSize: 16, Sym: true, ScaleType: tensor.F16}, 16, IntOptions{})
	pr := newProblem(g, 8, 16, 7)
	pr.w = pr.decoded(g, pr.p) // representable weights: the true scale is optimal
	truth := append(Params(nil), pr.p...)
	for i := range pr.rows {
		pr.p[i] = packing.RoundTo(tensor.F16, pr.p[i]*1.3)
	}
	pr.q = pr.decoded(g, pr.p)
	require.True(t, g.Refit(pr.p, pr.codes, pr.residual(), pr.h))
	require.InDeltaSlice(t, truth[:8], pr.p[:8], 1e-6)
	pr.q = pr.decoded(g, pr.p)
	require.False(t, g.Refit(pr.p, pr.codes, pr.residual(), pr.h), "nothing is left to gain")
}

// A negative scale keeps its sign, and a row whose codes all decode to zero is left alone.
func TestRefitKeepsSignAndZeros(t *testing.T) {
	g := newInt(t, packing.Scheme{Bits: 4, GroupSize: 16, Sym: true, ScaleType: tensor.F16}, 16, IntOptions{})
	pr := newProblem(g, 4, 16, 8)
	for i := range pr.rows {
		pr.p[i] = -pr.p[i]
	}
	for k := range pr.cols {
		g.Round(pr.p, k, pr.w.Col(k), pr.q.Col(k), pr.codes[k*4:(k+1)*4])
		pr.codes[k*4] = 8
	}
	pr.q = pr.decoded(g, pr.p)
	first := pr.p[0]
	g.Refit(pr.p, pr.codes, pr.residual(), pr.h)
	require.Equal(t, first, pr.p[0])
	for i := range 4 {
		require.Negative(t, pr.p[i])
		require.False(t, math.IsNaN(float64(pr.p[i])))
	}
}
