package exl2

import (
	"fmt"
	"slices"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/internal/kernel"
)

// arrangement is the order in which feedback visits the columns, and the Hessian in that order.
//
// Packed rows are sorted by importance and the first get the most bits. Feedback visits them the other way round, band by
// band from the fewest bits to the most: what the coarse codes get wrong is then made up for by columns whose codes are
// fine. The variance of an input given those visited after it, 1/U_kk², is what the error of its column costs; this order
// makes it small where steps are wide. Within a band the more important columns come first, as in plain GPTQ, which
// keeps the variances level. Against visiting packed rows as they lie this saves up to a tenth of a bit per weight.
type arrangement struct {
	visit  []int     // groups in order of visit
	cols   []int32   // position → input column
	h      []float32 // [K,K] H + λI in units of its mean diagonal; nil for the identity
	u      []float32 // [K,K] upper triangular, H⁻¹ = UᵀU
	weight []float32 // [K] diagonal of h

	damp     float64
	fallback string // why there is no factor although there is a Hessian
}

// visits returns the order of groups: bands of equal bits from the last to the first, groups within a band as they lie.
func visits(groups []packing.EXL2Group) []int {
	var order []int
	for end := len(groups); end > 0; {
		start := end - 1
		for start > 0 && groups[start-1].Bits == groups[end-1].Bits {
			start--
		}
		for i := start; i < end; i++ {
			order = append(order, i)
		}
		end = start
	}
	return order
}

// arrange orders the columns for the given groups and factors the Hessian.
func (p *Prepared) arrange(pool *kernel.Pool, groups []packing.EXL2Group) *arrangement {
	visit, cols := visits(groups), make([]int32, 0, p.k)
	starts, pos := make([]int, len(groups)), 0
	for i, g := range groups {
		starts[i], pos = pos, pos+g.Rows
	}
	for _, i := range visit {
		cols = append(cols, p.perm[starts[i]:starts[i]+groups[i].Rows]...)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil || !slices.Equal(p.last.cols, cols) {
		p.last = nil // its memory serves the new one
		p.last = p.factor(pool, cols)
	}
	a := *p.last
	a.visit = visit
	return &a
}

// factor computes an arrangement of the Hessian over the given columns, climbing the ladder of dampings.
func (p *Prepared) factor(pool *kernel.Pool, cols []int32) *arrangement {
	a := &arrangement{cols: cols, weight: make([]float32, p.k), damp: p.Damp}
	for i := range a.weight {
		a.weight[i] = 1
	}
	if p.h == nil {
		return a
	}
	work := make([]float64, p.k*p.k)
	for {
		p.fill(pool, work, cols, a.damp)
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
	p.fill(pool, work, cols, a.damp)
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
func (p *Prepared) fill(pool *kernel.Pool, dst []float64, cols []int32, damp float64) {
	inv := 1 / p.mean
	pool.Run(p.k, func(i int) {
		row, from := dst[i*p.k:(i+1)*p.k], p.h[int(cols[i])*p.k:]
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
