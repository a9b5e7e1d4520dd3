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
	diag       []float64 // [K] diagonal of H, 1 for dead channels
	order      []int     // position of visit → column
	h          []float32 // [K,K] damped H, as columns are stored: in natural order, with Indexed in visiting order
	u          []float32 // [K,K] upper triangular, H⁻¹ = UᵀU, in visiting order
	importance []float32 // [K] diagonal of h
	halfH      []float32 // [K,K] the half's Hessian, and that of the other tokens; nil without a half
	otherH     []float32
	halfU      []float32 // [K,K] factor of halfH, in visiting order
	layout     *layout
	stats      *Stats
	opt        Options
}

// Prepare factors the Hessian of st for the given grid: H + λI with λ = Damp times the mean diagonal, doubled until it
// is positive definite and at most the mean itself. When nothing helps, or H holds numbers that are not finite, the
// result says so in Fallback and is still usable. What is not scratch of st is kept and must not change while the result
// is in use.
func Prepare(pool *kernel.Pool, st *Stats, g grid.Grid, o Options) (*Prepared, error) {
	if err := st.check(); err != nil {
		return nil, err
	}
	own := *st
	p := &Prepared{k: st.K, stats: &own, opt: o, Damp: o.Damp}
	if p.Fallback = p.diagonal(pool); p.Fallback != "" {
		p.layout = newLayout(p.k, g.Span(), g.Sub(), o.Order, p.diag)
		return p, nil
	}
	var work []float64
	if st.Scratch {
		work = st.H
	}
	p.narrow(pool)
	if st.Scratch { // whoever holds on to the result shall not hold on to what it was made from
		own.H, own.H32 = nil, nil
		if own.Half != nil {
			own.Half = &Half{D: st.Half.D, Weight: st.Half.Weight, DWeight: st.Half.DWeight}
		}
	}
	p.arrange(pool, g, work)
	return p, nil
}

// For returns the same for a grid of another geometry, which takes a factorization of its own.
func (p *Prepared) For(pool *kernel.Pool, g grid.Grid) *Prepared {
	q := *p
	if q.Fallback == "" && p.opt.Order != Indexed {
		q.arrange(pool, g, nil)
	} else { // nothing depends on the groups
		q.layout = newLayout(p.k, g.Span(), g.Sub(), p.opt.Order, p.diag)
	}
	return &q
}

// Serves reports whether the result suits a grid.
func (p *Prepared) Serves(g grid.Grid) bool {
	l := p.layout
	return l.size == min(g.Span(), p.k) && l.sub == g.Sub()
}

// diagonal checks H, lists dead channels and keeps the diagonal in units of its mean, 1 for dead channels.
func (p *Prepared) diagonal(pool *kernel.Pool) (reason string) {
	k, h := p.k, p.stats.h()
	p.diag = make([]float64, k)
	if i := h.firstBad(pool, k); i >= 0 {
		return fmt.Sprintf("the Hessian holds %v at channel %d", h.at(i), i/k)
	}
	sum := 0.0
	for i := range k {
		switch d := h.at(i*k + i); {
		case d > 0:
			sum += d
		case d == 0:
			p.Dead = append(p.Dead, i)
		default:
			return fmt.Sprintf("the Hessian has the negative diagonal %v at channel %d", d, i)
		}
	}
	if len(p.Dead) == k {
		return "no calibration token reached this layer"
	}
	p.mean = sum / float64(k-len(p.Dead))
	if math.IsInf(p.mean, 0) || p.mean < 0x1p-1000 {
		return fmt.Sprintf("the Hessian's mean diagonal is %v", p.mean)
	}
	for i := range k {
		p.diag[i] = h.at(i*k+i) / p.mean
	}
	for _, i := range p.Dead {
		p.diag[i] = 1
	}
	return ""
}

// narrow takes the Hessians to float32. Sums need float64; their averages, damped by a hundredth, do not.
func (p *Prepared) narrow(pool *kernel.Pool) {
	st, none := p.stats, moments{}
	if half := st.Half; half != nil && st.D != nil {
		p.otherH = st.h().scaled(pool, nil, p.k, p.mean, half.h(), half.Weight)
		p.halfH = half.h().scaled(pool, reuse(st, half.H32), p.k, p.mean, none, 0)
	}
	p.h = st.h().scaled(pool, reuse(st, st.H32), p.k, p.mean, none, 0)
}

