package quant

import (
	"context"
	"fmt"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/quant/exl2"
)

// EXL2 rounds into groups of mixed bit widths with act order and error feedback, as ExLlamaV2 stores them.
type EXL2 struct{ Options exl2.Options }

// Name implements Rounder.
func (EXL2) Name() string { return exl2Name }

// exl2Name is the method, the layout and the grid of mixed bit widths.
const exl2Name = "exl2"

// Needs implements Rounder.
func (EXL2) Needs() Need { return NeedGram | NeedSequential }

// Round implements Rounder.
func (r EXL2) Round(ctx context.Context, m *Matrix, stats *Stats) (*packing.Linear, error) {
	groups, err := packing.ParseEXL2Mix(m.Scheme.Mix)
	if err != nil {
		return nil, err
	}
	var h []float64
	if stats != nil && stats.Tokens > 0 {
		h = stats.Gram
	}
	p, err := exl2.Prepare(m.pool(), m.Linear.In, h, r.Options)
	if err != nil {
		return nil, err
	}
	l, rep, err := p.Quantize(ctx, m.pool(), m.W, m.Linear.Out, groups)
	if err == nil && rep.Fallback != "" {
		Emit(ctx, Event{Kind: EventFallback, Layer: -1, Tensor: m.Linear.Weight(), Message: rep.Fallback})
	}
	return l, err
}

// EXL2Allocation gives every linear of the blocks its candidate of a choice, and the head a width of its own.
type EXL2Allocation struct {
	Choice   *exl2.Choice
	HeadBits int // 16: the head stays dense
}

// Allocate implements Allocation.
func (a EXL2Allocation) Allocate(tensors []Desc) ([]Choice, error) {
	choices := make([]Choice, len(tensors))
	for i, t := range tensors {
		switch {
		case t.Linear == nil || t.Role == arch.RoleRouter:
		case t.Role == arch.RoleHead && a.HeadBits < 16:
			c, err := exl2.HeadCandidate(a.HeadBits)
			if err != nil {
				return nil, err
			}
			choices[i] = Choice{Quantize: true, Scheme: c.Scheme(t.Linear.In)}
		case t.Layer >= 0:
			c, ok := a.Choice.Modules[t.Module()]
			if !ok {
				return nil, safeio.Unsupportedf("the measurement says nothing about %s", t.Module())
			}
			choices[i] = Choice{Quantize: true, Scheme: c.Scheme(t.Linear.In)}
		}
	}
	return choices, nil
}

// NewEXL2 quantizes with a choice of bit widths that exl2.Optimize made, or a hand.
func NewEXL2(c *exl2.Choice, headBits int) Recipe {
	return Recipe{Method: exl2Name, Rounder: EXL2{exl2.Best()}, Allocation: EXL2Allocation{c, headBits}, Layout: exl2Name,
		Config: map[string]any{"target_bits_per_weight": c.Target, "bits_per_weight": c.Reached, "head_bits": headBits, "modules": fmt.Sprint(len(c.Modules))},
		EXL2:   packing.EXL2Meta{Bits: c.Target, HeadBits: headBits}}
}
