package gptq

import (
	"github.com/llmquant/quantize/internal/kernel"
)

// target returns Wt = W + ρ·(W·D + E)·Hλ⁻¹: the weight whose outputs on the inputs of the quantized model come closest
// to the full-precision model's outputs on its own inputs. ρ = 1 fits the calibration text and drifts on other text; with
// statistics of a half of the windows, ρ is the share of the shift computed from one half that the other half confirms.
func (p *Prepared) target(pool *kernel.Pool, w []float32, out int) (wt []float32, rho float64) {
	st := p.stats
	if st.D == nil || p.opt.Rho == 0 && st.Half == nil || firstBad(pool, st.D, p.k) >= 0 {
		return w, 0
	}
	rho = p.opt.Rho
	if st.Half != nil {
		rho = p.heldOutRho(pool, w, out)
	}
	if rho <= 0 {
		return w, 0
	}
	wt = make([]float32, len(w))
	for lo := 0; lo < out; lo += targetRows {
		hi := min(lo+targetRows, out)
		part := wt[lo*p.k : hi*p.k]
		p.push(pool, part, w, outputs{lo, 1, hi - lo}, st.D, st.Drift)
		p.solveRight(pool, part, hi-lo, p.u)
		pool.Run(hi-lo, func(i int) {
			row, from := part[i*p.k:(i+1)*p.k], w[(lo+i)*p.k:(lo+i+1)*p.k]
			for j, v := range row {
				row[j] = from[j] + float32(float32(rho)*v)
			}
		})
	}
	return wt, rho
}

const (
	// targetRows is the number of outputs whose shift is computed at a time, which bounds the scratch memory.
	targetRows = 1024
	// rhoRows is the number of outputs, spread over all, that decide on ρ: one number from a thousand rows of K weights.
	rhoRows = 1024
)

// outputs are count rows of a weight: first, first+step, …
type outputs struct{ first, step, count int }

func (o outputs) row(i int) int { return o.first + i*o.step }

// push writes W·D + E of some outputs in units of the mean diagonal to dst, [count, K].
func (p *Prepared) push(pool *kernel.Pool, dst, w []float32, o outputs, d, drift []float32) {
	k := p.k
	a := kernel.Mat{Rows: o.count, Cols: k, Stride: o.step * k, F32: w[o.first*k:]}
	kernel.GemmNN(pool, kernel.MatF32(o.count, k, dst), a, kernel.MatF32(k, k, d), false)
	pool.Run(o.count, func(i int) {
		row := dst[i*k : (i+1)*k]
		if drift != nil {
			for j, v := range drift[o.row(i)*k : (o.row(i)+1)*k] {
				row[j] += v
			}
		}
		for j, v := range row {
			row[j] = float32(float64(v) / p.mean)
		}
	})
}

// solveRight replaces s[out, K] by s·H⁻¹ = (s·Uᵀ)·U, with u in visiting order.
func (p *Prepared) solveRight(pool *kernel.Pool, s []float32, out int, u []float32) {
	k, order := p.k, p.order
	x, y := make([]float32, out*k), make([]float32, out*k)
	pool.Run(out, func(n int) {
		for pos, c := range order {
			x[n*k+pos] = s[n*k+c]
		}
	})
	um := kernel.MatF32(k, k, u)
	kernel.GemmNTUpper(pool, kernel.MatF32(out, k, y), kernel.MatF32(out, k, x), um)
	kernel.GemmNNUpper(pool, kernel.MatF32(out, k, x), kernel.MatF32(out, k, y), um)
	pool.Run(out, func(n int) {
		for pos, c := range order {
			s[n*k+c] = x[n*k+pos]
		}
	})
}

// heldOutRho computes the shift S from one half of the windows and asks the other half how much of it to use: the ρ that
// minimises the second half's output error, ⟨push_B, S⟩ / ⟨S·H_B, S⟩, kept within 0 … 1. Pushes are linear in the
// statistics, so that of the second half is what the push of all windows has beyond the first half's.
func (p *Prepared) heldOutRho(pool *kernel.Pool, w []float32, out int) float64 {
	half, k := p.stats.Half, p.k
	if p.halfU == nil {
		return 0
	}
	step := (out + rhoRows - 1) / rhoRows
	o := outputs{0, step, (out + step - 1) / step}
	s, confirm := make([]float32, o.count*k), make([]float32, o.count*k)
	p.push(pool, s, w, o, half.D, p.stats.HalfDrift)
	p.push(pool, confirm, w, o, p.stats.D, p.stats.Drift)
	share := half.ShiftWeight()
	pool.Run(o.count, func(i int) {
		for j := i * k; j < (i+1)*k; j++ {
			confirm[j] = float32((float64(confirm[j]) - float64(share*float64(s[j]))) / (1 - share))
		}
	})
	p.solveRight(pool, s, o.count, p.halfU)
	sh := make([]float32, len(s))
	kernel.GemmNN(pool, kernel.MatF32(o.count, k, sh), kernel.MatF32(o.count, k, s), kernel.MatF32(k, k, p.otherH), false)
	num, den := kernel.Dot64(s, confirm), kernel.Dot64(s, sh)
	if !(den > 0) || !(num > 0) {
		return 0
	}
	return min(num/den, 1)
}
