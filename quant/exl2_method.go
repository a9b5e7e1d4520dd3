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
func (EXL2) Needs() Need { return NeedGram | NeedSequential | NeedShift | NeedGramKept }

// Round implements Rounder. With statistics of both streams it rounds the weight that repairs most of what the quantized
// part of the model did before.
func (r EXL2) Round(ctx context.Context, m *Matrix, stats *Stats) (*packing.Linear, error) {
	groups, err := packing.ParseEXL2Mix(m.Scheme.Mix)
	if err != nil {
		return nil, err
	}
	p, err := r.prepare(m, stats)
	if err != nil {
		return nil, err
	}
	w, calibrated := m.W, stats != nil && stats.Tokens > 0
	if calibrated {
		if w, _, err = p.Target(ctx, m.pool(), stats.forSolver(), w, m.Linear.Out, groups); err != nil {
			return nil, err
		}
		w = within(w, m.W)
	}
	l, rep, err := p.Quantize(ctx, m.pool(), w, m.Linear.Out, groups)
	if err != nil {
		return nil, err
	}
	if calibrated { // the caller tells of experts without tokens
		tell(ctx, m, rep.Fallback, rep.Damp > r.Options.Damp, rep.Dead)
	}
	return l, nil
}

// prepare makes what the linears of one input share, once for all of them.
func (r EXL2) prepare(m *Matrix, stats *Stats) (*exl2.Prepared, error) {
	if stats == nil || stats.Tokens == 0 {
		return exl2.Prepare(m.pool(), m.Linear.In, nil, r.Options)
	}
	if stats.mixed == nil {
		p, err := exl2.Prepare(m.pool(), m.Linear.In, stats.Gram, r.Options)
		if err != nil {
			return nil, err
		}
		stats.mixed = p
	}
	return stats.mixed, nil
}

// within keeps a target from leaving the range of F16 where the weight itself lies inside.
func within(target, w []float32) []float32 {
	const largest = 65504
	for i, v := range target {
		if !(v <= largest && v >= -largest) {
			target[i] = w[i]
		}
	}
	return target
}

// EXL2Allocation gives every linear of the blocks its candidate of a choice, and the head a width of its own. Modules that
// cannot be stored as exl2 stay dense without being named.
type EXL2Allocation struct {
	Choice   *exl2.Choice
	HeadBits int // denseHead: the head stays dense
}

// denseHead are the head bits of a head that is not quantized.
const denseHead = 16

// Allocate implements Allocation.
func (a EXL2Allocation) Allocate(tensors []Desc) ([]Choice, error) {
	choices, kept := make([]Choice, len(tensors)), unstorableKeys(tensors)
	for i, t := range tensors {
		var err error
		switch {
		case t.Linear == nil || t.Role == arch.RoleRouter:
		case t.Role == arch.RoleHead:
			choices[i], err = a.head(t)
		case kept[mixedKey(t)] != "":
			choices[i].Reason = "kept: " + kept[mixedKey(t)]
		case t.Layer >= 0:
			choices[i], err = a.module(t)
		}
		if err != nil {
			return nil, err
		}
	}
	return choices, nil
}

func (a EXL2Allocation) head(t Desc) (Choice, error) {
	if a.HeadBits == denseHead {
		return Choice{}, nil
	}
	c, err := exl2.HeadCandidate(a.HeadBits)
	if err != nil {
		return Choice{}, err
	}
	if err := packing.EXL2Fits(t.Linear.Out, t.Linear.In); err != nil {
		return Choice{Reason: "kept: " + err.Error()}, nil
	}
	return Choice{Quantize: true, Scheme: c.Scheme(t.Linear.In)}, nil
}

func (a EXL2Allocation) module(t Desc) (Choice, error) {
	switch c, ok := a.Choice.Modules[t.Module()]; {
	case !ok:
		return Choice{}, safeio.Unsupportedf("the choice of bit widths says nothing about %s", t.Module())
	case c.Dense():
		return Choice{Reason: "kept: the choice of bit widths says so"}, nil
	default:
		return Choice{Quantize: true, Scheme: c.Scheme(t.Linear.In)}, nil
	}
}

// unstorableKeys says why a group of linears has to stay dense: one of them cannot be stored as exl2.
func unstorableKeys(tensors []Desc) map[string]string {
	reasons := map[string]string{}
	for _, t := range tensors {
		if t.Linear == nil || mixedWith[t.Role] == "" || reasons[mixedKey(t)] != "" {
			continue
		}
		if err := packing.EXL2Fits(t.Linear.Out, t.Linear.In); err != nil {
			reasons[mixedKey(t)] = fmt.Sprintf("%s: %v", t.Module(), err)
		}
	}
	return reasons
}

// NewEXL2 quantizes with a choice of bit widths that exl2.Optimize made, or a hand.
func NewEXL2(c *exl2.Choice, headBits int) Recipe {
	return Recipe{Method: exl2Name, Rounder: EXL2{exl2.Best()}, Allocation: EXL2Allocation{c, headBits}, Layout: exl2Name,
		Config: map[string]any{"target_bits_per_weight": c.Target, "bits_per_weight": c.Reached, "head_bits": headBits, "choice_sha256": hashOf([]byte(jsonText(c.Modules)))},
		EXL2:   packing.EXL2Meta{Bits: c.Target, HeadBits: headBits}}
}
