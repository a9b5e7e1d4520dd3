package quant

import (
	"context"
	"fmt"
	"time"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/exl2"
)

// Probes take a few windows whole: at most maxProbeWindows, and no more than fit probeBytes of hidden states, which exist
// once per decision of the model. Neither bound may depend on the machine: the result would.
const (
	probeBytes      = 1 << 30
	maxProbeWindows = 8
)

// MeasureEXL2 finds, for every linear of the blocks, what each candidate costs in bits and in output error, and how much
// an error there changes the model's predictions. The result serves any target of the same model.
//
// With a file the measurement appears there when it is complete; until then file.partial holds what the same call needs
// to continue behind the last finished layer. o.Force replaces an existing file.
func MeasureEXL2(ctx context.Context, src formats.Checkpoint, o Options, file string) (*exl2.Measurement, error) {
	m, err := newMeasurement(ctx, src, o)
	if err != nil {
		return nil, err
	}
	id, err := MeasuredFrom(ctx, src, o.Calib)
	if err != nil {
		return nil, err
	}
	if file != "" {
		if err := m.keepIn(ctx, file, id); err != nil {
			return nil, err
		}
		defer m.out.Close()
		if m.out.Published() { // an earlier run was interrupted in its last moments
			return ReadMeasurement(file, m.model)
		}
	}
	if err := m.layers(ctx); err != nil {
		return nil, err
	}
	head, err := forward.LoadHead(src, m.model, forward.LoadOptions{Pool: m.pool})
	if err != nil {
		return nil, safeio.WithPath(err, src.Meta().Path)
	}
	found, err := m.probes.Finish(ctx, head)
	if err != nil {
		return nil, err
	}
	exl2.SetSensitivities(m.slots, found)
	result := &exl2.Measurement{Model: id.String(), Sensitivity: "kl", Slots: m.slots}
	if file != "" {
		return result, m.publish(ctx, file, result)
	}
	return result, nil
}

// measurement is one MeasureEXL2 in progress.
type measurement struct {
	job    *job // for progress
	src    formats.Checkpoint
	pool   *kernel.Pool
	model  *arch.Model
	run    *forward.Runner
	hidden kernel.Mat // [tokens, hidden] in front of the next layer, in full precision
	probes *exl2.Probes
	slots  []exl2.Slot
	out    *formats.Job // nil: nothing is kept
}

// newMeasurement checks what can be checked before hours are spent.
func newMeasurement(ctx context.Context, src formats.Checkpoint, o Options) (*measurement, error) {
	if err := RefuseQuantized(src); err != nil {
		return nil, err
	}
	model, err := arch.Resolve(src.Meta().Config, src)
	if err != nil {
		return nil, safeio.WithPath(err, src.Meta().Path)
	}
	if len(EXL2Slots(model)) == 0 {
		return nil, safeio.WithPath(noneStorable(), src.Meta().Path)
	}
	if err := checkCalibration(&o, model); err != nil {
		return nil, err
	}
	if err := checkHalf(ctx, src, model); err != nil {
		return nil, err
	}
	pool := newPool(o.Threads)
	m := &measurement{src: src, pool: pool, model: model, job: &job{opts: &o, pool: pool, start: time.Now()},
		run: forward.NewRunner(model, pool, o.Calib.Windows, o.Calib.SeqLen)}
	if need := m.memory(); o.Memory > 0 && need > o.Memory {
		return nil, safeio.Limitf("the measurement needs about %d MB of memory, more than the limit of %d MB; fewer --samples or a shorter --seq-len need less",
			need/1_000_000, o.Memory/1_000_000)
	}
	return m, nil
}

// noneStorable is the error for models without a linear that the layout can hold.
func noneStorable() error {
	return safeio.Unsupportedf("none of the model's linears can be stored as exl2: their inputs are no multiples of 32")
}

// start puts the stream in front of the first layer.
func (m *measurement) start() error {
	set := m.job.opts.Calib
	tokens := set.Windows * set.SeqLen
	m.hidden = kernel.MatF32(tokens, m.model.Hidden, make([]float32, tokens*m.model.Hidden))
	if err := m.run.Embed(m.hidden, set.IDs[:tokens], m.src); err != nil {
		return safeio.WithPath(err, m.src.Meta().Path)
	}
	rows := m.probeWindows() * set.SeqLen
	m.probes, m.slots = exl2.NewProbes(m.run, m.hidden.Slice(0, rows, 0, m.hidden.Cols), true), nil
	return nil
}

