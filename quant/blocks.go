package quant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// unitState is what the journal keeps of a finished unit, so that a resumed run reports the same.
type unitState struct {
	Rows   []TensorReport `json:"rows"`
	Events []Event        `json:"events,omitempty"`
}

func layerUnit(i int) string { return fmt.Sprintf("layer %d", i) }

// blocks takes every decoder block through the recipe, in order.
func (j *job) blocks(ctx context.Context) error {
	layers, first := len(j.plan.Model.Blocks), j.finishedLayers()
	s := &stream{job: j}
	j.stream = s
	if j.recipe.Needs() != 0 && (first < layers || j.headCalibrated() && !j.out.Done(outsideUnit)) {
		err := s.begin(ctx, first)
		if first > 0 && errors.Is(err, fs.ErrNotExist) {
			first, err = 0, j.restart(ctx, s)
		}
		if err != nil {
			return err
		}
	}
	for i := first; i < layers; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		j.progress(fmt.Sprintf("layer %d of %d", i+1, layers), float64(i)/float64(layers))
		if err := j.block(ctx, s, i); err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
	}
	return nil
}

// finishedLayers is the number of leading layers that an earlier run finished.
func (j *job) finishedLayers() (n int) {
	for n < len(j.plan.Model.Blocks) && j.out.Done(layerUnit(n)) {
		n++
	}
	return n
}

// restart begins again with the first layer: the hidden states that the next one needs are lost, because they or the
// layer behind them were damaged on disk. That costs work, never the result.
func (j *job) restart(ctx context.Context, s *stream) error {
	if err := j.out.Restart(); err != nil {
		return err
	}
	j.mu.Lock()
	j.rows, j.events = nil, append([]Event(nil), j.noted...)
	j.mu.Unlock()
	j.event(Event{Kind: EventFinding, Layer: -1, Message: "finished work of the earlier run is damaged on disk: starting over"})
	j.takeUnit()
	return s.begin(ctx, 0)
}

// block processes one layer: statistics, transforms, rounding, writing, journal.
func (j *job) block(ctx context.Context, s *stream, i int) error {
	l, err := j.load(i)
	if err != nil {
		return err
	}
	var rows []TensorReport
	round := func(lin *arch.Linear) error {
		row, err := j.round(ctx, l, lin)
		rows = append(rows, row)
		return err
	}
	needs := j.recipe.Needs()
	switch {
	case needs == 0:
		err = j.plainBlock(ctx, l, round)
	case needs.Has(NeedSequential):
		err = s.sequential(ctx, l, round)
	default:
		err = s.parallel(ctx, l, round)
	}
	if err != nil {
		return err
	}
	kept, err := j.sink.kept(ctx, l)
	if err != nil {
		return err
	}
	goesOn := needs != 0 && (i+1 < len(j.plan.Model.Blocks) || j.headCalibrated())
	if goesOn {
		if err := s.save(i + 1); err != nil {
			return err
		}
	}
	if err := j.finish(layerUnit(i), l.Index, append(rows, kept...)); err != nil {
		return err
	}
	if goesOn {
		return s.turn()
	}
	return nil
}

// loadOptions are those of every weight that is read to compute with.
func (j *job) loadOptions() forward.LoadOptions {
	o := forward.LoadOptions{Pool: j.pool}
	if j.opts.NaNZero {
		o.NonFinite = forward.NonFiniteZero
	}
	return o
}

// load reads a block and reports non-finite weights that were replaced.
func (j *job) load(i int) (*Layer, error) {
	b, err := forward.Load(j.src, j.plan.Model, i, j.loadOptions())
	if err != nil {
		return nil, safeio.WithPath(err, j.src.Meta().Path)
	}
	l := &Layer{Index: i, Model: j.plan.Model, Arch: b.Arch, Block: b, plan: j.plan.lookup(), stats: map[inputKey]*Stats{},
		pool: j.pool, changed: map[string]bool{}, normBefore: map[string][]float32{}}
	for _, f := range b.Findings {
		j.event(Event{Kind: EventFinding, Layer: i, Tensor: f.Tensor, Count: f.Count, Message: f.String() + ", replaced by 0"})
		l.changed[f.Tensor] = true
	}
	return l, nil
}

// plainBlock rounds a block without statistics.
func (j *job) plainBlock(ctx context.Context, l *Layer, round func(*arch.Linear) error) error {
	for _, t := range j.recipe.Transforms {
		if err := t.Apply(ctx, l); err != nil {
			return err
		}
	}
	return eachQuantized(l, l.Arch.Linears(), round)
}

// eachQuantized calls round for those linears that are to be quantized.
func eachQuantized(l *Layer, linears []*arch.Linear, round func(*arch.Linear) error) error {
	for _, lin := range linears {
		if _, ok := l.Scheme(lin); ok {
			if err := round(lin); err != nil {
				return fmt.Errorf("%s: %w", lin.Name, err)
			}
		}
	}
	return nil
}

// writeKept writes the tensors of the block that stay dense: copied bit for bit, or from the block where a transform
// changed them.
func (j *job) writeKept(ctx context.Context, l *Layer) ([]TensorReport, error) {
	var rows []TensorReport
	for i := range j.plan.Tensors {
		t := &j.plan.Tensors[i]
		if t.Layer != l.Index || t.Quantize {
			continue
		}
		var err error
		if l.changed[t.Info.Name] {
			err = j.writeFloats(t, l.values(t.Info.Name))
		} else {
			err = j.copyTensor(ctx, t)
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, t.report())
	}
	return rows, nil
}

