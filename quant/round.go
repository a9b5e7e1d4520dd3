package quant

import (
	"context"
	"math"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/internal/kernel"
)

// pool returns the threads a rounder may use.
func (m *Matrix) pool() *kernel.Pool {
	if m.Layer == nil {
		return nil
	}
	return m.Layer.pool
}

// round quantizes one linear, writes it, and makes the block compute with what was written.
func (j *job) round(ctx context.Context, l *Layer, lin *arch.Linear) (TensorReport, error) {
	t := l.plan[lin.Weight()]
	row := t.report()
	stats := l.inputOf(lin)
	w := l.Weights(lin)
	m := &Matrix{Linear: lin, Scheme: t.Scheme, W: w, MinZero: j.plan.minZero(), Positive: j.plan.positive(), Layer: l}
	q, err := j.recipe.Rounder.Round(ctx, m, stats)
	if err != nil {
		return row, err
	}
	values, err := decode(q)
	if err != nil {
		return row, err
	}
	if q, values, err = j.notWorse(ctx, m, stats, q, values, &row); err != nil {
		return row, err
	}
	row.RelError = relError(values, w)
	if err := j.sink.linear(t, q); err != nil {
		return row, err
	}
	l.linear(lin).W = kernel.MatF32(lin.Out, lin.In, values)
	return row, nil
}

// notWorse measures the output error on the calibration data and replaces a result that plain rounding beats.
func (j *job) notWorse(ctx context.Context, m *Matrix, stats *Stats, q *packing.Linear, values []float32, row *TensorReport) (*packing.Linear, []float32, error) {
	if !stats.known() {
		return q, values, nil
	}
	if stats.Tokens == 0 {
		row.Fallback = "no calibration token reached this expert: plain rounding"
		Emit(ctx, Event{Kind: EventFallback, Layer: m.Layer.Index, Tensor: m.Linear.Weight(), Message: row.Fallback})
		return q, values, nil
	}
	w := kernel.MatF32(q.Out, q.In, m.W)
	power := stats.squared(j.pool, w)
	if power == 0 {
		return q, values, nil
	}
	if m.Scheme.Grid == exl2Name { // its solver keeps the better of both, row by row
		row.OutError = math.Sqrt(stats.squared(j.pool, difference(q, values, m.W)) / power)
		return q, values, nil
	}
	plain, err := m.plain(ctx, stats)
	if err != nil {
		return nil, nil, err
	}
	plainValues, err := decode(plain)
	if err != nil {
		return nil, nil, err
	}
	delta, plainDelta := difference(q, values, m.W), difference(q, plainValues, m.W)
	got, base := stats.squared(j.pool, delta), stats.squared(j.pool, plainDelta)
	row.OutError, row.RoundingOutError = math.Sqrt(got/power), math.Sqrt(base/power)
	if stats.shift != nil { // what counts then is the distance from the full-precision model
		push := stats.push(j.pool, w)
		got -= 2 * kernel.Dot64(push.F32, delta.F32)
		base -= 2 * kernel.Dot64(push.F32, plainDelta.F32)
	}
	if got <= base {
		return q, values, nil
	}
	row.OutError = row.RoundingOutError
	row.Fallback = "plain rounding has the smaller output error"
	Emit(ctx, Event{Kind: EventFinding, Layer: m.Layer.Index, Tensor: m.Linear.Weight(), Message: row.Fallback})
	return plain, plainValues, nil
}

// difference is what rounding changed, [Out, In].
func difference(q *packing.Linear, values, w []float32) kernel.Mat {
	delta := make([]float32, len(w))
	for i := range delta {
		delta[i] = values[i] - w[i]
	}
	return kernel.MatF32(q.Out, q.In, delta)
}

// relError is ‖a−b‖/‖b‖.
func relError(a, b []float32) float64 {
	var num, den float64
	for i, v := range b {
		d := float64(a[i]) - float64(v)
		num += float64(d * d)
		den += float64(float64(v) * float64(v))
	}
	if den == 0 {
		return 0
	}
	return math.Sqrt(num / den)
}

// writeLinear validates, packs and writes a quantized linear.
func (j *job) writeLinear(t *PlannedTensor, q *packing.Linear) error {
	if err := packing.Validate(q, j.plan.Layout); err != nil {
		return err
	}
	parts := make(map[string][]byte, len(t.Stored))
	for _, s := range t.Stored {
		n, _ := s.Bytes()
		parts[s.Name[len(t.Module())+1:]] = make([]byte, n)
	}
	if err := j.plan.Layout.Pack(q, func(suffix string) []byte { return parts[suffix] }); err != nil {
		return err
	}
	for _, s := range t.Stored {
		if err := j.out.Write(s.Name, 0, parts[s.Name[len(t.Module())+1:]]); err != nil {
			return err
		}
	}
	return nil
}
