package gptq

import (
	"slices"

	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid"
)

// tile is the state of one tile of rows during a solve. Columns of target, q and codes lie in natural order.
type tile struct {
	p      *Prepared
	g      grid.Grid
	rows   int
	target grid.Tile     // what is approximated
	q      grid.Tile     // the values of the codes
	codes  []uint8       // [K, rows]
	params []grid.Params // one set per group
	fixed  bool          // feedback takes params as they are
	loss   []float64     // of every row, as feedback left it: the squares of what it spread
	scratch
}

// scratch is memory that every step overwrites: vectors of rows numbers, and tiles of a group.
type scratch struct {
	x, y, d   []float32
	c         []uint8
	factors   []float32 // of one column of U, or of several
	near, try grid.Tile // [span] columns
}

func newTile(p *Prepared, g grid.Grid, target grid.Tile) *tile {
	n := target.Rows
	t := &tile{p: p, g: g, rows: n, target: target, q: grid.NewTile(n, p.k), loss: make([]float64, n)}
	t.codes = make([]uint8, p.k*t.rows)
	longest := p.layout.spans[0].col1
	t.scratch = scratch{factors: make([]float32, max(feedbackBlock, lookAheadMost)), x: make([]float32, n), y: make([]float32, n), d: make([]float32, n), c: make([]uint8, n),
		near: grid.NewTile(n, longest), try: grid.NewTile(n, min(longest, lookAheadMost))}
	t.params = make([]grid.Params, len(p.layout.spans))
	for i := range t.params {
		t.params[i] = make(grid.Params, g.Width()*t.rows)
	}
	return t
}

// col returns the codes of a column.
func (t *tile) col(c int) []uint8 { return t.codes[c*t.rows : (c+1)*t.rows] }

// feedback runs GPTQ: fills q, codes and params.
func (t *tile) feedback() {
	k, rows, l := t.p.k, t.rows, t.p.layout
	w := grid.NewTile(rows, k) // working copy in visiting order
	for pos, c := range l.order {
		copy(w.Col(pos), t.target.Col(c))
	}
	if !t.fixed && (l.static || l.spans[0].col1 == k) {
		t.fitAll()
	}
	e := grid.NewTile(rows, lookAheadMost)
	for _, b := range l.blocks {
		t.block(b, w, e)
		if b.pos1 == k {
			break
		}
		// Carry the errors of the block on: W[:, after] −= E·U[block, after], transposed as everything here.
		n := b.pos1 - b.pos0
		rest := kernel.MatF32(k-b.pos1, rows, w.Data[b.pos1*rows:])
		u := kernel.MatF32(k, k, t.p.u).Slice(b.pos0, b.pos1, b.pos1, k)
		kernel.GemmTN(nil, rest, u, kernel.MatF32(n, rows, e.Data[:n*rows]), true)
	}
}

// fitAll chooses the parameters of every group from the original weights.
func (t *tile) fitAll() {
	for i, s := range t.p.layout.spans {
		t.g.Fit(t.params[i], t.target.Cut(s.col0, s.col1), t.p.importance[s.col0:s.col1])
	}
}

// block rounds the columns of one block and leaves their negated errors (q − w)/U_kk in e.
func (t *tile) block(b block, w, e grid.Tile) {
	l := t.p.layout
	if len(b.spans) == 0 || t.fixed {
		t.run(b.pos0, b.pos1, b, w, e)
		return
	}
	seen := w // the weights that groups are fitted to
	if t.p.opt.Fit == Boundary {
		seen.Data = slices.Clone(w.Data)
	}
	for _, i := range b.spans {
		s := &l.spans[i]
		t.enter(i, seen)
		if end := s.pos0 + s.col1 - s.col0; end > b.pos1 || t.p.opt.Fit != LookAhead {
			t.run(s.pos0, min(end, b.pos1), b, w, e)
			continue
		}
		for _, sb := range s.subs {
			t.lookAhead(i, sb, w)
			t.run(sb.pos0, sb.pos1, b, w, e)
		}
	}
}

// enter fits the parameters of group i to the weights w. A group that is a whole row keeps the fit to its original
// weights.
func (t *tile) enter(i int, w grid.Tile) {
	s := &t.p.layout.spans[i]
	if s.col0 == 0 && s.col1 == t.p.k {
		return
	}
	now := t.gather(s.pos0, s.pos0+s.col1-s.col0, s.col0, w)
	fit := t.g.Fit
	if t.p.opt.Fit == LookAhead && now.Cols <= lookAheadMost {
		fit = t.g.Start
	}
	fit(t.params[i], now, t.p.importance[s.col0:s.col1])
}

// gather returns the columns at positions [pos0, pos1), which are the storage columns from col0 on, as they lie in
// storage; valid until the next call.
func (t *tile) gather(pos0, pos1, col0 int, w grid.Tile) grid.Tile {
	g := t.near.Cut(0, pos1-pos0)
	for pos := pos0; pos < pos1; pos++ {
		copy(g.Col(t.p.layout.order[pos]-col0), w.Col(pos))
	}
	return g
}

// run rounds positions [p0, p1) one after the other and spreads each error over the rest of the block.
func (t *tile) run(p0, p1 int, b block, w, e grid.Tile) {
	k, errs := t.p.k, e.Data[(p0-b.pos0)*t.rows:]
	share := t.d // of these columns in the loss
	clear(share)
	for pos := p0; pos < p1; pos++ {
		c := t.p.layout.order[pos]
		s := t.p.layout.spanOf(c)
		x, y, err := w.Col(pos), t.q.Col(c), e.Col(pos-b.pos0)
		kernel.AddScaledRows(x, errs, t.rows, t.column(p0, pos, pos))
		t.g.Round(t.params[t.spanIndex(c)], c-s.col0, x, y, t.col(c))
		inv := 1 / t.p.u[pos*k+pos]
		kernel.FeedbackErrors(err, share, x, y, inv)
	}
	for r, v := range share {
		t.loss[r] += float64(v)
	}
	for pos := p1; pos < b.pos1; pos++ {
		kernel.AddScaledRows(w.Col(pos), errs, t.rows, t.column(p0, p1, pos))
	}
}

// column returns elements [p0, p1) of column pos of U, by which the errors of those positions spread to pos; valid until
// the next call. Every weight gets its errors in order of visit, all at once just before it is needed.
func (t *tile) column(p0, p1, pos int) []float32 {
	s := t.factors[:p1-p0]
	for i := range s {
		s[i] = t.p.u[(p0+i)*t.p.k+pos]
	}
	return s
}

func (t *tile) spanIndex(col int) int {
	return col / (t.p.layout.spans[0].col1 - t.p.layout.spans[0].col0)
}
