package exl2

import (
	"slices"

	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid"
)

// refine lowers the loss with what feedback left, group by group: with all other groups fixed, the best real values of a
// group follow from the residual R = (target − q)·H; they are rounded anew with feedback, with the scales next to the old
// ones as well, then single codes are moved while that helps. It returns the number of passes that changed something.
func (t *tile) refine() int {
	delta := grid.NewTile(t.rows, t.k)
	for i, v := range t.target.Data {
		delta.Data[i] = v - t.q.Data[i]
	}
	if slices.ContainsFunc(t.spans, func(s span) bool { return s.u == nil }) {
		return 0
	}
	for pass := range t.opt.Passes {
		changed := false
		for i := range t.spans {
			changed = t.refineSpan(i, delta) || changed
		}
		if !changed {
			return pass
		}
	}
	return t.opt.Passes
}

func (t *tile) refineSpan(i int, delta grid.Tile) bool {
	s, k := &t.spans[i], t.k
	n := s.pos1 - s.pos0
	r := grid.NewTile(t.rows, n)
	h := kernel.MatF32(k, k, t.h).Slice(s.pos0, s.pos1, 0, k)
	kernel.GemmNN(nil, kernel.MatF32(n, t.rows, r.Data), h, kernel.MatF32(k, t.rows, delta.Data), false)
	changed := t.resolve(i, r, delta)
	for range t.opt.Inner {
		if !t.sweep(i, r, delta) {
			break
		}
		changed = true
	}
	return changed
}

// resolve rounds group i anew from its best real values and keeps, output by output, what lowers the loss.
func (t *tile) resolve(i int, r, delta grid.Tile) bool {
	s := &t.spans[i]
	n := s.pos1 - s.pos0
	u, rm := kernel.MatF32(n, n, s.u), kernel.MatF32(n, t.rows, r.Data)
	half, shift := grid.NewTile(t.rows, n), grid.NewTile(t.rows, n)
	kernel.GemmNN(nil, kernel.MatF32(n, t.rows, half.Data), u, rm, false)
	kernel.GemmTN(nil, kernel.MatF32(n, t.rows, shift.Data), u, kernel.MatF32(n, t.rows, half.Data), false)
	least := make([]float32, t.rows) // loss of the group as it is, less what a new solution must save
	for a := range n {
		c, ra := shift.Col(a), r.Col(a)
		for j := range least {
			least[j] += float32(c[j] * ra[j])
		}
	}
	for j := range least {
		least[j] *= 1 - grid.FlipMargin // the least share of a loss that a new solution must save
	}
	x := shift
	for a := range n {
		q := t.q.Col(s.pos0 + a)
		for j, v := range x.Col(a) {
			x.Col(a)[j] = v + q[j]
		}
	}
	best, better := t.neighbours(i, x, u, least)
	if !better {
		return false
	}
	t.replace(i, x, u, best, r, delta)
	return true
}

// neighbours tries the scale codes of group i and those next to them on x and returns the best for each output, or
// noScale where nothing undercuts least.
func (t *tile) neighbours(i int, x grid.Tile, u kernel.Mat, least []float32) (best []uint8, better bool) {
	s, old := &t.spans[i], t.scales(i)
	best = make([]uint8, t.rows)
	for j := range best {
		best[j] = noScale
	}
	trial, loss, work := make([]uint8, t.rows), make([]float32, t.rows), grid.NewTile(t.rows, x.Cols)
	for _, step := range []int{0, -1, 1} {
		for j, c := range old {
			trial[j] = uint8(min(max(int(c)+step, 0), scaleCodes-1))
		}
		t.try(s, x, work, &u, trial, loss)
		for j, v := range loss {
			if v < least[j] {
				least[j], best[j], better = v, trial[j], true
			}
		}
	}
	return best, better
}

const noScale = 255

// replace rounds x with the scales of best and carries the new values of those outputs into the solution.
func (t *tile) replace(i int, x grid.Tile, u kernel.Mat, best []uint8, r, delta grid.Tile) {
	s := &t.spans[i]
	n := s.pos1 - s.pos0
	scale := append([]uint8(nil), best...)
	for j, b := range best {
		if b == noScale {
			scale[j] = t.scales(i)[j]
		} else {
			t.scales(i)[j] = b
		}
	}
	y, e, codes, moved := make([]float32, t.rows), make([]float32, t.rows), make([]uint8, t.rows), grid.NewTile(t.rows, n)
	for a := range n {
		pos := s.pos0 + a
		col, row := x.Col(a), u.Row(a)
		s.round(col, y, scale, codes)
		inv := 1 / row[a]
		for j := range e {
			e[j] = (y[j] - col[j]) * inv
		}
		for b := a + 1; b < n; b++ {
			kernel.AddScaled(x.Col(b), e, row[b])
		}
		q, d, m, old := t.q.Col(pos), delta.Col(pos), moved.Col(a), t.col(pos)
		for j, b := range best {
			if b != noScale {
				m[j] = q[j] - y[j]
				q[j], old[j] = y[j], codes[j]
				d[j] += m[j]
			}
		}
	}
	kernel.GemmNN(nil, kernel.MatF32(n, t.rows, r.Data), kernel.MatF32(n, n, s.h), kernel.MatF32(n, t.rows, moved.Data), true)
}

// sweep is one cycle of coordinate descent over group i: with all other codes fixed, the best value of weight k is the
// representable one nearest to q_k + R_k/H_kk.
func (t *tile) sweep(i int, r, delta grid.Tile) bool {
	s := &t.spans[i]
	n := s.pos1 - s.pos0
	x, y, d, codes := make([]float32, t.rows), make([]float32, t.rows), make([]float32, t.rows), make([]uint8, t.rows)
	any := false
	for a := range n {
		pos, row := s.pos0+a, s.h[a*n:(a+1)*n]
		ra, q := r.Col(a), t.q.Col(pos)
		inv := 1 / row[a]
		for j := range x {
			x[j] = q[j] + float32(ra[j]*inv)
		}
		s.round(x, y, t.scales(i), codes)
		if !grid.Accept(x, y, q, d, codes, t.col(pos)) {
			continue
		}
		any = true
		kernel.AddScaled(delta.Col(pos), d, -1)
		for b := range n {
			kernel.AddScaled(r.Col(b), d, -row[b])
		}
	}
	return any
}
