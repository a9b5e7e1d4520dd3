package grid

import (
	"math"

	"github.com/llmquant/quantize/formats/tensor"
)

// shrinkStep is the step of the range search: factors 1, 0.97, 0.94 … of the full range.
const shrinkStep = 0.03

// shrinks returns the number of factors worth trying. The fewer the codes, the more a group gains from clipping its
// extremes: the best factor is seldom below 0.43 at 2 bits, 0.7 at 4 and 0.9 at 8.
func (g *Int) shrinks() int {
	switch {
	case g.scheme.Bits <= 2:
		return 20
	case g.scheme.Bits == 3:
		return 15
	case g.scheme.Bits <= 5:
		return 11
	}
	return 5
}

// Fit implements Grid.
func (g *Int) Fit(p Params, w Tile, importance []float32) {
	if !g.opt.Search {
		g.Start(p, w, importance)
		return
	}
	lo, hi := make([]float32, w.Rows), make([]float32, w.Rows)
	g.ranges(w, lo, hi)
	s := newIntSearch(g, p, w, importance)
	for i := range g.shrinks() {
		f := 1 - float32(shrinkStep*float32(i))
		g.fromRanges(s.trial, lo, hi, f)
		s.try()
		if g.flips() {
			s.flip()
			s.try()
		}
	}
	for range 2 {
		s.leastSquares()
		s.try()
	}
}

// Start implements Grid: the full range.
func (g *Int) Start(p Params, w Tile, _ []float32) {
	lo, hi := make([]float32, w.Rows), make([]float32, w.Rows)
	g.ranges(w, lo, hi)
	g.fromRanges(p, lo, hi, 1)
}

// flips reports whether mirrored scales are worth trying: symmetric two's complement has one code more below zero.
func (g *Int) flips() bool { return g.scheme.Sym && !g.opt.Positive }

// Propose implements Grid: the best so far, then shrunken ranges of the current weights, each with both signs where the
// grid allows them, then small moves of the best.
func (g *Int) Propose(_ int, w Tile, _ []float32) func(out, best Params) bool {
	lo, hi := make([]float32, w.Rows), make([]float32, w.Rows)
	g.ranges(w, lo, hi)
	signs := 1
	if g.flips() {
		signs = 2
	}
	shrinks, i := g.shrinks()*signs, -2
	return func(out, best Params) bool {
		i++
		switch {
		case i < 0:
			copy(out, best)
		case i >= shrinks:
			return g.nudge(i-shrinks, out, best, w.Rows)
		default:
			g.fromRanges(out, lo, hi, 1-float32(shrinkStep*float32(i/signs)))
			if i%signs == 1 {
				negate(out.Plane(0, w.Rows))
			}
		}
		return true
	}
}

// nudge proposes a small move of the parameters p themselves: of the scale when symmetric, else of one end of the range.
func (g *Int) nudge(i int, out, p Params, n int) bool {
	ends := 2
	if g.scheme.Sym {
		ends = 1
	}
	if i >= len(nudges)*ends {
		return false
	}
	f := nudges[i/ends]
	scale, zero := p.Plane(0, n), p.Plane(1, n)
	for r := range n {
		s, z := scale[r], zero[r]
		if g.scheme.Sym {
			out[r], out[n+r] = g.storedSigned(s*f, s), z
			continue
		}
		lo, hi := -s*z, s*(g.top-z)
		if i%ends == 0 {
			lo *= f
		} else {
			hi *= f
		}
		out[r], out[n+r] = g.params(lo, hi)
	}
	return true
}

// nudges are the moves that follow the shrinking.
var nudges = [...]float32{0.985, 1.015, 0.95, 1.05, 0.9, 1.1}

func negate(x []float32) {
	for i := range x {
		x[i] = -x[i]
	}
}

// ranges finds the range of each row under the grid's rule.
func (g *Int) ranges(w Tile, lo, hi []float32) {
	if g.opt.Range == RangeAWQ { // 0 is no member of the range unless a weight is
		copy(lo, w.Col(0))
		copy(hi, w.Col(0))
	}
	for k := range w.Cols {
		for r, v := range w.Col(k) {
			lo[r] = min(lo[r], v)
			hi[r] = max(hi[r], v)
		}
	}
	if g.scheme.Sym {
		for r := range lo {
			hi[r] = max(hi[r], -lo[r])
			lo[r] = -hi[r]
		}
	}
}

