package quant

import (
	"context"
	"fmt"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/exl2"
)

// measuredLinear is what was found about one linear.
type measuredLinear struct {
	options []exl2.Measured
	values  []float32 // quantized roughly, for the probe
	share   float64   // relative output error of these values
	tokens  float64   // that reached the linear: its weight among the experts of a decision
}

// block measures the linears of a block on the full-precision stream and takes the stream on.
func (m *measurement) block(ctx context.Context, b *forward.Block) error {
	groups := slotGroups(b.Arch)
	c := forward.NewCollector(m.pool, b.Arch, 1, func(arch.Input) forward.Want { return forward.WantGram })
	if err := m.run.Forward(ctx, b, m.hidden, c.Tap); err != nil {
		return err
	}
	found := map[*arch.Linear]measuredLinear{}
	for _, in := range sharedInputs(b.Arch, groups) {
		if err := m.input(ctx, b, c, in, found); err != nil {
			return fmt.Errorf("%s: %w", in.linears[0].Name, err)
		}
	}
	var changed []exl2.Changed
	for _, g := range groups {
		slot, probe, err := g.assemble(b, found)
		if err != nil {
			return err
		}
		m.slots, changed = append(m.slots, slot), append(changed, probe)
	}
	return m.probes.Block(ctx, b, changed)
}

// sharedInput is an input with the linears to be measured that read it.
type sharedInput struct {
	key     inputKey
	linears []*arch.Linear
}

// sharedInputs lists the inputs of the groups' linears, each once: all of its linears share one Hessian and its factors.
func sharedInputs(b *arch.Block, groups []slotGroup) (inputs []sharedInput) {
	at := map[inputKey]int{}
	for _, g := range groups {
		for _, l := range g.linears {
			key := inputOf(b, l)
			i, ok := at[key]
			if !ok {
				i = len(inputs)
				at[key] = i
				inputs = append(inputs, sharedInput{key: key})
			}
			inputs[i].linears = append(inputs[i].linears, l)
		}
	}
	return inputs
}

// input measures all linears of one input.
func (m *measurement) input(ctx context.Context, b *forward.Block, c *forward.Collector, in sharedInput, found map[*arch.Linear]measuredLinear) error {
	width := in.linears[0].In
	var h []float64
	var tokens float64
	if st := c.Stat(in.key.kind, in.key.expert); st != nil && st.Tokens > 0 { // else an expert that no token reached
		h, tokens = averaged(st).Gram, float64(st.Tokens)
	}
	p, err := exl2.Prepare(m.pool, width, h, exl2.Best())
	if err != nil {
		return err
	}
	cands, err := exl2.Candidates(width)
	if err != nil {
		return err
	}
	ws := make([]exl2.Matrix, len(in.linears))
	for i, l := range in.linears {
		ws[i] = exl2.Matrix{W: widened(b.Linear(l).W), Out: l.Out}
	}
	options, err := p.Measure(ctx, m.pool, ws, cands)
	if err != nil {
		return err
	}
	for i, l := range in.linears {
		values, share, err := p.Probe(ctx, m.pool, ws[i])
		if err != nil {
			return err
		}
		found[l] = measuredLinear{options[i], values, share, tokens}
	}
	return nil
}

// assemble makes one decision's slot, and the block in which its linears are quantized roughly.
func (g slotGroup) assemble(b *forward.Block, found map[*arch.Linear]measuredLinear) (exl2.Slot, exl2.Changed, error) {
	trial := cloneBlock(b)
	probe := exl2.Changed{Name: g.name, Block: trial}
	measured, weight := make([][]exl2.Measured, len(g.linears)), make([]float64, len(g.linears))
	total := 0.0
	for i, l := range g.linears {
		f := found[l]
		measured[i], weight[i] = f.options, f.tokens
		trial.Linear(l).W = kernel.MatF32(l.Out, l.In, f.values)
		probe.Error += float64(f.tokens * f.share)
		total += f.tokens
	}
	if total > 0 {
		probe.Error /= total
	} else {
		weight = nil // no token reached any of them: equal weights
	}
	slot, err := exl2.NewSlot(g.name, g.slot().Modules, measured, weight)
	return slot, probe, err
}
