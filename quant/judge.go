package quant

import (
	"context"
	"math"

	"github.com/llmquant/quantize/internal/kernel"
)

// judgedOutputs is about how many outputs of a linear, spread over all of them, its output error is measured on. Each is a
// quadratic form in all weights of a row: a thousand of them give the error to some per cent, and all 14336 of a large
// layer would take as long as rounding them.
const judgedOutputs = 1024

// judge measures the output error on the calibration data and reports whether plain rounding beats the result.
func (j *job) judge(ctx context.Context, m *Matrix, stats *Stats, values []float32, row *TensorReport) (worse bool, err error) {
	if !stats.known() {
		return false, nil
	}
	if stats.Tokens == 0 {
		row.Fallback = "no calibration token reached this expert: plain rounding"
		Emit(ctx, Event{Kind: EventFallback, Layer: m.Layer.Index, Tensor: m.Linear.Weight(), Message: row.Fallback})
		return false, nil
	}
	step := (m.Linear.Out + judgedOutputs - 1) / judgedOutputs
	some := m.every(step)
	w := some.mat(some.W)
	power := stats.squared(j.pool, w)
	if power == 0 {
		return false, nil
	}
	delta := difference(some.mat(everyRow(values, m.Linear.In, step)), w)
	got := stats.squared(j.pool, delta)
	row.OutError = math.Sqrt(got / power)
	if m.Scheme.Grid == exl2Name { // its solver keeps the better of both, row by row
		return false, nil
	}
	plain, err := some.plain(ctx, stats)
	if err != nil {
		return false, err
	}
	rounded, err := decode(plain)
	if err != nil {
		return false, err
	}
	plainDelta := difference(some.mat(rounded), w)
	base := stats.squared(j.pool, plainDelta)
	row.RoundingOutError = math.Sqrt(base / power)
	if stats.shift != nil { // what counts then is the distance from the full-precision model
		push := stats.push(j.pool, w, step)
		got -= 2 * kernel.Dot64(push.F32, delta.F32)
		base -= 2 * kernel.Dot64(push.F32, plainDelta.F32)
	}
	if got <= base {
		return false, nil
	}
	row.OutError = row.RoundingOutError
	row.Fallback = "plain rounding has the smaller output error"
	Emit(ctx, Event{Kind: EventFinding, Layer: m.Layer.Index, Tensor: m.Linear.Weight(), Message: row.Fallback})
	return true, nil
}

// every returns the matrix of one output in every step.
func (m *Matrix) every(step int) *Matrix {
	if step == 1 {
		return m
	}
	some, lin := *m, *m.Linear
	some.W = everyRow(m.W, lin.In, step)
	lin.Out = len(some.W) / lin.In
	some.Linear = &lin
	return &some
}

// mat views values as a matrix of the shape of m.
func (m *Matrix) mat(values []float32) kernel.Mat {
	return kernel.MatF32(m.Linear.Out, m.Linear.In, values)
}

// everyRow returns one row of cols numbers in every step.
func everyRow(values []float32, cols, step int) []float32 {
	if step == 1 {
		return values
	}
	var some []float32
	for at := 0; at < len(values); at += step * cols {
		some = append(some, values[at:at+cols]...)
	}
	return some
}

// difference is what rounding changed.
func difference(values, w kernel.Mat) kernel.Mat {
	delta := make([]float32, len(w.F32))
	for i := range delta {
		delta[i] = values.F32[i] - w.F32[i]
	}
	return kernel.MatF32(w.Rows, w.Cols, delta)
}
