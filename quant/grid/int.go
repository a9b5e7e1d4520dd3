package grid

import (
	"fmt"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/kernel"
)

// Range says how an integer group's scale follows from the range of its weights.
type Range uint8

// The range rules of the reference tools.
const (
	// RangeFull covers all codes: scale (hi − lo)/(2^b − 1), symmetric hi = −lo = max|w| with zero point 2^(b-1). The
	// range always includes 0. GPTQ, compressed-tensors.
	RangeFull Range = iota
	// RangeAWQ is AutoAWQ's: the asymmetric range need not include 0, so a group of one sign may clip; the symmetric one
	// is max|w|/(2^(b-1) − 1); ranges below 1e-5 count as 1e-5.
	RangeAWQ
)

// IntOptions refine an integer grid.
type IntOptions struct {
	Range Range
	// Search makes Fit shrink ranges and fit scales to lower the weighted error, instead of taking the full range.
	Search bool
	// Positive keeps scales above zero. Otherwise the search may give a symmetric group a negative scale, which puts the
	// extra code of two's complement on the side of the larger weights: worth a tenth of the error at 4 bits, a quarter
	// at 2. Readers only multiply, so the sign is legal in GPTQ and compressed-tensors files (AutoRound writes it too).
	Positive bool
	// MinZero is the smallest zero point of an asymmetric grid: 1 for GPTQ's version 1, which stores z − 1.
	MinZero int
}

// Int is the grid of group-affine integers: w = s·(q − z), q and z in 0 … 2^bits − 1, one s and z per group and row.
// Planes: scale, zero point.
type Int struct {
	scheme packing.Scheme
	opt    IntOptions
	span   int
	top    float32 // largest code
	mid    float32 // zero point of the symmetric grid
	low    float32 // smallest zero point
}

// NewInt returns the integer grid of a scheme for rows of in columns.
func NewInt(s packing.Scheme, in int, o IntOptions) (*Int, error) {
	switch {
	case s.Grid != "int" || s.Bits < 1 || s.Bits > 8:
		return nil, safeio.Unsupportedf("no integer grid %q with %d bits", s.Grid, s.Bits)
	case in < 1 || s.GroupSize == 0 || s.GroupSize < -1:
		return nil, safeio.Unsupportedf("no groups of %d in %d columns", s.GroupSize, in)
	case o.MinZero < 0 || o.MinZero >= 1<<s.Bits:
		return nil, safeio.Unsupportedf("smallest zero point %d with %d bits", o.MinZero, s.Bits)
	}
	if s.ScaleType == tensor.Invalid {
		s.ScaleType = tensor.F16
	}
	span := in
	if s.GroupSize > 0 {
		span = min(s.GroupSize, in)
	}
	return &Int{
		scheme: s, opt: o, span: span,
		top: float32(int(1)<<s.Bits - 1), mid: float32(int(1) << (s.Bits - 1)), low: float32(o.MinZero),
	}, nil
}

// Name implements Grid.
func (g *Int) Name() string {
	sym := "asym"
	if g.scheme.Sym {
		sym = "sym"
	}
	return fmt.Sprintf("int%d g%d %s", g.scheme.Bits, g.scheme.GroupSize, sym)
}

// Span implements Grid.
func (g *Int) Span() int { return g.span }

// Sub implements Grid.
func (g *Int) Sub() int { return g.span }

// Width implements Grid.
func (g *Int) Width() int { return 2 }

// Round implements Grid.
func (g *Int) Round(p Params, _ int, x, y []float32, codes []uint8) {
	n := len(x)
	kernel.RoundLevels(y, codes, x, p.Plane(0, n), p.Plane(1, n), g.top)
}

// level returns the whole number q − z nearest to v/s that the grid has, ties to even. Clamping comes first: it commutes
// with rounding because the ends are whole, and it bounds the argument of roundEven.
func (g *Int) level(v, s, z float32) float32 {
	return roundEven(min(max(v/s, -z), g.top-z))
}

// Decode implements Grid.
func (g *Int) Decode(p Params, _ int, codes []uint8, y []float32) {
	n := len(codes)
	scale, zero := p.Plane(0, n), p.Plane(1, n)
	y = y[:n]
	for r, q := range codes {
		y[r] = scale[r] * (float32(q) - zero[r])
	}
}

// New implements Grid.
func (g *Int) New(out, in int) *packing.Linear {
	s := g.scheme
	groups := s.Groups(in)
	l := &packing.Linear{Scheme: s, Out: out, In: in, Codes: make([]uint8, out*in), Scales: make([]float32, out*groups)}
	if !s.Sym {
		l.Zeros = make([]float32, out*groups)
	}
	return l
}

// Store implements Grid.
func (g *Int) Store(l *packing.Linear, row0, col0 int, p Params, codes []uint8) {
	rows := len(p) / 2
	cols, groups := len(codes)/rows, l.Groups(l.In)
	at := row0*groups + col0/g.span
	for r := range rows {
		l.Scales[at+r*groups] = p[r]
		if l.Zeros != nil {
			l.Zeros[at+r*groups] = p[rows+r]
		}
		row := l.Codes[(row0+r)*l.In+col0:][:cols]
		for k := range row {
			row[k] = codes[k*rows+r]
		}
	}
}

// Load reads back what Store wrote.
func (g *Int) Load(l *packing.Linear, row0, col0 int, p Params, codes []uint8) {
	rows := len(p) / 2
	cols, groups := len(codes)/rows, l.Groups(l.In)
	at := row0*groups + col0/g.span
	for r := range rows {
		p[r], p[rows+r] = l.Scales[at+r*groups], g.mid
		if l.Zeros != nil {
			p[rows+r] = l.Zeros[at+r*groups]
		}
		for k, q := range l.Codes[(row0+r)*l.In+col0:][:cols] {
			codes[k*rows+r] = q
		}
	}
}

// roundEven rounds |x| < 2^22 to the nearest whole number, ties to even: adding 1.5·2^23 pushes the fraction out of the
// mantissa. The conversion keeps compilers from fusing.
func roundEven(x float32) float32 {
	const magic = 0x1.8p23
	return float32(x+magic) - magic
}
