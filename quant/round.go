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
	worse, err := j.judge(ctx, m, stats, values, &row)
	if err != nil {
		return row, err
	}
	if worse {
		if q, err = m.plain(ctx, stats); err != nil {
			return row, err
		}
		if values, err = decode(q); err != nil {
			return row, err
		}
	}
	row.RelError = relError(values, w)
	if err := j.sink.linear(t, q); err != nil {
		return row, err
	}
	l.linear(lin).W = j.computed(kernel.MatF32(lin.Out, lin.In, values))
	return row, nil
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
