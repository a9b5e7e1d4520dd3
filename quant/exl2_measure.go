package quant

import (
	"context"
	"fmt"
	"time"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/exl2"
)

// probeBytes bounds the hidden states of sensitivity probes, which exist once per linear of the model.
const probeBytes = 1 << 30

// MeasureEXL2 finds, for every linear of the blocks, what each candidate costs in bits and in output error, and how much
// an error there changes the model's predictions. The result serves any target: keep it to try several.
func MeasureEXL2(ctx context.Context, src formats.Checkpoint, o Options) ([]exl2.Slot, error) {
	model, err := arch.Resolve(src.Meta().Config, src)
	if err != nil {
		return nil, safeio.WithPath(err, src.Meta().Path)
	}
	if err := checkCalibration(&o, model); err != nil {
		return nil, err
	}
	set, pool := o.Calib, newPool(o.Threads)
	m := &measurement{pool: pool, model: model, job: &job{opts: &o, pool: pool, start: time.Now()}, run: forward.NewRunner(model, pool, set.Windows, set.SeqLen)}
	tokens := set.Windows * set.SeqLen
	hidden := kernel.MatF32(tokens, model.Hidden, make([]float32, tokens*model.Hidden))
	if err := m.run.Embed(hidden, set.IDs[:tokens], src); err != nil {
		return nil, safeio.WithPath(err, src.Meta().Path)
	}
	m.startProbes(hidden, set.SeqLen)
	for i := range model.Blocks {
		m.job.progress(fmt.Sprintf("measuring layer %d of %d", i+1, len(model.Blocks)), float64(i)/float64(len(model.Blocks)))
		b, err := forward.Load(src, model, i, forward.LoadOptions{Pool: pool})
		if err != nil {
			return nil, safeio.WithPath(err, src.Meta().Path)
		}
		if err := m.block(ctx, b, hidden); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i, err)
		}
	}
	head, err := forward.LoadHead(src, model, forward.LoadOptions{Pool: pool})
	if err != nil {
		return nil, safeio.WithPath(err, src.Meta().Path)
	}
	found, err := m.probes.Finish(ctx, head)
	if err != nil {
		return nil, err
	}
	exl2.SetSensitivities(m.slots, found)
	return m.slots, nil
}

// measurement is one MeasureEXL2 in progress.
type measurement struct {
	job    *job
	pool   *kernel.Pool
	model  *arch.Model
	run    *forward.Runner
	probes *exl2.Probes
	slots  []exl2.Slot
}

// startProbes takes as many whole windows as fit the bound, one at least, two at most.
func (m *measurement) startProbes(hidden kernel.Mat, seqLen int) {
	linears := int64(1)
	for i := range m.model.Blocks {
		linears += int64(len(groupsOf(&m.model.Blocks[i])))
	}
	fits := int(probeBytes / (4 * linears * int64(seqLen) * int64(m.model.Hidden)))
	windows := min(max(fits, 1), maxProbeWindows, hidden.Rows/seqLen)
	m.probes = exl2.NewProbes(m.run, hidden.Slice(0, windows*seqLen, 0, hidden.Cols), true)
}

const maxProbeWindows = 8

// slotGroup is one decision: a linear, or the same linear of all experts.
type slotGroup struct {
	name    string
	linears []*arch.Linear
}

func groupsOf(b *arch.Block) (groups []slotGroup) {
	at := map[arch.Role]int{}
	for _, l := range b.Linears() {
		if i, ok := at[l.Role]; ok && l.Expert >= 0 {
			groups[i].linears = append(groups[i].linears, l)
			continue
		}
		at[l.Role] = len(groups)
		groups = append(groups, slotGroup{l.Name, []*arch.Linear{l}})
	}
	return groups
}

// block measures the linears of a block on the full-precision stream and takes the stream on.
func (m *measurement) block(ctx context.Context, b *forward.Block, hidden kernel.Mat) error {
	c := forward.NewCollector(m.pool, b.Arch, 1, func(arch.Input) forward.Want { return forward.WantGram })
	if err := m.run.Forward(ctx, b, hidden, c.Tap); err != nil {
		return err
	}
	prepared := map[inputKey]*exl2.Prepared{}
	var changed []exl2.Changed
	for _, g := range groupsOf(b.Arch) {
		slot, probe, err := m.slot(ctx, b, c, g, prepared)
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		m.slots, changed = append(m.slots, slot), append(changed, probe)
	}
	return m.probes.Block(ctx, b, changed)
}

// slot measures the linears of one decision and builds the block in which they are quantized roughly, for the probe.
func (m *measurement) slot(ctx context.Context, b *forward.Block, c *forward.Collector, g slotGroup, prepared map[inputKey]*exl2.Prepared) (exl2.Slot, exl2.Changed, error) {
	trial := cloneBlock(b)
	probe := exl2.Changed{Name: g.name, Block: trial}
	var modules []exl2.Module
	var measured [][]exl2.Measured
	for _, lin := range g.linears {
		key := inputOf(b.Arch, lin)
		p := prepared[key]
		if p == nil {
			st := averaged(c.Stat(key.kind, key.expert))
			h := st.Gram
			if st.Tokens == 0 {
				h = nil
			}
			var err error
			if p, err = exl2.Prepare(m.pool, lin.In, h, exl2.Best()); err != nil {
				return exl2.Slot{}, probe, err
			}
			prepared[key] = p
		}
		w := widened(b.Linear(lin).W)
		cands, err := exl2.Candidates(lin.In)
		if err != nil {
			return exl2.Slot{}, probe, err
		}
		got, err := p.Measure(ctx, m.pool, []exl2.Matrix{{W: w, Out: lin.Out}}, cands)
		if err != nil {
			return exl2.Slot{}, probe, err
		}
		modules, measured = append(modules, exl2.Module{Name: lin.Name, Out: lin.Out, In: lin.In}), append(measured, got[0])
		values, share, err := p.Probe(ctx, m.pool, exl2.Matrix{W: w, Out: lin.Out})
		if err != nil {
			return exl2.Slot{}, probe, err
		}
		trial.Linear(lin).W = kernel.MatF32(lin.Out, lin.In, values)
		probe.Error += share / float64(len(g.linears))
	}
	slot, err := exl2.NewSlot(g.name, modules, measured, nil)
	return slot, probe, err
}
