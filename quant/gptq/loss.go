package gptq

import (
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid"
)

// losses returns the share of every row in L: δ·H·δᵀ with δ = target − q, in float64, in units of the mean diagonal.
func (t *tile) losses(q grid.Tile) []float64 {
	k, rows := t.p.k, t.rows
	delta := grid.NewTile(rows, k)
	for i, v := range t.target.Data {
		delta.Data[i] = v - q.Data[i]
	}
	hd := grid.NewTile(rows, k)
	kernel.GemmNN(nil, kernel.MatF32(k, rows, hd.Data), kernel.MatF32(k, k, t.p.h), kernel.MatF32(k, rows, delta.Data), false)
	loss := make([]float64, rows)
	for i, v := range delta.Data {
		loss[i%rows] += float64(float64(v) * float64(hd.Data[i]))
	}
	return loss
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
