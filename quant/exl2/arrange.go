package exl2

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/internal/kernel"
)

// arrangement is the order in which feedback visits the columns, and the Hessian in that order.
//
// Packed rows are sorted by importance and the first get the most bits. GPTQ as usual visits them as they lie, important
// columns first. Here groups of fewer bits come earlier: what coarse codes get wrong is then made up for by columns whose
// codes are fine. The variance of an input given those visited after it, 1/U_kk², is what the error of its column costs;
// the order should make it small where steps are wide. A group's place follows from its mean diagonal of H divided by
// 8^bits: where inputs are of similar power that visits the coarse groups first, and saves up to a tenth of a bit per
// weight; where powers are far apart, the strong inputs keep their place in front.
type arrangement struct {
	visit  []int     // groups in order of visit
	cols   []int32   // position → input column
	h      []float32 // [K,K] H + λI in units of its mean diagonal; nil for the identity
	u      []float32 // [K,K] upper triangular, H⁻¹ = UᵀU
	weight []float32 // [K] diagonal of h

	damp     float64
	fallback string // why there is no factor although there is a Hessian
}

// visits returns the order of groups.
func (p *Prepared) visits(groups []packing.EXL2Group) []int {
	order, key := make([]int, len(groups)), make([]float64, len(groups))
	row := 0
	for i, g := range groups {
		order[i] = i
		sum := 0.0
		for _, c := range p.perm[row : row+g.Rows] {
			sum += p.diagonal(int(c))
		}
		key[i] = math.Ldexp(sum/float64(g.Rows), -3*g.Bits)
		row += g.Rows
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(key[b], key[a]) })
	return order
}

// diagonal returns H_cc in units of its mean.
func (p *Prepared) diagonal(c int) float64 {
	if p.h == nil {
		return 1
	}
	return p.h[c*(p.k+1)] / p.mean
}

// order returns the columns and the groups in order of visit.
func (p *Prepared) order(groups []packing.EXL2Group) (cols []int32, visit []int) {
	starts, row := make([]int, len(groups)), 0
	for i, g := range groups {
		starts[i], row = row, row+g.Rows
	}
	visit = p.visits(groups)
	for _, i := range visit {
		cols = append(cols, p.perm[starts[i]:starts[i]+groups[i].Rows]...)
	}
	return cols, visit
}

// arrange orders the columns for the given groups and factors the Hessian.
func (p *Prepared) arrange(pool *kernel.Pool, groups []packing.EXL2Group) *arrangement {
	cols, visit := p.order(groups)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil || !slices.Equal(p.last.cols, cols) {
		p.last = nil // its memory serves the new one
		p.last = p.factor(pool, p.h, cols)
	}
	a := *p.last
	a.visit = visit
	return &a
}

// factor computes the arrangement of a Hessian over the given columns. λ starts at Damp times the mean diagonal and is
// doubled until H + λI is positive definite, at most to the mean itself; when that fails the identity takes its place.
func (p *Prepared) factor(pool *kernel.Pool, h []float64, cols []int32) *arrangement {
	a := &arrangement{cols: cols, weight: make([]float32, p.k), damp: p.opt.Damp}
	for i := range a.weight {
		a.weight[i] = 1
	}
	if h == nil {
		a.damp = 0
		return a
	}
	work := make([]float64, p.k*p.k)
	for {
		p.fill(pool, work, h, cols, a.damp)
		err := kernel.CholeskyUpperInverse(pool, work, p.k)
		if err == nil {
			break
		}
		if a.damp >= 1 {
			a.fallback = fmt.Sprintf("the Hessian cannot be factored even with damping 1: %v", err)
			return a
		}
		a.damp = nextDamp(a.damp)
	}
	a.u = narrowed(pool, work, p.k)
	p.fill(pool, work, h, cols, a.damp)
	a.h = narrowed(pool, work, p.k)
	for i := range a.weight {
		a.weight[i] = a.h[i*(p.k+1)]
	}
	return a
}

func nextDamp(damp float64) float64 {
	if damp <= 0 {
		return 1e-4
	}
	return min(2*damp, 1)
}

// fill writes the damped Hessian over the given columns, in units of its mean diagonal.
func (p *Prepared) fill(pool *kernel.Pool, dst, h []float64, cols []int32, damp float64) {
	inv := 1 / p.mean
	pool.Run(p.k, func(i int) {
		row, from := dst[i*p.k:(i+1)*p.k], h[int(cols[i])*p.k:]
		for j, c := range cols {
			row[j] = from[c] * inv
		}
		row[i] += damp
	})
}

func narrowed(pool *kernel.Pool, m []float64, k int) []float32 {
	n := make([]float32, len(m))
	pool.Run(k, func(i int) {
		for j := i * k; j < (i+1)*k; j++ {
			n[j] = float32(m[j])
		}
	})
	return n
}
