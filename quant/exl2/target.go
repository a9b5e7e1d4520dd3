package exl2

import (
	"context"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/gptq"
)

// Target returns Wt = W + ρ·(W·D + E)·Hλ⁻¹, to be quantized in place of w[out,K]: the weight whose outputs on the inputs
// of the quantized model come closest to the full-precision model's outputs on its own inputs (QEP, arXiv 2504.09629;
// Qronos, 2505.11695). ρ = 1 fits the calibration text and drifts on other text. With statistics of half the windows, ρ is
// the share of the shift computed from that half that the other half confirms; without, it is Options.Rho. st holds the
// statistics that p was prepared with; without D in it, w itself is returned. groups are those that Quantize will get.
func (p *Prepared) Target(ctx context.Context, pool *kernel.Pool, st *gptq.Stats, w []float32, out int, groups []packing.EXL2Group) (target []float32, rho float64, err error) {
	n := p.k * p.k
	switch {
	case out < 1 || len(w) != out*p.k:
		return nil, 0, safeio.Corruptf("%d weights for %d outputs of %d inputs", len(w), out, p.k)
	case st.D == nil || p.h == nil:
		return w, 0, nil
	case len(st.D) != n, st.Drift != nil && len(st.Drift) != len(w), st.HalfDrift != nil && len(st.HalfDrift) != len(w),
		st.Half != nil && (len(st.Half.H) != n || len(st.Half.D) != n || !(st.Half.Weight > 0 && st.Half.Weight < 1)):
		return nil, 0, safeio.Corruptf("mismatch statistics of the wrong size for %d outputs of %d inputs", out, p.k)
	}
	a := p.arrange(pool, groups)
	if a.u == nil || firstBad(pool, st.D, p.k) >= 0 {
		return w, 0, nil
	}
	if rho = p.opt.Rho; st.Half != nil {
		rho = p.heldOut(ctx, pool, st, w, out)
	}
	if !(rho > 0) {
		return w, 0, ctx.Err()
	}
	target = make([]float32, len(w))
	s := shifter{p: p, pool: pool, d: narrow(p, pool, st.D, nil, 0), drift: st.Drift}
	err = eachChunk(ctx, out, func(lo, hi int) {
		shift := s.push(w[lo*p.k:hi*p.k], lo)
		s.divide(shift, a)
		for i, v := range shift.F32 {
			target[lo*p.k+i] = w[lo*p.k+i] + float32(float32(rho)*v)
		}
	})
	return target, rho, err
}

// heldOut computes the shift S from one half of the windows and asks the other half how much of it to use: the ρ that
// minimises the second half's output error, ⟨push_B, S⟩ / ⟨S·H_B, S⟩, kept within 0 … 1.
func (p *Prepared) heldOut(ctx context.Context, pool *kernel.Pool, st *gptq.Stats, w []float32, out int) float64 {
	half := p.halfFactor(pool, st.Half.H)
	if half.u == nil {
		return 0
	}
	share := st.Half.ShiftWeight()
	here := shifter{p: p, pool: pool, d: narrow(p, pool, st.Half.D, nil, 0), drift: st.HalfDrift}
	there := shifter{p: p, pool: pool, d: narrow(p, pool, st.D, st.Half.D, share), drift: st.Drift, less: st.HalfDrift, share: share}
	h := kernel.MatF32(p.k, p.k, narrow(p, pool, p.h, st.Half.H, st.Half.Weight))
	var num, den float64
	err := eachChunk(ctx, out, func(lo, hi int) {
		part := w[lo*p.k : hi*p.k]
		shift := here.push(part, lo)
		here.divide(shift, half)
		confirm := there.push(part, lo)
		cost := kernel.MatF32(hi-lo, p.k, make([]float32, len(part)))
		kernel.GemmNN(pool, cost, shift, h, false)
		num += kernel.Dot64(shift.F32, confirm.F32)
		den += kernel.Dot64(shift.F32, cost.F32)
	})
	if err != nil || !(num > 0) || !(den > 0) {
		return 0
	}
	return min(num/den, 1)
}

// halfFactor factors the half's Hessian, once for all linears of the input.
func (p *Prepared) halfFactor(pool *kernel.Pool, h []float64) *arrangement {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.half == nil {
		p.half = p.factor(pool, h, p.perm)
		p.half.h = nil
	}
	return p.half
}

// shifter computes pushes W·D + E for some outputs at a time.
type shifter struct {
	p     *Prepared
	pool  *kernel.Pool
	d     []float32 // [K,K] in units of the mean diagonal
	drift []float32 // [out,K], nil for none
	less  []float32 // what of drift belongs to the half that is left out, and its share
	share float64
}

// chunkRows is the number of outputs whose shift is computed at a time.
const chunkRows = 1024

func eachChunk(ctx context.Context, out int, f func(lo, hi int)) error {
	for lo := 0; lo < out; lo += chunkRows {
		if err := ctx.Err(); err != nil {
			return err
		}
		f(lo, min(lo+chunkRows, out))
	}
	return ctx.Err()
}

// push returns W·D + E for the outputs w, the first of which is row0.
func (s *shifter) push(w []float32, row0 int) kernel.Mat {
	k := s.p.k
	r := kernel.MatF32(len(w)/k, k, make([]float32, len(w)))
	kernel.GemmNN(s.pool, r, kernel.MatF32(len(w)/k, k, w), kernel.MatF32(k, k, s.d), false)
	if s.drift == nil {
		return r
	}
	at := row0 * k
	for i := range r.F32 {
		v := float64(s.drift[at+i])
		if s.less != nil {
			v = (v - float64(s.share*float64(s.less[at+i]))) / (1 - s.share)
		}
		r.F32[i] += float32(v / s.p.mean)
	}
	return r
}

// divide replaces s by s·H⁻¹ = (s·Uᵀ)·U.
func (s *shifter) divide(m kernel.Mat, a *arrangement) {
	x, y := make([]float32, len(m.F32)), make([]float32, len(m.F32))
	xm, ym, u := kernel.MatF32(m.Rows, m.Cols, x), kernel.MatF32(m.Rows, m.Cols, y), kernel.MatF32(m.Cols, m.Cols, a.u)
	for r := range m.Rows {
		from, to := m.Row(r), xm.Row(r)
		for pos, c := range a.cols {
			to[pos] = from[c]
		}
	}
	kernel.GemmNT(s.pool, ym, xm, u, false)
	kernel.GemmNN(s.pool, xm, ym, u, false)
	for r := range m.Rows {
		from, to := xm.Row(r), m.Row(r)
		for pos, c := range a.cols {
			to[c] = from[pos]
		}
	}
}

// narrow returns a statistic in units of the mean diagonal; with less, that of the tokens outside a half.
func narrow[T float32 | float64](p *Prepared, pool *kernel.Pool, m, less []T, share float64) []float32 {
	n := make([]float32, len(m))
	pool.Run(p.k, func(i int) {
		for j := i * p.k; j < (i+1)*p.k; j++ {
			v := float64(m[j])
			if less != nil {
				v = (v - float64(share*float64(less[j]))) / (1 - share)
			}
			n[j] = float32(v / p.mean)
		}
	})
	return n
}
