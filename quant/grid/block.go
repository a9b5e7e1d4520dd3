package grid

import (
	"slices"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/quant/grid/ggml"
)

// Block is the grid of a ggml block type whose weights are coded one by one: the legacy types, the K types, IQ4 and the
// MX formats. A weight of sub-block j decodes to (D·Scale[j])·Levels[code] − DMin·Min[j].
// Planes: D, DMin, the sub-scales, and the sub-minima of types that have them.
type Block struct {
	t     *ggml.Type
	s     *ggml.Scalar
	subs  int
	units []float32 // value of sub-scale ScaleMin+i where that is not the number itself; nil otherwise
	// Distinct levels in ascending order, the middles between them, and their codes. whole marks levels that are
	// consecutive whole numbers, for which rounding is arithmetic.
	levels, middles []float32
	codes           []uint8
	whole           bool
}

// NewBlock returns the grid of a ggml type for rows of in columns.
func NewBlock(t *ggml.Type, in int) (*Block, error) {
	s, ok := t.Scalar()
	if !ok {
		return nil, safeio.Unsupportedf("%s names several weights by one code; it has no grid of single weights", t.Name)
	}
	if in < 1 || in%s.Span != 0 {
		return nil, safeio.Unsupportedf("%d input columns are not a multiple of the %d of a %s block", in, s.Span, t.Name)
	}
	b := &Block{t: t, s: s, subs: s.SubBlocks()}
	b.sortLevels()
	b.tabulateScales()
	return b, nil
}

// tabulateScales fills units unless every sub-scale is its own value.
func (b *Block) tabulateScales() {
	plain := true
	for i := b.s.ScaleMin; i <= b.s.ScaleMax; i++ {
		p := ggml.Params{D: 1}
		p.Scale[0] = i
		unit, _ := b.s.Step(&p, 0)
		b.units = append(b.units, unit)
		plain = plain && unit == float32(i)
	}
	if plain {
		b.units = nil
	}
}

// sortLevels orders the levels and drops a second zero (E2M1 has a negative one).
func (b *Block) sortLevels() {
	for c := range b.s.Levels {
		b.codes = append(b.codes, uint8(c))
	}
	slices.SortStableFunc(b.codes, func(x, y uint8) int {
		switch l, r := b.s.Levels[x], b.s.Levels[y]; {
		case l < r:
			return -1
		case l > r:
			return 1
		}
		return 0
	})
	b.codes = slices.CompactFunc(b.codes, func(x, y uint8) bool { return b.s.Levels[x] == b.s.Levels[y] })
	b.whole = true
	for i, c := range b.codes {
		v := b.s.Levels[c]
		b.levels = append(b.levels, v)
		if i > 0 {
			b.middles = append(b.middles, (b.levels[i-1]+v)/2)
			b.whole = b.whole && v == b.levels[i-1]+1 && c == b.codes[i-1]+1
		}
	}
}

// Name implements Grid.
func (b *Block) Name() string { return b.t.Name }

// Span implements Grid.
func (b *Block) Span() int { return b.s.Span }

// Sub implements Grid.
func (b *Block) Sub() int { return b.s.Sub }

// Width implements Grid.
func (b *Block) Width() int {
	if b.s.HasMin {
		return 2 + 2*b.subs
	}
	return 2 + b.subs
}

// unit returns the value of a sub-scale.
func (b *Block) unit(scale float32) float32 {
	if b.units == nil {
		return scale
	}
	return b.units[int(scale)-int(b.s.ScaleMin)]
}

// step returns the step and the minimum that row r uses in sub-block sub.
func (b *Block) step(p Params, sub, r, rows int) (step, minimum float32) {
	step = p[r] * b.unit(p[(2+sub)*rows+r])
	if b.s.HasMin {
		minimum = p[rows+r] * p[(2+b.subs+sub)*rows+r]
	}
	return step, minimum
}

// Round implements Grid.
func (b *Block) Round(p Params, col int, x, y []float32, codes []uint8) {
	rows, sub := len(x), col/b.s.Sub
	for r, v := range x {
		step, minimum := b.step(p, sub, r, rows)
		i := b.nearest(v+minimum, step)
		codes[r] = b.codes[i]
		y[r] = float32(step*b.levels[i]) - minimum
	}
}

// nearest returns the index of the level nearest to v/step; with a step of 0 all decode alike and the one nearest to 0
// is taken.
func (b *Block) nearest(v, step float32) int {
	u := float32(0)
	if step != 0 {
		u = v / step
	}
	lowest, highest := b.levels[0], b.levels[len(b.levels)-1]
	u = min(max(u, lowest), highest)
	if b.whole {
		return int(roundEven(u) - lowest)
	}
	i := 0
	for _, m := range b.middles {
		if u > m {
			i++
		}
	}
	return i
}

// Decode implements Grid.
func (b *Block) Decode(p Params, col int, codes []uint8, y []float32) {
	rows, sub := len(codes), col/b.s.Sub
	for r, c := range codes {
		step, minimum := b.step(p, sub, r, rows)
		y[r] = float32(step*b.s.Levels[c]) - minimum
	}
}

// New implements Grid.
func (b *Block) New(out, in int) *packing.Linear {
	return &packing.Linear{
		Scheme: packing.Scheme{Grid: b.t.Name, GroupSize: b.s.Span}, Out: out, In: in,
		Blocks: make([]byte, out*(in/b.t.Elems)*b.t.Bytes),
	}
}

// Store implements Grid.
func (b *Block) Store(l *packing.Linear, row0, col0 int, p Params, codes []uint8) {
	rows := len(p) / b.Width()
	perRow := l.In / b.t.Elems
	row := make([]uint8, b.s.Span)
	for r := range rows {
		for k := range row {
			row[k] = codes[k*rows+r]
		}
		at := ((row0+r)*perRow + col0/b.t.Elems) * b.t.Bytes
		q := b.stored(p, r, rows)
		b.s.Pack(l.Blocks[at:at+b.t.Bytes], &q, row)
	}
}

// stored returns the parameters of one row as the type packs them.
func (b *Block) stored(p Params, r, rows int) ggml.Params {
	q := ggml.Params{D: p[r], DMin: p[rows+r]}
	for j := range b.subs {
		q.Scale[j] = int16(p[(2+j)*rows+r])
		if b.s.HasMin {
			q.Min[j] = int16(p[(2+b.subs+j)*rows+r])
		}
	}
	return q
}

// load is the reverse of stored.
func (b *Block) load(p Params, q *ggml.Params, r, rows int) {
	p[r], p[rows+r] = q.D, q.DMin
	for j := range b.subs {
		p[(2+j)*rows+r] = float32(q.Scale[j])
		if b.s.HasMin {
			p[(2+b.subs+j)*rows+r] = float32(q.Min[j])
		}
	}
}
