package gptq

import (
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid"
)

// refine lowers L with what feedback left: block by block, the residual R = (Wt − Q)·H of the block's columns is formed by
// one matrix product, then parameters are refitted to the codes and codes to the parameters, several times with local
// updates of R alone. It returns the number of passes that changed something.
func (t *tile) refine() int {
	delta := grid.NewTile(t.rows, t.p.k) // Wt − Q
	for i, v := range t.target.Data {
		delta.Data[i] = v - t.q.Data[i]
	}
	for pass := range t.p.opt.Passes {
		changed := false
		for i := range t.p.layout.spans {
			changed = t.refineSpan(i, delta) || changed
		}
		if !changed {
			return pass
		}
	}
	return t.p.opt.Passes
}

// refineSpan improves one group. Groups too long for local updates are refitted once and descended in pieces.
func (t *tile) refineSpan(i int, delta grid.Tile) bool {
	s := &t.p.layout.spans[i]
	if s.col1-s.col0 <= descentBlock {
		return t.refineBlock(i, s.col0, s.col1, delta, true)
	}
	r := t.residual(s.col0, s.col1, delta)
	changed := t.refit(i, r, delta)
	for c := s.col0; c < s.col1; c += descentBlock {
		changed = t.refineBlock(i, c, min(c+descentBlock, s.col1), delta, false) || changed
	}
	return changed
}

// residual computes columns [c0, c1) of (Wt − Q)·H: with H symmetric, H[c0:c1, :]·delta.
func (t *tile) residual(c0, c1 int, delta grid.Tile) grid.Tile {
	k, rows := t.p.k, t.rows
	r := grid.NewTile(rows, c1-c0)
	h := kernel.MatF32(k, k, t.p.h).Slice(c0, c1, 0, k)
	kernel.GemmNN(nil, kernel.MatF32(c1-c0, rows, r.Data), h, kernel.MatF32(k, rows, delta.Data), false)
	return r
}

func (t *tile) refineBlock(i, c0, c1 int, delta grid.Tile, whole bool) bool {
	r := t.residual(c0, c1, delta)
	any := false
	for range t.p.opt.Inner {
		changed := whole && t.refit(i, r, delta)
		changed = t.sweep(i, c0, c1, r, delta) || changed
		if !changed {
			break
		}
		any = true
	}
	return any
}

// refit lets the grid improve the parameters of group i and carries the new values into q, delta and r.
func (t *tile) refit(i int, r, delta grid.Tile) bool {
	s := &t.p.layout.spans[i]
	n := s.col1 - s.col0
	h := t.cut(s.col0, s.col1)
	if !t.g.Refit(t.params[i], t.codes[s.col0*t.rows:s.col1*t.rows], r, h) {
		return false
	}
	change, y := t.near.Cut(0, n), t.y
	for a := range n {
		c := s.col0 + a
		t.g.Decode(t.params[i], a, t.col(c), y)
		q, d, ch := t.q.Col(c), delta.Col(c), change.Col(a)
		for j := range y {
			ch[j] = q[j] - y[j]
			q[j] = y[j]
			d[j] += ch[j]
		}
	}
	kernel.GemmNN(nil, kernel.MatF32(n, t.rows, r.Data), kernel.MatF32(n, n, h), kernel.MatF32(n, t.rows, change.Data), true)
	return true
}

// cut returns the square of H over columns [c0, c1).
func (t *tile) cut(c0, c1 int) []float32 {
	n := c1 - c0
	if n == t.p.k {
		return t.p.h
	}
	h := make([]float32, n*n)
	for a := range n {
		copy(h[a*n:(a+1)*n], t.p.h[(c0+a)*t.p.k+c0:])
	}
	return h
}

// sweep is one cycle of coordinate descent over columns [c0, c1) of group i: with all other codes fixed, the best value of
// weight k is the representable one nearest to Q_k + R_k/H_kk.
func (t *tile) sweep(i, c0, c1 int, r, delta grid.Tile) bool {
	k := t.p.k
	s := &t.p.layout.spans[i]
	x, y, d, codes := t.x, t.y, t.d, t.c
	any := false
	for c := c0; c < c1; c++ {
		rc, q := r.Col(c-c0), t.q.Col(c)
		inv := 1 / t.p.h[c*k+c]
		for j := range x {
			x[j] = q[j] + float32(rc[j]*inv)
		}
		t.g.Round(t.params[i], c-s.col0, x, y, codes)
		if !grid.Accept(x, y, q, d, codes, t.col(c)) {
			continue
		}
		any = true
		kernel.AddScaled(delta.Col(c), d, -1)
		row := t.p.h[c*k : (c+1)*k]
		for a := c0; a < c1; a++ {
			kernel.AddScaled(r.Col(a-c0), d, -row[a])
		}
	}
	return any
}

// restart solves the tile again from the parameters it has now and keeps the better solution of each row, loss holding
// the losses. Feedback with good parameters often ends in another, lower, minimum than the one that refinement reached
// from poorer ones.
func (t *tile) restart(loss []float64) {
	a := newTile(t.p, t.g, t.target)
	a.fixed = true
	for i := range t.params {
		copy(a.params[i], t.params[i])
	}
	a.feedback()
	a.refine()
	for r, l := range a.losses(a.q) {
		if l < loss[r] {
			loss[r] = l
			t.takeRow(a, r)
		}
	}
}
