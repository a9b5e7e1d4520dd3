package exl2

import (
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid"
)

// feedbackBlock is the number of columns after which errors are carried to the rest of the row, as one matrix product.
const feedbackBlock = 128

// tileRows is the number of outputs that are rounded together. They meet only in the choice of the largest steps, whose
// sums are taken tile by tile.
const tileRows = 64

// span is a group on its way through a solve: positions [pos0, pos1) in order of visit.
type span struct {
	steps
	group      int // index in packed order
	pos0, pos1 int
	h, u       []float32 // the group's square of H, and the factor of its inverse; nil without refinement
}

// tile is the state of some outputs during a solve; columns and groups lie in order of visit.
type tile struct {
	*arrangement
	opt    Options
	k      int
	spans  []span
	rows   int
	target grid.Tile
	q      grid.Tile
	codes  []uint8 // [K, rows]
	scale  []uint8 // [groups, rows]
}

func newTile(a *arrangement, o Options, spans []span, target grid.Tile) *tile {
	k, rows := target.Cols, target.Rows
	return &tile{arrangement: a, opt: o, k: k, spans: spans, rows: rows, target: target, q: grid.NewTile(rows, k),
		codes: make([]uint8, k*rows), scale: make([]uint8, len(spans)*rows)}
}

func (t *tile) col(pos int) []uint8  { return t.codes[pos*t.rows : (pos+1)*t.rows] }
func (t *tile) scales(i int) []uint8 { return t.scale[i*t.rows : (i+1)*t.rows] }

// plain rounds every weight to nearest, each output with the best scale for its group.
func (t *tile) plain() {
	for i := range t.spans {
		s := &t.spans[i]
		t.choose(i, t.target.Cut(s.pos0, s.pos1), nil)
		for pos := s.pos0; pos < s.pos1; pos++ {
			s.round(t.target.Col(pos), t.q.Col(pos), t.scales(i), t.col(pos))
		}
	}
}

// feedback is GPTQ: columns are rounded one after the other, the error of each is spread over those to come. A group's scales
// are chosen when it is reached.
func (t *tile) feedback() {
	k, rows := t.k, t.rows
	w := grid.Tile{Rows: rows, Cols: k, Data: append([]float32(nil), t.target.Data...)}
	e := grid.NewTile(rows, 0)
	for i := 0; i < len(t.spans); {
		from, to := t.spans[i].pos0, t.spans[i].pos1
		last := i + 1
		for last < len(t.spans) && t.spans[last].pos1-from <= feedbackBlock {
			to = t.spans[last].pos1
			last++
		}
		if n := (to - from) * rows; len(e.Data) < n {
			e.Data = make([]float32, n)
		}
		for ; i < last; i++ {
			t.group(i, from, to, w, e)
		}
		if to == k {
			break
		}
		// W[:, after] += E·U[block, after], transposed as everything here; e holds the negated errors.
		rest := kernel.MatF32(k-to, rows, w.Data[to*rows:])
		u := kernel.MatF32(k, k, t.u).Slice(from, to, to, k)
		kernel.GemmTN(nil, rest, u, kernel.MatF32(to-from, rows, e.Data[:(to-from)*rows]), true)
	}
}

// group chooses the scales of group i and rounds its columns, spreading errors over the block [from, to).
func (t *tile) group(i, from, to int, w, e grid.Tile) {
	s, k := &t.spans[i], t.k
	factor := kernel.MatF32(k, k, t.u).Slice(s.pos0, s.pos1, s.pos0, s.pos1)
	t.choose(i, w.Cut(s.pos0, s.pos1), &factor)
	for pos := s.pos0; pos < s.pos1; pos++ {
		x, y := w.Col(pos), t.q.Col(pos)
		s.round(x, y, t.scales(i), t.col(pos))
		row := t.u[pos*k : pos*k+to]
		inv := 1 / row[pos]
		err := e.Data[(pos-from)*t.rows : (pos-from+1)*t.rows]
		for r := range err {
			err[r] = (y[r] - x[r]) * inv
		}
		for j := pos + 1; j < to; j++ {
			kernel.AddScaled(w.Col(j), err, row[j])
		}
	}
}

// The range of steps that are tried for an output, relative to the one that just covers its widest weight.
const (
	widestStep    = 1.02
	narrowestStep = 0.36
	mostTrials    = 8
)

// choose picks the scale of every output in group i for the current weights x. With a factor, each scale is tried with
// feedback inside the group, which gives the group's exact share of the loss; without one, by the weighted error.
func (t *tile) choose(i int, x grid.Tile, u *kernel.Mat) {
	s := &t.spans[i]
	high, floor := t.ranges(s, x)
	best, trial := t.scales(i), make([]uint8, t.rows)
	loss, least := make([]float32, t.rows), make([]float32, t.rows)
	work := grid.NewTile(t.rows, x.Cols)
	for c := range mostTrials {
		more := c == 0
		for r, h := range high {
			trial[r] = uint8(max(int(h)-c, 0))
			more = more || int(h) >= c && s.size[trial[r]] >= floor[r]
		}
		if !more {
			break
		}
		t.try(s, x, work, u, trial, loss)
		for r, v := range loss {
			if c == 0 || v < least[r] {
				least[r], best[r] = v, trial[r]
			}
		}
	}
}

// ranges returns for every output the scale code with which its widest weight is covered, and the narrowest step worth
// trying.
func (t *tile) ranges(s *span, x grid.Tile) (high []uint8, floor []float32) {
	high, floor = make([]uint8, t.rows), make([]float32, t.rows)
	for k := range x.Cols {
		for r, v := range x.Col(k) {
			floor[r] = max(floor[r], v, -v)
		}
	}
	for r, peak := range floor {
		cover := reach(s.bits, peak)
		floor[r] = narrowestStep * cover
		for high[r] < scaleCodes-1 && s.size[high[r]] < widestStep*cover {
			high[r]++
		}
	}
	return high, floor
}

// try leaves in loss what every output loses with the scales of trial.
func (t *tile) try(s *span, x, work grid.Tile, u *kernel.Mat, trial []uint8, loss []float32) {
	clear(loss)
	if u == nil {
		for k := range x.Cols {
			im := t.weight[s.pos0+k]
			for r, v := range x.Col(k) {
				d := s.nearest(v, trial[r]) - v
				loss[r] += float32(im * float32(d*d))
			}
		}
		return
	}
	copy(work.Data, x.Data)
	e := make([]float32, t.rows)
	for k := range x.Cols {
		row, col := u.Row(k), work.Col(k)
		inv := 1 / row[k]
		for r, v := range col {
			d := (s.nearest(v, trial[r]) - v) * inv
			e[r] = d
			loss[r] += float32(d * d)
		}
		for j := k + 1; j < x.Cols; j++ {
			kernel.AddScaled(work.Col(j), e, row[j])
		}
	}
}

// nearest returns the value nearest to v with scale code s.
func (st *steps) nearest(v float32, s uint8) float32 {
	return packing.RoundHalf(st.size[s] * roundEven(min(max(v*st.inv[s], st.lo), st.hi)))
}