// probeWindows is the number of calibration windows that probes pass through the model.
func (m *measurement) probeWindows() int {
	set, probes := m.job.opts.Calib, int64(1)
	for i := range m.model.Blocks {
		probes += int64(len(slotGroups(&m.model.Blocks[i])))
	}
	fits := int(probeBytes / (4 * probes * int64(set.SeqLen) * int64(m.model.Hidden)))
	return min(max(fits, 1), maxProbeWindows, set.Windows)
}

// layers measures every block behind the ones that an earlier run finished.
func (m *measurement) layers(ctx context.Context) error {
	if err := m.start(); err != nil {
		return err
	}
	first, err := m.resume()
	if err != nil {
		return err
	}
	layers := len(m.model.Blocks)
	for i := first; i < layers; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		m.job.progress(fmt.Sprintf("measuring layer %d of %d", i+1, layers), float64(i)/float64(layers))
		o := forward.LoadOptions{Pool: m.pool}
		if m.job.opts.NaNZero {
			o.NonFinite = forward.NonFiniteZero // reported when the layer is quantized
		}
		b, err := forward.Load(m.src, m.model, i, o)
		if err != nil {
			return safeio.WithPath(err, m.src.Meta().Path)
		}
		if err := m.block(ctx, b); err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
		if err := m.finished(i); err != nil {
			return err
		}
	}
	return nil
}

// slotGroup is one decision: a linear, or the same linear of all experts.
type slotGroup struct {
	name    string
	linears []*arch.Linear
}

// slotGroups lists the decisions of a block; modules that cannot be stored are left out.
func slotGroups(b *arch.Block) (groups []slotGroup) {
	kept := map[string]bool{} // modules of mixedWith
	for _, l := range b.Linears() {
		if packing.EXL2Fits(l.Out, l.In) != nil {
			kept[mixedWith[l.Role]] = true
		}
	}
	at := map[arch.Role]int{}
	for _, l := range b.Linears() {
		if kept[mixedWith[l.Role]] {
			continue
		}
		if i, ok := at[l.Role]; ok && l.Expert >= 0 {
			groups[i].linears = append(groups[i].linears, l)
			continue
		}
		at[l.Role] = len(groups)
		groups = append(groups, slotGroup{l.Name, []*arch.Linear{l}})
	}
	return groups
}

// EXL2Slots lists what can be chosen for a model, without options: what a choice that was made by hand is checked
// against where there is no measurement.
func EXL2Slots(m *arch.Model) (slots []exl2.Slot) {
	for i := range m.Blocks {
		for _, g := range slotGroups(&m.Blocks[i]) {
			slots = append(slots, g.slot())
		}
	}
	return slots
}

func (g slotGroup) slot() exl2.Slot {
	s := exl2.Slot{Name: g.name, Sensitivity: 1}
	for _, l := range g.linears {
		s.Modules = append(s.Modules, exl2.Module{Name: l.Name, Out: l.Out, In: l.In})
	}
	return s
}

// CheckEXL2Target says whether the candidates of a measurement reach a target, which does not need one.
func CheckEXL2Target(m *arch.Model, target float64) error {
	slots := EXL2Slots(m)
	for i := range slots {
		s := &slots[i]
		cands, err := exl2.Candidates(s.Modules[0].In)
		if err != nil {
			return err
		}
		for _, c := range cands {
			o := exl2.Option{Candidates: []exl2.Candidate{c}}
			for _, module := range s.Modules {
				o.Bits += c.Bits(module.Out, module.In)
			}
			o.Error = 1 / float64(o.Bits) // any that falls with bits
			s.Options = append(s.Options, o)
		}
	}
	_, err := exl2.Optimize(slots, target)
	return err
}

// ReadMeasurement reads a measurement file, ours or ExLlamaV2's measurement.json, and checks it against the model's shapes.
func ReadMeasurement(file string, m *arch.Model) (*exl2.Measurement, error) {
	text, err := safeio.ReadFile(file, exl2.MaxMeasurement)
	if err != nil {
		return nil, err
	}
	shapes := map[string][2]int{}
	for i := range m.Blocks {
		for _, l := range m.Blocks[i].Linears() {
			shapes[l.Name] = [2]int{l.Out, l.In}
		}
	}
	measured, err := exl2.ReadMeasurement(text, func(module string) (out, in int, ok bool) {
		s, ok := shapes[module]
		return s[0], s[1], ok
	})
	if err != nil {
		return nil, safeio.WithPath(err, file)
	}
	return measured, nil
}
