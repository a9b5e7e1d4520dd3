package grid

import (
	"math"

	"github.com/llmquant/quantize/internal/kernel"
)

// Refit implements Grid in two levels: first every sub-block's scale and minimum with D and DMin fixed, each seeing the
// changes of those before, then D and DMin of the whole block.
func (b *Block) Refit(p Params, codes []uint8, r Tile, h []float32) bool {
	f := newBlockRefit(b, p, codes, r, h)
	changed := false
	if b.subs > 1 {
		for sub := range b.subs {
			changed = f.refitSub(sub) || changed
		}
	}
	return f.refitBlock() || changed
}

// blockRefit is the state of one Refit: c holds the levels of the codes, r the residual (w − y)·H as changes go on.
type blockRefit struct {
	*Block
	p    Params
	rows int
	c, r Tile
	h    kernel.Mat
	sum  []float64 // [5, rows] the sums of a quadratic in two unknowns
}

func newBlockRefit(b *Block, p Params, codes []uint8, r Tile, h []float32) *blockRefit {
	n := r.Rows
	f := &blockRefit{Block: b, p: p, rows: n, c: NewTile(n, r.Cols), r: NewTile(n, r.Cols),
		h: kernel.MatF32(r.Cols, r.Cols, h), sum: make([]float64, 5*n)}
	copy(f.r.Data, r.Data)
	for i, c := range codes {
		f.c.Data[i] = b.s.Levels[c]
	}
	return f
}

// quadratic fills sum with, per row, r·v, r·u, v·H·v, v·H·u and u·H·u over columns [c0, c1), for tiles v and u.
func (f *blockRefit) quadratic(c0, c1 int, v, u Tile) {
	n := c1 - c0
	hv, hu := NewTile(f.rows, n), NewTile(f.rows, n)
	h := f.h.Slice(c0, c1, c0, c1)
	kernel.GemmNN(nil, hv.mat(), h, v.mat(), false)
	kernel.GemmNN(nil, hu.mat(), h, u.mat(), false)
	clear(f.sum)
	for k := range n {
		rk, vk, uk, hvk, huk := f.r.Col(c0+k), v.Col(k), u.Col(k), hv.Col(k), hu.Col(k)
		for i := range f.rows {
			s := f.sum[5*i : 5*i+5]
			s[0] += float64(rk[i] * vk[i])
			s[1] += float64(rk[i] * uk[i])
			s[2] += float64(hvk[i] * vk[i])
			s[3] += float64(hvk[i] * uk[i])
			s[4] += float64(huk[i] * uk[i])
		}
	}
}

// mat views a tile as the matrix [Cols, Rows] that it is in memory.
func (t Tile) mat() kernel.Mat { return kernel.MatF32(t.Cols, t.Rows, t.Data) }

// quad is a quadratic gain 2(x·g1 + y·g2) − (x²·h11 + 2xy·h12 + y²·h22).
type quad struct{ g1, g2, h11, h12, h22 float64 }

func (f *blockRefit) row(i int) quad {
	s := f.sum[5*i : 5*i+5]
	return quad{s[0], s[1], s[2], s[3], s[4]}
}

func (q quad) gain(x, y float64) float64 {
	return 2*(float64(x*q.g1)+float64(y*q.g2)) - (float64(x*x*q.h11) + float64(2*x*y*q.h12) + float64(y*y*q.h22))
}

// vertex returns the x that is best together with its own best y, or alone when the two directions are nearly one.
func (q quad) vertex(both bool) (x float64, ok bool) {
	if !(q.h11 > 0) {
		return 0, false
	}
	if det := float64(q.h11*q.h22) - float64(q.h12*q.h12); both && det > 1e-9*q.h11*q.h22 {
		return (float64(q.g1*q.h22) - float64(q.g2*q.h12)) / det, true
	}
	return q.g1 / q.h11, true
}

// second returns the y that is best for a given x.
func (q quad) second(x float64) float64 {
	if !(q.h22 > 0) {
		return 0
	}
	return (q.g2 - float64(q.h12*x)) / q.h22
}