// reuse returns m where it may be overwritten.
func reuse(st *Stats, m []float32) []float32 {
	if st.Scratch {
		return m
	}
	return nil
}

// arrange chooses the order of visits and factors the Hessians in it. work is memory for K×K numbers, or nil.
func (p *Prepared) arrange(pool *kernel.Pool, g grid.Grid, work []float64) {
	p.layout = newLayout(p.k, g.Span(), g.Sub(), p.opt.Order, p.diag)
	p.order = p.layout.order
	if p.opt.Order == Indexed {
		p.order = descending(p.diag)
	}
	factor := p.factorWide(work)
	if p.stats.Narrow {
		factor = p.factorNarrow
	}
	p.factor(pool, factor)
	if p.Fallback == "" && p.halfH != nil {
		p.halfU, _ = factor(pool, p.halfH, func(c int) float64 { return float64(p.halfH[c*p.k+c]) + p.Damp })
	}
	if p.Fallback == "" && p.opt.Order == Indexed {
		h, importance := make([]float32, p.k*p.k), make([]float32, p.k)
		pool.Run(p.k, func(i int) {
			for j, c := range p.order {
				h[i*p.k+j] = p.h[p.order[i]*p.k+c]
			}
			importance[i] = p.importance[p.order[i]]
		})
		p.h, p.importance = h, importance
	}
}

// factorFunc returns the factor of m, in visiting order and with another diagonal.
type factorFunc func(pool *kernel.Pool, m []float32, diagonal func(channel int) float64) (u []float32, err error)

// factor computes u, climbing the ladder of dampings, and damps h.
func (p *Prepared) factor(pool *kernel.Pool, factor factorFunc) {
	k := p.k
	for damp := p.opt.Damp; ; damp = nextDamp(damp) {
		u, err := factor(pool, p.h, func(c int) float64 { return p.diag[c] + damp })
		if err == nil {
			p.Damp, p.u = damp, u
			break
		} else if damp >= 1 {
			p.Fallback = fmt.Sprintf("the Hessian cannot be factored even with damping 1: %v", err)
			return
		}
	}
	p.importance = make([]float32, k)
	for i := range k {
		p.importance[i] = float32(p.diag[i] + p.Damp)
		p.h[i*k+i] = p.importance[i]
	}
}

// factorWide factors in float64, in memory that is made at the first use unless there is some.
func (p *Prepared) factorWide(work []float64) factorFunc {
	return func(pool *kernel.Pool, m []float32, diagonal func(int) float64) ([]float32, error) {
		k := p.k
		if work == nil {
			work = make([]float64, k*k)
		}
		fill(pool, work, m, p.order, diagonal)
		if err := kernel.CholeskyUpperInverse(pool, work, k); err != nil {
			return nil, err
		}
		u := make([]float32, k*k)
		pool.Run(k, func(i int) {
			for j := i; j < k; j++ {
				u[i*k+j] = float32(work[i*k+j])
			}
		})
		return u, nil
	}
}

// factorNarrow factors in float32, in the memory of the result.
func (p *Prepared) factorNarrow(pool *kernel.Pool, m []float32, diagonal func(int) float64) ([]float32, error) {
	u := make([]float32, p.k*p.k)
	fill(pool, u, m, p.order, diagonal)
	return u, kernel.CholeskyUpperInverse32(pool, u, p.k)
}

func nextDamp(damp float64) float64 {
	if damp <= 0 {
		return 1e-4
	}
	return min(2*damp, 1)
}

// fill writes the lower triangle of a symmetric matrix in visiting order, with another diagonal: a channel that is dead
// has λ alone, which is enough.
func fill[T float32 | float64](pool *kernel.Pool, work []T, m []float32, order []int, diagonal func(channel int) float64) {
	k := len(order)
	pool.Run(k, func(i int) {
		row, from := work[i*k:i*k+i], m[order[i]*k:(order[i]+1)*k]
		for j := range row {
			row[j] = T(from[order[j]])
		}
		work[i*k+i] = T(diagonal(order[i]))
	})
}
