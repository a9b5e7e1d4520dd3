package quant

import (
	"context"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/quant/gptq"
	"github.com/llmquant/quantize/quant/grid"
)

// GPTQ rounds column by column and lets the columns that follow make up for the error of those before, weighted by the
// Hessian of the layer's output error (Frantar et al., 2210.17323), then refines codes and scales under the same
// Hessian. It works on any grid; the Hessian is gathered behind the part of the model that is already quantized.
type GPTQ struct {
	Options gptq.Options
	Search  bool // fit group parameters by weighted search instead of the full range
	NoShift bool // match the layer's own output instead of the full-precision model's
	Narrow  bool // sum and factor Hessians in float32, for layers so wide that memory decides
}

// Name implements Rounder.
func (r GPTQ) Name() string { return "gptq" }

// Needs implements Rounder.
func (r GPTQ) Needs() Need {
	n := NeedGram | NeedSequential
	if !r.NoShift {
		n |= NeedShift
	}
	if r.Narrow {
		n |= NeedGram32
	}
	return n
}

// Round implements Rounder.
func (r GPTQ) Round(ctx context.Context, m *Matrix, stats *Stats) (*packing.Linear, error) {
	if t, err := m.block(); err == nil {
		if _, scalar := t.Scalar(); !scalar {
			return KQuant{}.Round(ctx, m, stats) // a code word names several weights: there is no single one to feed back
		}
	}
	g, err := m.scalarGrid(grid.IntOptions{Search: r.Search})
	if err != nil {
		return nil, err
	}
	if stats == nil || stats.Tokens == 0 {
		return grid.RoundNearest(ctx, m.pool(), m.W, m.Linear.Out, m.Linear.In, g, nil)
	}
	p, err := stats.prepare(m, g, r.Options)
	if err != nil {
		return nil, err
	}
	l, rep, err := p.Solve(ctx, m.pool(), m.W, m.Linear.Out, g)
	if err != nil {
		return nil, err
	}
	tell(ctx, m, rep.Fallback, rep.Damp > r.Options.Damp, rep.Dead)
	return l, nil
}

// tell reports what was out of the ordinary about a solve: why it fell back to plain rounding, whether the Hessian needed
// more damping than asked for, channels that no token reached.
func tell(ctx context.Context, m *Matrix, fallback string, damped bool, dead int) {
	e := Event{Kind: EventFinding, Layer: -1, Tensor: m.Linear.Weight()}
	if m.Layer != nil {
		e.Layer = m.Layer.Index
	}
	switch {
	case fallback != "":
		e.Kind, e.Message = EventFallback, fallback+": plain rounding"
	case damped:
		e.Message = "the Hessian needed stronger damping"
	case dead > 0:
		e.Message, e.Count = "input channels that were zero on all calibration tokens", int64(dead)
	default:
		return
	}
	Emit(ctx, e)
}

// grid returns the integer grid of the matrix.
func (m *Matrix) grid(o grid.IntOptions) (*grid.Int, error) {
	o.MinZero, o.Positive = m.MinZero, m.Positive
	return grid.NewInt(m.Scheme, m.Linear.In, o)
}
