package gptq

import (
	"github.com/llmquant/quantize/internal/kernel"
)

// target returns Wt = W + ρ·(W·D + E)·Hλ⁻¹: the weight whose outputs on the inputs of the quantized model come closest
// to the full-precision model's outputs on its own inputs. ρ = 1 fits the calibration text and drifts on other text; with
// statistics of a half of the windows, ρ is the share of the shift computed from one half that the other half confirms.
func (p *Prepared) target(pool *kernel.Pool, w []float32, out int) (wt []float32, rho float64) {
	st := p.stats
	if st.D == nil || p.opt.Rho == 0 && st.Half == nil || firstBad(st.D) >= 0 {
		return w, 0
	}
	rho = p.opt.Rho
	if st.Half != nil {
		rho = p.heldOutRho(pool, w, out)
	}
	if rho <= 0 {
		return w, 0
	}
	shift := p.push(pool, w, out, st.D, st.Drift)
	p.solveRight(pool, shift, out, p.u)
	wt = make([]float32, len(w))
	for i, v := range w {
		wt[i] = v + float32(float32(rho)*shift[i])
	}
	return wt, rho
}

// push returns W·D + E in units of the mean diagonal, [out, K].
func (p *Prepared) push(pool *kernel.Pool, w []float32, out int, d, drift []float64) []float32 {
	s := make([]float32, out*p.k)
	kernel.GemmNN(pool, kernel.MatF32(out, p.k, s), kernel.MatF32(out, p.k, w), kernel.MatF32(p.k, p.k, p.scaled(d)), false)
	for i, v := range drift {
		s[i] += float32(v / p.mean)
	}
	return s
}

// scaled returns a statistic in units of the mean diagonal.
func (p *Prepared) scaled(m []float64) []float32 {
	s := make([]float32, len(m))
	for i, v := range m {
		s[i] = float32(v / p.mean)
	}
	return s
}

// solveRight replaces s[out, K] by s·H⁻¹ = (s·Uᵀ)·U, with u in visiting order.
func (p *Prepared) solveRight(pool *kernel.Pool, s []float32, out int, u []float32) {
	k, order := p.k, p.layout.order
	x, y := make([]float32, out*k), make([]float32, out*k)
	for n := range out {
		for pos, c := range order {
			x[n*k+pos] = s[n*k+c]
		}
	}
	um := kernel.MatF32(k, k, u)
	kernel.GemmNT(pool, kernel.MatF32(out, k, y), kernel.MatF32(out, k, x), um, false)
	kernel.GemmNN(pool, kernel.MatF32(out, k, x), kernel.MatF32(out, k, y), um, false)
	for n := range out {
		for pos, c := range order {
			s[n*k+c] = x[n*k+pos]
		}
	}
}

// heldOutRho computes the shift S from one half of the windows and asks the other half how much of it to use: the ρ that
// minimises the second half's output error, ⟨push_B, S⟩ / ⟨S·H_B, S⟩, kept within 0 … 1.
func (p *Prepared) heldOutRho(pool *kernel.Pool, w []float32, out int) float64 {
	half := p.stats.Half
	if p.halfU == nil {
		return 0
	}
	s := p.push(pool, w, out, half.D, p.stats.HalfDrift)
	p.solveRight(pool, s, out, p.halfU)
	confirm := p.push(pool, w, out, p.otherHalf(p.stats.D, half.D), p.otherHalf(p.stats.Drift, p.stats.HalfDrift))
	sh := make([]float32, len(s))
	kernel.GemmNN(pool, kernel.MatF32(out, p.k, sh), kernel.MatF32(out, p.k, s),
		kernel.MatF32(p.k, p.k, p.scaled(p.otherHalf(p.stats.H, half.H))), false)
	var num, den float64
	for i, v := range s {
		num += float64(float64(v) * float64(confirm[i]))
		den += float64(float64(v) * float64(sh[i]))
	}
	if !(den > 0) || !(num > 0) {
		return 0
	}
	return min(num/den, 1)
}

// otherHalf returns the average over the tokens outside the half, nil for nil.
func (p *Prepared) otherHalf(all, half []float64) []float64 {
	if all == nil || half == nil {
		return nil
	}
	a := p.stats.Half.Weight
	rest := make([]float64, len(all))
	for i, v := range all {
		rest[i] = (v - float64(a*half[i])) / (1 - a)
	}
	return rest
}

// halfFactor factors the half's Hessian with the λ of the whole; nil when that fails.
func (p *Prepared) halfFactor(pool *kernel.Pool) []float32 {
	k, order := p.k, p.layout.order
	work := make([]float64, k*k)
	for i, ci := range order {
		for j, cj := range order {
			work[i*k+j] = p.stats.Half.H[ci*k+cj] / p.mean
		}
		work[i*k+i] += p.Damp // a channel that is dead in this half has λ alone, which is enough
	}
	if kernel.CholeskyUpperInverse(pool, work, k) != nil {
		return nil
	}
	u := make([]float32, k*k)
	for i, v := range work {
		u[i] = float32(v)
	}
	return u
}