// values returns the current values of a norm, bias or linear of the block.
func (l *Layer) values(name string) []float32 {
	if l.head != nil {
		return l.norm(name)
	}
	switch name {
	case l.Arch.QNorm:
		return l.Block.QNorm
	case l.Arch.KNorm:
		return l.Block.KNorm
	}
	if n := l.norm(name); n != nil {
		return n
	}
	linears := l.Arch.Linears()
	if l.Arch.MoE != nil {
		linears = append(linears, &l.Arch.MoE.Router)
	}
	for _, lin := range linears {
		switch name {
		case lin.Weight():
			return l.Weights(lin)
		case lin.Name + ".bias":
			return l.Block.Linear(lin).Bias
		}
	}
	return nil
}

// writeFloats rounds values to the stored type and writes the tensor.
func (j *job) writeFloats(t *PlannedTensor, values []float32) error {
	out := t.Stored[0]
	n, _ := out.Bytes()
	buf := make([]byte, n)
	own := buf[:min(n, int64(len(values))*out.DType.Size())] // padding behind it stays zero
	if err := tensor.FromFloat32(own, out.DType, values); err != nil {
		return err
	}
	var lost census
	lost.look(out.DType, buf, 0, false)
	if err := j.outOfRange(lost, t, out.DType); err != nil {
		return err
	}
	return j.out.Write(out.Name, 0, buf)
}

// copyChunk is how much of a tensor is copied at a time.
const copyChunk = 8 << 20

// copyTensor copies a tensor bit for bit, or converts it to the planned element type. Non-finite values are an error,
// or become 0 where the user wants that.
func (j *job) copyTensor(ctx context.Context, t *PlannedTensor) error {
	from, to := t.Info.DType, t.Stored[0].DType
	var bad, lost census
	total, _ := t.Info.Bytes()
	step := int64(copyChunk) / from.Size() * from.Size()
	for off := int64(0); off < total; off += step {
		if err := ctx.Err(); err != nil {
			return err
		}
		buf := make([]byte, min(step, total-off))
		if err := j.src.ReadTensor(t.Info.Name, buf, off); err != nil {
			return err
		}
		if t.Role != arch.RoleUnknown { // masks and buffers may hold infinities on purpose
			bad.look(from, buf, off/from.Size(), j.opts.NaNZero)
		}
		at := off
		if from != to {
			var err error
			if buf, err = converted(buf, from, to); err != nil {
				return err
			}
			at = off / from.Size() * to.Size()
			lost.look(to, buf, off/from.Size(), false)
		}
		if err := j.out.Write(t.Stored[0].Name, at, buf); err != nil {
			return err
		}
	}
	if err := j.admit(bad, t.Info.Name, t.Info.Shape, t.Layer); err != nil {
		return err
	}
	if err := j.outOfRange(lost, t, to); err != nil {
		return err
	}
	return j.writePadding(t, total/from.Size()*to.Size())
}

// writePadding fills what a layout stores behind the tensor's own elements, which end at the given byte, with zeros.
func (j *job) writePadding(t *PlannedTensor, end int64) error {
	n, _ := t.Stored[0].Bytes()
	if end >= n {
		return nil
	}
	return j.out.Write(t.Stored[0].Name, end, make([]byte, n-end))
}

// converted rounds elements of one type to another.
func converted(raw []byte, from, to tensor.DType) ([]byte, error) {
	values := make([]float32, int64(len(raw))/from.Size())
	if err := tensor.ToFloat32(values, from, raw); err != nil {
		return nil, err
	}
	out := make([]byte, int64(len(values))*to.Size())
	return out, tensor.FromFloat32(out, to, values)
}

// report is the row of a tensor that is kept.
func (p *PlannedTensor) report() TensorReport {
	row := TensorReport{Name: p.Info.Name, Role: string(p.Role), Shape: p.Info.Shape, Grid: p.Grid(), Bytes: p.Bytes(), Fallback: p.Reason}
	if n, _ := p.Info.Elements(); n > 0 {
		row.BitsPerWeight = 8 * float64(row.Bytes) / float64(n)
	}
	return row
}

// finish makes the unit of a layer durable, or with -1 that of what lies outside the blocks.
func (j *job) finish(unit string, layer int, rows []TensorReport) error {
	return j.finishUnit(unit, j.sink.names(layer), rows)
}

// finishUnit makes the named output tensors durable: data first, then their journal line.
func (j *job) finishUnit(unit string, names []string, rows []TensorReport) error {
	events := j.takeUnit()
	if err := j.strict(events); err != nil {
		return err
	}
	state, err := json.Marshal(unitState{Rows: rows, Events: events})
	if err != nil {
		return err
	}
	j.keepRows(rows)
	return j.out.Finish(unit, names, state)
}

func (j *job) keepRows(rows []TensorReport) {
	if j.rows == nil {
		j.rows = map[string]TensorReport{}
	}
	for _, r := range rows {
		j.rows[r.Name] = r
	}
}
