package quant

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/kernel"
)

// Run quantizes src with recipe r and leaves a complete artifact at o.Out, or nothing there. A run that was
// interrupted continues when it is started again with the same arguments; the result is the same, byte for byte.
func Run(ctx context.Context, src formats.Checkpoint, r Recipe, o Options) (*Report, error) {
	start := time.Now()
	plan, err := MakePlan(ctx, src, r, o)
	if err != nil {
		return nil, err
	}
	j := &job{src: src, recipe: &r, opts: &o, plan: plan, pool: newPool(o.Threads), start: start}
	j.sink = directory{j}
	ctx = context.WithValue(ctx, eventKey{}, j.event)
	j.notes(plan.Notes)
	if plan.isEXL2() {
		if err := checkHalf(ctx, src, plan.Model); err != nil {
			return nil, err
		}
	}
	if err := j.open(ctx); err != nil {
		return nil, err
	}
	defer j.out.Close()
	defer func() { j.stream.close() }()
	if err := j.resumed(); err != nil {
		return nil, err
	}
	if err := j.blocks(ctx); err != nil {
		return nil, err
	}
	if err := j.remaining(ctx); err != nil {
		return nil, err
	}
	return j.publish(ctx)
}

// job is one run in progress.
type job struct {
	src    formats.Checkpoint
	recipe *Recipe
	opts   *Options
	plan   *Plan
	pool   *kernel.Pool
	out    *formats.Job
	sink   artifact
	stream *stream
	start  time.Time
	inputs []FileHash

	mu     sync.Mutex
	events []Event
	rows   map[string]TensorReport // by tensor name
	noted  []Event                 // what the plan found
	unit   []Event                 // findings of the unit in progress, stored with it for a resumed run
}

// MakePlan validates everything that can be validated before arithmetic and computes the complete output.
func MakePlan(ctx context.Context, src formats.Checkpoint, r Recipe, o Options) (*Plan, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	meta := src.Meta()
	if err := RefuseQuantized(src); err != nil {
		return nil, err
	}
	model, err := arch.Resolve(meta.Config, src)
	if err != nil {
		return nil, safeio.WithPath(err, meta.Path)
	}
	p, err := planTensors(model, src, meta.Config, &r, o.Strict)
	if err != nil {
		return nil, &safeio.Error{Op: "plan", Path: meta.Path, Off: -1, Err: err}
	}
	if r.GPTQ.DescAct {
		if err := p.storesGroupIndex(); err != nil {
			return nil, err
		}
	}
	if r.Needs() != 0 {
		if err := checkCalibration(&o, model); err != nil {
			return nil, err
		}
	}
	if err := p.layOut(o.maxShard()); err != nil {
		return nil, err
	}
	p.Source = 0
	for _, f := range meta.Files {
		p.Source += f.Size
	}
	if _, err := p.quantizationConfig("quantize", &r); err != nil {
		return nil, safeio.WithPath(err, meta.Path)
	}
	p.Engines = Engines(r.Layout, p.Tensors, r.GPTQ.DescAct)
	p.fit(&r, &o, 0)
	p.Memory, p.Work = max(p.Memory, o.Before), workEstimate(p, &r, &o)
	return p, checkMemory(p.Memory, r.Needs() != 0, &o)
}

// storesGroupIndex refuses groups in activation order in a layout that has no place for them.
func (p *Plan) storesGroupIndex() error {
	for i := range p.Tensors {
		t := &p.Tensors[i]
		if !t.Quantize {
			continue
		}
		if !slices.ContainsFunc(t.Stored, func(s tensor.Info) bool { return s.Name == t.Module()+".g_idx" }) {
			return optionsf("groups in activation order need a layout that stores g_idx: gptq or gptq_v2")
		}
	}
	return nil
}

// RefuseQuantized fails for a checkpoint whose weights are rounded already.
func RefuseQuantized(src formats.Checkpoint) error {
	meta := src.Meta()
	if meta.Quant == nil {
		return nil
	}
	return &safeio.Error{Op: "quantize", Path: meta.Path, Off: -1,
		Hint: "start from the original checkpoint, or use `quantize convert` to change the layout without another rounding",
		Err:  safeio.Unsupportedf("the checkpoint is already quantized (%s)", meta.Quant.Method)}
}

func checkCalibration(o *Options, m *arch.Model) error {
	set := o.Calib
	switch {
	case set == nil || set.Windows == 0:
		return optionsf("this method needs calibration text and there is none")
	case set.SeqLen > m.MaxPos:
		return optionsf("calibration windows of %d tokens are longer than the model's context of %d", set.SeqLen, m.MaxPos)
	}
	for _, id := range set.IDs {
		if id < 0 || int(id) >= m.Vocab {
			return safeio.Corruptf("calibration token id %d is outside the model's vocabulary of %d", id, m.Vocab)
		}
	}
	return nil
}

func newPool(threads int) *kernel.Pool { return kernel.NewPool(poolThreads(threads)) }

// event passes an event on and keeps findings for the report. Under Strict a fallback stops the run.
func (j *job) event(e Event) {
	j.mu.Lock()
	if e.Kind == EventFinding || e.Kind == EventFallback {
		j.events = append(j.events, e)
		j.unit = append(j.unit, e)
	}
	j.mu.Unlock()
	if j.opts.Events != nil {
		j.opts.Events(e)
	}
}

// notes reports what the plan found. Every run finds the same, so it is no part of a unit's state.
func (j *job) notes(notes []Event) {
	j.noted = notes
	for _, e := range notes {
		j.event(e)
	}
	j.takeUnit()
}

// takeUnit returns the findings since the last call.
func (j *job) takeUnit() []Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	events := j.unit
	j.unit = nil
	return events
}

// strict turns the unit's fallbacks into an error when the user asked for that.
func (j *job) strict(events []Event) error {
	if !j.opts.Strict {
		return nil
	}
	for _, e := range events {
		if e.Kind == EventFallback {
			return safeio.Unsupportedf("%s: %s (--strict allows no fallback)", e.Tensor, e.Message)
		}
	}
	return nil
}

// progress reports how far the run is, from the share of blocks done and the time it took.
func (j *job) progress(stage string, done float64) {
	spent := time.Since(j.start).Seconds()
	e := Event{Kind: EventProgress, Layer: -1, Stage: stage, Done: done, Seconds: spent}
	if done > 0 {
		e.LeftSecs = spent * (1 - done) / done
	}
	j.event(e)
}

// bytesOf reads a whole tensor.
func bytesOf(src tensor.Source, info tensor.Info) ([]byte, error) {
	n, ok := info.Bytes()
	if !ok {
		return nil, safeio.Corruptf("tensor %s has no size", info.Name)
	}
	buf := make([]byte, n)
	return buf, src.ReadTensor(info.Name, buf, 0)
}
