package grid

import (
	"github.com/llmquant/quantize/quant/grid/ggml"
)

// Fit implements Grid with the reference library's own search, importance playing the imatrix.
func (b *Block) Fit(p Params, w Tile, importance []float32) {
	q := make([]ggml.Params, w.Rows)
	b.s.Fit(q, w.rowMajor(), importance)
	for r := range q {
		b.load(p, &q[r], r, w.Rows)
	}
}

// Start implements Grid: what D and DMin express is decided here and not by proposals, so it is the whole Fit.
func (b *Block) Start(p Params, w Tile, importance []float32) { b.Fit(p, w, importance) }

// rowMajor returns the values row by row.
func (t Tile) rowMajor() []float32 {
	x := make([]float32, len(t.Data))
	for k := range t.Cols {
		for r, v := range t.Col(k) {
			x[r*t.Cols+k] = v
		}
	}
	return x
}

// Propose implements Grid. Where a super-block fixes D and DMin, the sub-block's scale and minimum are fitted afresh to
// its current weights, snapped to what D and DMin can express, and varied by whole steps ("late binding"); small moves
// of the best follow. Types with one sub-block per block vary D and DMin themselves.
func (b *Block) Propose(sub int, w Tile, importance []float32) func(out, best Params) bool {
	scale, minimum := make([]float32, w.Rows), make([]float32, w.Rows)
	weights := make([]float32, len(w.Data))
	for i := range weights {
		weights[i] = 1
		if importance != nil {
			weights[i] = importance[i%w.Cols]
		}
	}
	b.s.FitSub(scale, minimum, w.rowMajor(), weights)
	moves, near := subMovesSym, nearMovesSym
	if b.s.HasMin {
		moves, near = subMovesMin, nearMovesMin
	}
	first, i := true, 0
	return func(out, best Params) bool {
		copy(out, best)
		switch {
		case first:
			first = false
			return true
		case b.subs == 1:
			i++
			return b.proposeBlock(i-1, out, scale, minimum)
		case i < len(moves):
			b.fromFit(out, sub, scale, minimum, moves[i])
		case i < len(moves)+len(near):
			b.nudge(out, sub, w.Rows, near[i-len(moves)])
		default:
			return false
		}
		i++
		return true
	}
}

// move is a step of sub-scale and sub-minimum in whole units.
type move struct{ scale, min float32 }

var (
	subMovesSym  = []move{{0, 0}, {-1, 0}, {1, 0}, {-2, 0}, {2, 0}, {-3, 0}, {3, 0}, {-4, 0}, {4, 0}}
	nearMovesSym = []move{{-1, 0}, {1, 0}}
	subMovesMin  = []move{
		{0, 0}, {-1, 0}, {1, 0}, {-2, 0}, {2, 0}, {0, -1}, {-1, -1}, {1, -1}, {-2, -1}, {2, -1},
		{0, 1}, {-1, 1}, {1, 1}, {-2, 1}, {2, 1},
	}
	nearMovesMin = []move{{-1, 0}, {1, 0}, {0, -1}, {0, 1}}
)

// fromFit sets sub-block sub of out to the stored neighbour of a fit, moved by m.
func (b *Block) fromFit(out Params, sub int, scale, minimum []float32, m move) {
	rows := len(scale)
	for r := range rows {
		if d := out[r]; d != 0 {
			out[(2+sub)*rows+r] = b.clampScale(b.nearestScale(scale[r]/d) + m.scale)
		}
		if dmin := out[rows+r]; b.s.HasMin && dmin != 0 {
			out[(2+b.subs+sub)*rows+r] = b.clampMin(roundEven(min(max(minimum[r]/dmin, 0), float32(b.s.MinMax))) + m.min)
		}
	}
}

// nudge moves the sub-block's own parameters.
func (b *Block) nudge(out Params, sub, rows int, m move) {
	for r := range rows {
		at := (2+sub)*rows + r
		out[at] = b.clampScale(out[at] + m.scale)
		if b.s.HasMin {
			at += b.subs * rows
			out[at] = b.clampMin(out[at] + m.min)
		}
	}
}

// nearestScale returns the sub-scale whose value is nearest to v.
func (b *Block) nearestScale(v float32) float32 {
	if b.units == nil {
		return roundEven(b.clampScale(v))
	}
	best := 0
	for i, u := range b.units {
		if abs32(u-v) < abs32(b.units[best]-v) {
			best = i
		}
	}
	return float32(best) + float32(b.s.ScaleMin)
}

func (b *Block) clampScale(v float32) float32 {
	return min(max(v, float32(b.s.ScaleMin)), float32(b.s.ScaleMax))
}

func (b *Block) clampMin(v float32) float32 { return min(max(v, 0), float32(b.s.MinMax)) }

func abs32(x float32) float32 {
	if x < 0 {
		return -x
	}
	return x
}

// proposeBlock varies the parameters of a block with a single sub-block: the scale of a fresh fit times several factors,
// of both signs where the levels are lopsided, each with the fitted minimum and with that minimum moved by a quarter of
// a step.
func (b *Block) proposeBlock(i int, out Params, scale, minimum []float32) bool {
	signs, shifts := 1, 1
	if b.levels[0] != -b.levels[len(b.levels)-1] && !b.s.HasMin && b.s.RoundD(-1) == -1 {
		signs = 2
	}
	if b.s.HasMin {
		shifts = 3
	}
	factors := blockFactors
	if b.s.RoundD(1.06) == b.s.RoundD(0.97) { // powers of two
		factors = octaves
	}
	if i >= len(factors)*signs*shifts {
		return false
	}
	f := factors[i/(signs*shifts)]
	if i/shifts%signs == 1 {
		f = -f
	}
	rows := len(scale)
	for r := range rows {
		d := b.s.RoundD(scale[r] * f)
		if d == 0 || d-d != 0 {
			continue // keeps the best so far
		}
		out[r] = d
		if b.s.HasMin {
			shift := float32(i%shifts-1) * 0.25
			if m := b.s.RoundD(minimum[r] + float32(shift*d)); m-m == 0 {
				out[rows+r] = m
			}
		}
	}
	return true
}

var (
	blockFactors = []float32{1, 0.97, 1.03, 0.94, 1.06, 0.91, 0.87, 1.1, 0.82}
	octaves      = []float32{1, 0.5, 2}
)
