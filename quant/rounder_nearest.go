package quant

import (
	"context"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid"
)

// Nearest rounds every weight to the nearest code. Without Search the range of a group is its minimum and maximum
// (plain rounding, no calibration needed). With Search, range, zero point and scale of every group are chosen to
// minimise the error of the layer's output, δ·E[x xᵀ]·δᵀ over the group's channels: AWQ's clip search, exact over all
// tokens instead of a sample of 512, with both ends of the range free and the scale fitted afterwards. Passes then lets
// codes and parameters descend on the error over all channels of the layer, up to that many times.
type Nearest struct {
	Search bool
	Passes int
}

// Name implements Rounder.
func (r Nearest) Name() string {
	switch {
	case r.Search && r.Passes > 0:
		return "nearest, searched ranges, descent"
	case r.Search:
		return "nearest, searched ranges"
	}
	return "nearest"
}

// Needs implements Rounder.
func (r Nearest) Needs() Need {
	switch {
	case r.Search && r.Passes > 0:
		return NeedGram | NeedDescent
	case r.Search:
		return NeedGram
	}
	return 0
}

// Round implements Rounder.
func (r Nearest) Round(ctx context.Context, m *Matrix, stats *Stats) (*packing.Linear, error) {
	n, k := m.Linear.Out, m.Linear.In
	if !r.Search || stats == nil || stats.Tokens == 0 {
		g, err := m.grid(grid.IntOptions{})
		if err != nil {
			return nil, err
		}
		return grid.RoundNearest(ctx, m.pool(), m.W, n, k, g, nil)
	}
	group, l := groupSpan(m.Scheme, k), newLinear(m)
	a := newAffine(m.Scheme, m.MinZero)
	w, gram := kernel.MatF32(n, k, m.W), stats.Gram32()
	m.pool().Run(m.Scheme.Groups(k), func(j int) {
		if ctx.Err() != nil {
			return
		}
		c0, c1 := j*group, min((j+1)*group, k)
		view := w.Slice(0, n, c0, c1)
		f := newFit(a, view, gram.Slice(c0, c1, c0, c1))
		f.search()
		setGroup(l, j, f.scale, f.zero)
		encodeGroup(l, a, view, j, c0)
	})
	if r.Passes == 0 || ctx.Err() != nil {
		return l, ctx.Err()
	}
	return l, r.descend(ctx, m, stats, l)
}

// descend makes codes and parameters take their neighbours' errors into account: what one channel gets wrong, another
// that moves with it can make up for.
func (r Nearest) descend(ctx context.Context, m *Matrix, stats *Stats, l *packing.Linear) error {
	g, err := m.grid(grid.IntOptions{})
	if err != nil {
		return err
	}
	p, err := stats.forDescent(m, g, r.Passes)
	if err != nil {
		return err
	}
	return p.Descend(ctx, m.pool(), l, m.W, g)
}

func groupSpan(s packing.Scheme, k int) int {
	if s.GroupSize <= 0 {
		return k
	}
	return s.GroupSize
}

// newLinear allocates the integer form of m.
func newLinear(m *Matrix) *packing.Linear {
	n, k := m.Linear.Out, m.Linear.In
	groups := m.Scheme.Groups(k)
	l := &packing.Linear{Scheme: m.Scheme, Out: n, In: k, Codes: make([]uint8, n*k), Scales: make([]float32, n*groups)}
	if !m.Scheme.Sym {
		l.Zeros = make([]float32, n*groups)
	}
	return l
}

// setGroup stores the parameters of column group j for all rows.
func setGroup(l *packing.Linear, j int, scale, zero []float32) {
	groups := l.Groups(l.In)
	for i := range l.Out {
		l.Scales[i*groups+j] = scale[i]
		if l.Zeros != nil {
			l.Zeros[i*groups+j] = zero[i]
		}
	}
}

// encodeGroup computes the codes of the columns of group j, which start at c0.
func encodeGroup(l *packing.Linear, a affine, w kernel.Mat, j, c0 int) {
	groups := l.Groups(l.In)
	for i := range l.Out {
		scale := l.Scales[i*groups+j]
		zero := (a.maxQ + 1) / 2
		if l.Zeros != nil {
			zero = l.Zeros[i*groups+j]
		}
		inv := 1 / scale
		codes := l.Codes[i*l.In+c0:][:w.Cols]
		for c, v := range w.Row(i) {
			codes[c] = uint8(a.code(v, inv, zero))
		}
	}
}