// refitSub improves scale and minimum of one sub-block: a change of the step by a and of the minimum by b moves its
// values by a·c − b.
func (f *blockRefit) refitSub(sub int) bool {
	c0 := sub * f.s.Sub
	c := f.c.Cut(c0, c0+f.s.Sub)
	minus := NewTile(f.rows, f.s.Sub)
	for i := range minus.Data {
		minus.Data[i] = -1
	}
	f.quadratic(c0, c0+f.s.Sub, c, minus)
	changed := false
	var a, m []float32
	for r := range f.rows {
		da, dm := f.subRow(sub, r)
		if da == 0 && dm == 0 {
			continue
		}
		if !changed {
			changed, a, m = true, make([]float32, f.rows), make([]float32, f.rows)
		}
		a[r], m[r] = da, dm
	}
	if changed {
		f.carry(c0, c, a, m)
	}
	return changed
}

// subRow chooses the best stored neighbours of the optimum and returns the changes of step and minimum.
func (f *blockRefit) subRow(sub, r int) (da, dm float32) {
	d, dmin := f.p[r], f.p[f.rows+r]
	if d == 0 {
		return 0, 0
	}
	q := f.row(r)
	x, ok := q.vertex(f.s.HasMin)
	if !ok {
		return 0, 0
	}
	at, atMin := (2+sub)*f.rows+r, (2+f.subs+sub)*f.rows+r
	step, minimum := f.step(f.p, sub, r, f.rows)
	oldMin := float32(0)
	if f.s.HasMin {
		oldMin = f.p[atMin]
	}
	best, scale, newMin := 0.0, f.p[at], oldMin
	middle := f.nearestScale(float32((float64(step) + x) / float64(d)))
	for _, u := range [...]float32{0, -1, 1} {
		s := f.clampScale(middle + u)
		a := float64(d*f.unit(s)) - float64(step)
		m := oldMin
		if f.s.HasMin && dmin != 0 {
			want := float32((float64(minimum) + q.second(a)) / float64(dmin))
			m = roundEven(min(max(want, 0), float32(f.s.MinMax)))
		}
		if g := q.gain(a, float64(dmin*m)-float64(minimum)); g > best {
			best, scale, newMin = g, s, m
			da, dm = float32(a), float32(dmin*m)-minimum
		}
	}
	f.p[at] = scale
	if f.s.HasMin {
		f.p[atMin] = newMin
	}
	return da, dm
}

// carry updates the residual of the whole block for a change a·c − m of the sub-block's values.
func (f *blockRefit) carry(c0 int, c Tile, a, m []float32) {
	minus := NewTile(f.rows, c.Cols)
	for k := range c.Cols {
		ck, dk := c.Col(k), minus.Col(k)
		for r := range dk {
			dk[r] = m[r] - float32(a[r]*ck[r])
		}
	}
	h := f.h.Slice(c0, c0+c.Cols, 0, f.h.Cols)
	kernel.GemmTN(nil, f.r.mat(), h, minus.mat(), true)
}

// refitBlock improves D and DMin: with v = unit·level and u = −Min, the values move by x·v + y·u.
func (f *blockRefit) refitBlock() bool {
	cols := f.r.Cols
	v, u := NewTile(f.rows, cols), NewTile(f.rows, cols)
	for k := range cols {
		sub := k / f.s.Sub
		scale := f.p.Plane(2+sub, f.rows)
		for r, c := range f.c.Col(k) {
			v.Col(k)[r] = f.unit(scale[r]) * c
		}
		if f.s.HasMin {
			for r, m := range f.p.Plane(2+f.subs+sub, f.rows) {
				u.Col(k)[r] = -m
			}
		}
	}
	f.quadratic(0, cols, v, u)
	changed := false
	for r := range f.rows {
		changed = f.blockRow(r) || changed
	}
	return changed
}

func (f *blockRefit) blockRow(r int) bool {
	q := f.row(r)
	d, dmin := f.p[r], f.p[f.rows+r]
	x, ok := q.vertex(f.s.HasMin)
	if !ok || d == 0 {
		return false
	}
	d2 := f.s.RoundD(float32(float64(d) + x))
	if d2 == 0 || math.IsInf(float64(d2), 0) || (d2 > 0) != (d > 0) {
		d2 = d
	}
	dmin2 := dmin
	if f.s.HasMin {
		dmin2 = f.s.RoundD(float32(float64(dmin) + q.second(float64(d2)-float64(d))))
		if math.IsInf(float64(dmin2), 0) || f.subs > 1 && dmin2 < 0 { // a super-block's minima are not negative
			dmin2 = dmin
		}
	}
	if d2 == d && dmin2 == dmin || q.gain(float64(d2)-float64(d), float64(dmin2)-float64(dmin)) <= 0 {
		return false
	}
	f.p[r], f.p[f.rows+r] = d2, dmin2
	return true
}
