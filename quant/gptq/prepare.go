package gptq

import (
	"fmt"
	"math"

	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid"
)

// Prepared is everything about one input that the solves of its linears share: the damped Hessian, its factor and the
// order of visits. Linears that read the same input (q, k, v; gate, up) share one.
type Prepared struct {
	// Fallback says why there is no factor; solves then round to nearest. Empty: all is well.
	Fallback string
	Damp     float64 // the damping that worked, as a share of the mean diagonal
	Dead     []int   // channels that were zero throughout calibration; their weights are taken as zero

	k          int
	mean       float64   // mean diagonal of H over live channels; everything below is divided by it
	h          []float32 // [K,K] damped H, natural order
	u          []float32 // [K,K] upper triangular, H⁻¹ = UᵀU, in visiting order
	importance []float32 // [K] diagonal of h
	halfU      []float32 // [K,K] factor of the half's Hessian, in visiting order; nil without a half
	layout     *layout
	stats      *Stats
	opt        Options
}

// Prepare factors the Hessian of st for the given grid: H + λI with λ = Damp times the mean diagonal, doubled until it
// is positive definite and at most the mean itself. When nothing helps, or H holds numbers that are not finite, the
// result says so in Fallback and is still usable. st is kept and must not change while the result is in use.
func Prepare(pool *kernel.Pool, st *Stats, g grid.Grid, o Options) (*Prepared, error) {
	if err := st.check(); err != nil {
		return nil, err
	}
	p := &Prepared{k: st.K, stats: st, opt: o, Damp: o.Damp}
	diag, reason := p.diagonal()
	p.layout = newLayout(p.k, g.Span(), g.Sub(), o.Order, diag)
	if reason != "" {
		p.Fallback = reason
		return p, nil
	}
	p.factor(pool, diag)
	if p.Fallback == "" && st.D != nil && st.Half != nil {
		p.halfU = p.halfFactor(pool)
	}
	return p, nil
}

// diagonal checks H, lists dead channels and returns the diagonal in units of its mean, 1 for dead channels.
func (p *Prepared) diagonal() (diag []float64, reason string) {
	k, h := p.k, p.stats.H
	diag = make([]float64, k)
	if i := firstBad(h); i >= 0 {
		return diag, fmt.Sprintf("the Hessian holds %v at channel %d", h[i], i/k)
	}
	sum := 0.0
	for i := range k {
		switch d := h[i*k+i]; {
		case d > 0:
			sum += d
		case d == 0:
			p.Dead = append(p.Dead, i)
		default:
			return diag, fmt.Sprintf("the Hessian has the negative diagonal %v at channel %d", d, i)
		}
	}
	if len(p.Dead) == k {
		return diag, "no calibration token reached this layer"
	}
	p.mean = sum / float64(k-len(p.Dead))
	if math.IsInf(p.mean, 0) || p.mean < 0x1p-1000 {
		return diag, fmt.Sprintf("the Hessian's mean diagonal is %v", p.mean)
	}
	for i := range k {
		diag[i] = h[i*k+i] / p.mean
	}
	for _, i := range p.Dead {
		diag[i] = 1
	}
	return diag, ""
}

// factor computes h and u, climbing the ladder of dampings.
func (p *Prepared) factor(pool *kernel.Pool, diag []float64) {
	k := p.k
	work := make([]float64, k*k)
	for damp := p.opt.Damp; ; damp = nextDamp(damp) {
		p.fill(work, diag, damp)
		if err := kernel.CholeskyUpperInverse(pool, work, k); err == nil {
			p.Damp = damp
			break
		} else if damp >= 1 {
			p.Fallback = fmt.Sprintf("the Hessian cannot be factored even with damping 1: %v", err)
			return
		}
	}
	p.u = make([]float32, k*k)
	for i := range k {
		for j := i; j < k; j++ {
			p.u[i*k+j] = float32(work[i*k+j])
		}
	}
	p.h = make([]float32, k*k)
	p.importance = make([]float32, k)
	for i := range k {
		for j, v := range p.stats.H[i*k : (i+1)*k] {
			p.h[i*k+j] = float32(v / p.mean)
		}
		p.h[i*k+i] = float32(diag[i] + p.Damp)
		p.importance[i] = p.h[i*k+i]
	}
}

func nextDamp(damp float64) float64 {
	if damp <= 0 {
		return 1e-4
	}
	return min(2*damp, 1)
}

// fill writes the damped Hessian in visiting order.
func (p *Prepared) fill(work, diag []float64, damp float64) {
	k, order, inv := p.k, p.layout.order, 1/p.mean
	for i, ci := range order {
		row, from := work[i*k:(i+1)*k], p.stats.H[ci*k:(ci+1)*k]
		for j, cj := range order {
			row[j] = from[cj] * inv
		}
		row[i] = diag[ci] + damp
	}
}
