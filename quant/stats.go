package quant

import (
	"math"

	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/exl2"
	"github.com/llmquant/quantize/quant/gptq"
	"github.com/llmquant/quantize/quant/grid"
)

// Stats are what calibration saw at the input of one or more linears that share it. Averages are over tokens.
type Stats struct {
	K       int       // input channels
	Tokens  int64     // tokens seen; 0: an expert that no token was routed to
	AbsMean []float32 // [K] E|x_k|, with NeedAbsMean
	MaxAbs  []float32 // [K] max|x_k|, with NeedMaxAbs
	Gram    []float64 // [K,K] E[x xᵀ], symmetric, with NeedGram

	shift     []float32      // [K,K] E[(x_f − x)xᵀ], x_f the input of the full-precision model; nil when not gathered
	half      *gptq.Half     // Gram and shift of every other window
	drift     []float32      // [hidden,K] E[(r_f − r)xᵀ] of the residual stream that the linear writes to; nil for others
	halfDrift []float32      // the same of every other window
	gram32    []float32      // Gram in float32, made on demand for GEMMs, dropped when Gram changes; alone where sums are float32
	prepared  *gptq.Prepared // factor of Gram, shared by the linears that read this input; Gram went into it
	diagonal  []float32      // of Gram, kept when Gram is not
	descent   *gptq.Prepared // Gram as descent takes it, beside Gram
	mixed     *exl2.Prepared // Gram as mixed bit widths take it, beside Gram
}

// known reports whether second moments were gathered, wherever they are by now.
func (st *Stats) known() bool {
	return st != nil && (st.Gram != nil || st.gram32 != nil || st.prepared != nil)
}

// forSolver is what solvers take: the Gram matrix and the distance from the full-precision model.
func (st *Stats) forSolver() *gptq.Stats {
	s := &gptq.Stats{K: st.K, H: st.Gram, D: st.shift, Half: st.half, Drift: st.drift, HalfDrift: st.halfDrift}
	if s.H == nil {
		s.H32, s.Narrow = st.gram32, true
	}
	return s
}

// prepare factors the Gram matrix once for all linears that share it. Its memory serves the factorization and is free
// afterwards: from here on the moments live in the result.
func (st *Stats) prepare(m *Matrix, g grid.Grid, o gptq.Options) (*gptq.Prepared, error) {
	switch {
	case st.prepared == nil:
		st.importance()
		s := st.forSolver()
		s.Scratch = true
		p, err := gptq.Prepare(m.pool(), s, g, o)
		if err != nil {
			return nil, err
		}
		st.prepared, st.Gram, st.gram32, st.half = p, nil, nil, nil
	case !st.prepared.Serves(g):
		st.prepared = st.prepared.For(m.pool(), g)
	}
	return st.prepared, nil
}

// forDescent damps the Gram matrix once for all linears that share it.
func (st *Stats) forDescent(m *Matrix, g grid.Grid, passes int) (p *gptq.Prepared, err error) {
	if st.descent == nil || !st.descent.Serves(g) {
		o := gptq.Best()
		o.Passes = passes
		st.descent, err = gptq.PrepareDescent(m.pool(), &gptq.Stats{K: st.K, H: st.Gram}, g, o)
	}
	return st.descent, err
}

// Divide makes the statistics those of x/s, as a transform that multiplies the columns of W by s must.
func (st *Stats) Divide(s []float32) {
	for k, f := range s {
		if st.AbsMean != nil {
			st.AbsMean[k] /= f
		}
		if st.MaxAbs != nil {
			st.MaxAbs[k] /= f
		}
	}
	if st.Gram == nil {
		return
	}
	st.descent, st.mixed = nil, nil
	st.gram32, st.prepared, st.shift, st.half, st.drift, st.halfDrift = nil, nil, nil, nil, nil, nil
	for i := 0; i < st.K; i++ {
		row := st.Gram[i*st.K : (i+1)*st.K]
		for j := range row {
			row[j] /= float64(s[i]) * float64(s[j])
		}
	}
}

// Gram32 returns the Gram matrix as a float32 operand for GEMMs.
func (st *Stats) Gram32() kernel.Mat {
	if st.gram32 == nil {
		st.gram32 = make([]float32, len(st.Gram))
		for i, v := range st.Gram {
			st.gram32[i] = float32(v)
		}
	}
	return kernel.MatF32(st.K, st.K, st.gram32)
}

// OutputError returns Σ_n δ_n·E[x xᵀ]·δ_nᵀ for the rows of delta [N,K]: the mean squared error that the weight error
// delta causes at the layer's output, summed over its N outputs. scratch holds at least N·K floats.
func (st *Stats) OutputError(pool *kernel.Pool, delta kernel.Mat, scratch []float32) float64 {
	product := kernel.MatF32(delta.Rows, st.K, scratch[:delta.Rows*st.K])
	kernel.GemmNN(pool, product, delta, st.Gram32(), false)
	rows := make([]float64, delta.Rows)
	pool.Run(delta.Rows, func(n int) {
		d := delta.F32[n*delta.Stride:][:st.K]
		p := product.F32[n*st.K:][:st.K]
		var sum float64
		for k := range d {
			sum += float64(float64(d[k]) * float64(p[k]))
		}
		rows[n] = sum
	})
	var total float64
	for _, v := range rows {
		total += v
	}
	return math.Max(total, 0)
}

// squared is OutputError by way of whatever the moments are kept in, with half the products.
func (st *Stats) squared(pool *kernel.Pool, delta kernel.Mat) float64 {
	if st.prepared != nil {
		return st.prepared.Squared(pool, delta)
	}
	return gptq.Quadratic(pool, delta, st.Gram32())
}

// push returns W·shift + drift, [N,K], for W with one output in every step. Matching the full-precision model instead of the layer's own output changes the
// error of a weight error δ by twice its scalar product with δ: E‖(x_f·Wᵀ + r_f) − (x·Qᵀ + r)‖² = const +
// OutputError(Q−W) − 2·⟨push, Q−W⟩.
func (st *Stats) push(pool *kernel.Pool, w kernel.Mat, step int) kernel.Mat {
	product := kernel.MatF32(w.Rows, st.K, make([]float32, w.Rows*st.K))
	kernel.GemmNN(pool, product, w, kernel.MatF32(st.K, st.K, st.shift), false)
	if st.drift != nil {
		kernel.AddScaled(product.F32, everyRow(st.drift, st.K, step), 1)
	}
	return product
}
