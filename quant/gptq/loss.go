package gptq

import (
	"slices"

	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid"
)

// lossBlock is the number of columns whose products with H are held at a time while losses are summed.
const lossBlock = 512

// losses returns the share of every row in L: δ·H·δᵀ with δ = target − q, in float64, in units of the mean diagonal. H is
// symmetric: what lies right of a block of its diagonal counts twice and what lies left is left out, which is half the work.
func (t *tile) losses(q grid.Tile) []float64 {
	k, rows := t.p.k, t.rows
	delta := grid.NewTile(rows, k)
	for i, v := range t.target.Data {
		delta.Data[i] = v - q.Data[i]
	}
	h, d := kernel.MatF32(k, k, t.p.h), kernel.MatF32(k, rows, delta.Data)
	product := grid.NewTile(rows, min(k, lossBlock))
	loss := make([]float64, rows)
	for c0 := 0; c0 < k; c0 += lossBlock {
		c1 := min(c0+lossBlock, k)
		hd := product.Cut(0, c1-c0)
		m := kernel.MatF32(c1-c0, rows, hd.Data)
		if c1 < k {
			kernel.GemmNN(nil, m, h.Slice(c0, c1, c1, k), d.Slice(c1, k, 0, rows), false)
			kernel.Scale(hd.Data, 2)
		}
		kernel.GemmNN(nil, m, h.Slice(c0, c1, c0, c1), d.Slice(c0, c1, 0, rows), c1 < k)
		for c := c0; c < c1; c++ {
			x := hd.Col(c - c0)
			for r, v := range delta.Col(c) {
				loss[r] += float64(float64(v) * float64(x[r]))
			}
		}
	}
	return loss
}

// Quadratic returns Σ_n δ_n·H·δ_nᵀ over the rows of delta [N,K] for a symmetric h [K,K], with half the products.
func Quadratic(pool *kernel.Pool, delta, h kernel.Mat) float64 {
	k, n := delta.Cols, delta.Rows
	scratch := make([]float32, n*min(k, lossBlock))
	var total float64
	for c0 := 0; c0 < k; c0 += lossBlock {
		c1 := min(c0+lossBlock, k)
		m := kernel.MatF32(n, c1-c0, scratch[:n*(c1-c0)])
		if c1 < k { // H[after, block] is H[block, after] transposed
			kernel.GemmNT(pool, m, delta.Slice(0, n, c1, k), h.Slice(c0, c1, c1, k), false)
			kernel.Scale(m.F32, 2)
		}
		kernel.GemmNT(pool, m, delta.Slice(0, n, c0, c1), h.Slice(c0, c1, c0, c1), c1 < k)
		for i := range n {
			total += kernel.Dot64(m.Row(i), delta.Row(i)[c0:c1])
		}
	}
	return max(total, 0)
}

// Squared returns Σ_n δ_n·H·δ_nᵀ over the rows of delta [N,K] for H as it was given, undamped: the mean squared error that
// the weight error delta causes at the outputs, summed over them.
func (p *Prepared) Squared(pool *kernel.Pool, delta kernel.Mat) float64 {
	k, h := p.k, moments{p.stats.H, p.stats.H32}
	if p.h == nil { // what H holds was no use to Prepare either
		return Quadratic(pool, delta, kernel.MatF32(k, k, h.scaled(pool, nil, k, 1, moments{}, 0)))
	}
	var columns []int // of h; nil: as they lie
	if p.opt.Order == Indexed && p.Fallback == "" {
		columns, delta = p.order, p.stored(pool, delta)
	}
	squares := make([]float64, k)
	kernel.ColSumSq(squares, delta)
	total := Quadratic(pool, delta, kernel.MatF32(k, k, p.h))
	for i, v := range squares {
		c := i
		if columns != nil {
			c = columns[i]
		}
		d := p.diag[c]
		if slices.Contains(p.Dead, c) {
			d = 0
		}
		total -= float64((float64(p.h[i*k+i]) - d) * v)
	}
	return max(total, 0) * p.mean
}

// stored returns the columns of m [N,K] as the solver stores them with Indexed.
func (p *Prepared) stored(pool *kernel.Pool, m kernel.Mat) kernel.Mat {
	s := kernel.MatF32(m.Rows, p.k, make([]float32, m.Rows*p.k))
	pool.Run(m.Rows, func(n int) {
		from, to := m.Row(n), s.Row(n)
		for pos, c := range p.order {
			to[pos] = from[c]
		}
	})
	return s
}

// nearest rounds the original weights of the tile plainly.
func (t *tile) nearest(w grid.Tile) *tile {
	n := newTile(t.p, t.g, w)
	for i, s := range t.p.layout.spans {
		t.g.Start(n.params[i], w.Cut(s.col0, s.col1), t.p.importance[s.col0:s.col1])
		for c := s.col0; c < s.col1; c++ {
			t.g.Round(n.params[i], c-s.col0, w.Col(c), n.q.Col(c), n.col(c))
		}
	}
	return n
}

// takeRow copies row r of another solution of the same tile.
func (t *tile) takeRow(from *tile, r int) {
	for c := range t.p.k {
		t.q.Data[c*t.rows+r] = from.q.Data[c*t.rows+r]
		t.codes[c*t.rows+r] = from.codes[c*t.rows+r]
	}
	for i := range t.params {
		t.params[i].CopyRow(from.params[i], r, t.rows)
	}
}
