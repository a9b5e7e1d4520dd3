package quant

import (
	"math"
	"slices"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/tensor"
)

// foldedOK compares a quantized tensor with the base's weights as they were when they were rounded, scales folded in, and
// says whether it is as near as its grid lets expect.
func (v *verifier) foldedOK(info tensor.Info, s packing.Scheme, was, is []float32) bool {
	folded := slices.Clone(was)
	v.fold(info, folded, false)
	return relError(is, folded) <= errorLimit(s, folded, int(info.Shape[len(info.Shape)-1]))
}

// slopes are the factors by which the columns of matrices, or the rows of one, were multiplied, by least squares.
type slopes struct {
	cross, was, is []float64 // sums of products
	rows           int       // values behind each sum
}

// row adds row n and returns the f of is ≈ f·was·columns; columns may be nil.
func (s *slopes) row(n int, was, is, columns []float32) float32 {
	for k, w := range was {
		x, y := float64(w), float64(is[k])
		if columns != nil {
			x *= float64(columns[k])
		}
		s.cross[n] += float64(x * y)
		s.was[n] += float64(x * x)
		s.is[n] += float64(y * y)
	}
	if f := s.cross[n] / s.was[n]; s.was[n] > 0 && f > 0 {
		return float32(f)
	}
	return 1
}

func (s *slopes) add(was, is []float32) {
	columns := len(s.was)
	s.rows += len(was) / columns
	for i, w := range was {
		k, x, y := i%columns, float64(w), float64(is[i])
		s.cross[k] += float64(x * y)
		s.was[k] += float64(x * x)
		s.is[k] += float64(y * y)
	}
}

// noise is how far slopes may be from the truth, in the root mean square, because their values are rounded: e/√rows each for
// an error e, four times that, and e² for clipping and for coarse grids, whose errors are not independent of the weights.
func (s *slopes) noise() float64 {
	var sum, n float64
	for k, c := range s.cross {
		if s.was[k] > 0 && s.is[k] > 0 {
			sum += max(0, s.is[k]-c*c/s.was[k]) / s.is[k]
			n++
		}
	}
	e2 := sum / max(n, 1)
	return 4*math.Sqrt(e2/float64(max(s.rows, 1))) + e2
}

// unexplained tells how far the readers of a changed norm are from making up for the change, relative to it, and how far
// they may be. A norm that belongs elsewhere is not made up for.
func (v *verifier) unexplained(p *arch.Pair) (off, limit float64, err error) {
	width := p.Width()
	c := &slopes{cross: make([]float64, width), was: make([]float64, width), is: make([]float64, width)}
	names := make([]string, 0, len(p.Linears)+1)
	for _, lin := range p.Linears {
		names = append(names, lin.Weight())
	}
	if p.Router != nil {
		names = append(names, p.Router.Weight())
	}
	for _, name := range names {
		was, is, ok, err := v.both(name)
		if err != nil {
			return 0, 0, err
		}
		if !ok || len(was) != len(is) || len(was)%width != 0 {
			continue // its own row tells
		}
		if rows := v.rows[name]; rows != nil {
			for i := range is {
				is[i] *= rows[i/width]
			}
		}
		c.add(was, is)
	}
	n := 0
	for k, s := range v.rows[p.Norm] {
		if c.was[k] == 0 || c.is[k] == 0 { // an input that nothing reads
			continue
		}
		d := c.cross[k]/c.was[k]/float64(s) - 1
		off += float64(d * d)
		n++
	}
	if n > 0 {
		off = math.Sqrt(off / float64(n))
	}
	return off, floatLimit + c.noise(), nil
}