// fromRanges sets every row's parameters from f times its range.
func (g *Int) fromRanges(p Params, lo, hi []float32, f float32) {
	n := len(lo)
	scale, zero := p.Plane(0, n), p.Plane(1, n)
	for r := range n {
		scale[r], zero[r] = g.params(lo[r]*f, hi[r]*f)
	}
}

// params returns scale and zero point of a range, the scale as stored. A row of zeros gets scale 1.
func (g *Int) params(lo, hi float32) (scale, zero float32) {
	width, codes := hi-lo, g.top
	if g.opt.Range == RangeAWQ {
		width = max(width, awqFloor)
		if g.scheme.Sym {
			width, codes = max(hi, awqFloor), g.mid-1
		}
	}
	if width == 0 {
		return 1, g.mid
	}
	scale = g.stored(width / codes)
	if g.scheme.Sym {
		return scale, g.mid
	}
	return scale, min(max(roundEven(min(max(-lo/scale, 0), g.top)), g.low), g.top)
}

// awqFloor is the smallest range that AutoAWQ divides by.
const awqFloor = 1e-5

func (g *Int) stored(s float32) float32 { return StoredScale(g.scheme.ScaleType, s) }

// StoredScale rounds a positive scale to the type it is written in (float32 unless it is a 16-bit float) and keeps it
// finite and above zero there: a group of tiny weights gets the smallest scale there is, a group of huge ones the largest,
// and clips.
func StoredScale(d tensor.DType, s float32) float32 {
	switch d {
	case tensor.F16:
		return tensor.F16ToF32(tensor.F32ToF16(min(max(s, 0x1p-24), 65504)))
	case tensor.BF16:
		const largest = 0x1.FEp127
		return tensor.BF16ToF32(tensor.F32ToBF16(min(max(s, 0x1p-126), largest)))
	}
	return min(max(s, 0x1p-126), math.MaxFloat32)
}

// intSearch keeps the best parameters found so far for every row of one group.
type intSearch struct {
	g          *Int
	w          Tile
	importance []float32
	best       Params
	trial      Params
	least, err []float32
	num, den   []float32
	tried      bool
}

func newIntSearch(g *Int, best Params, w Tile, importance []float32) *intSearch {
	n := w.Rows
	return &intSearch{g: g, w: w, importance: importance, best: best, trial: make(Params, 2*n),
		least: make([]float32, n), err: make([]float32, n), num: make([]float32, n), den: make([]float32, n)}
}

func (s *intSearch) weight(k int) float32 {
	if s.importance == nil {
		return 1
	}
	return s.importance[k]
}

// try measures Σ importance·(y − w)² of the trial and keeps it for the rows where it is strictly less. The first trial
// is kept everywhere, overflow included, so that best is always filled.
func (s *intSearch) try() {
	n := s.w.Rows
	scale, zero := s.trial.Plane(0, n), s.trial.Plane(1, n)
	clear(s.err)
	for k := range s.w.Cols {
		im := s.weight(k)
		for r, v := range s.w.Col(k) {
			d := float32(scale[r]*s.g.level(v, scale[r], zero[r])) - v
			s.err[r] += float32(im * float32(d*d))
		}
	}
	for r, e := range s.err {
		if e < s.least[r] || !s.tried {
			s.least[r] = e
			s.best.CopyRow(s.trial, r, n)
		}
	}
	s.tried = true
}

func (s *intSearch) flip() { negate(s.trial.Plane(0, s.w.Rows)) }

// leastSquares makes a trial of the scale that suits the codes of the best parameters: s = Σ i·w·u / Σ i·u², u = q − z.
func (s *intSearch) leastSquares() {
	n := s.w.Rows
	copy(s.trial, s.best)
	scale, zero := s.trial.Plane(0, n), s.trial.Plane(1, n)
	clear(s.num)
	clear(s.den)
	for k := range s.w.Cols {
		im := s.weight(k)
		for r, v := range s.w.Col(k) {
			u := s.g.level(v, scale[r], zero[r])
			s.num[r] += float32(im * float32(v*u))
			s.den[r] += float32(im * float32(u*u))
		}
	}
	for r := range n {
		if c := s.num[r] / s.den[r]; s.den[r] > 0 && !math.IsInf(float64(c), 0) {
			scale[r] = s.g.storedSigned(c, scale[r])
		}
	}
}

// storedSigned rounds a fitted scale, which must keep the sign of the old one.
func (g *Int) storedSigned(s, old float32) float32 {
	switch {
	case s > 0 && old > 0:
		return g.stored(s)
	case s < 0 && old < 0:
		return -g.stored(-s)
	}
	return old
}
