package exl2

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
)

// Options steer a solve.
type Options struct {
	Damp   float64 // λ as a share of the mean diagonal of H
	Passes int     // refinement passes at most; 0: feedback alone
	Inner  int     // sweeps of coordinate descent per group and pass
	// Rho scales the shift of targets (Target) where the statistics do not say how far it carries over to other text.
	Rho float64
}

// Best returns the options for the lowest error.
func Best() Options { return Options{Damp: 0.01, Passes: 4, Inner: 2, Rho: 0.5} }

// Prepared is everything about one input that its linears and all their candidates share.
type Prepared struct {
	// Fallback says why there is no Hessian; solves then minimise the error of the weights. "" when there is one.
	Fallback string
	Dead     int // inputs that were zero on all tokens; their weights are rounded like any others

	k    int
	h    []float64 // as given; nil for the identity
	mean float64   // mean diagonal of h
	perm []int32   // packed row → input column, by falling diagonal of h
	opt  Options

	mu   sync.Mutex   // guards what follows
	last *arrangement // of the last solve: candidates with the same bands follow one another
	half *arrangement // of the statistics of half the windows (Target)
}

// Prepare takes a Hessian H = E[x xᵀ], [k,k] and symmetric, which must not change while the result is in use. nil, or a
// Hessian that cannot be used, stands for the identity: every weight counts alike and columns stay in natural order.
// Fallback tells why. Linears that read the same input share the result, which keeps the last factor.
func Prepare(pool *kernel.Pool, k int, h []float64, o Options) (*Prepared, error) {
	if k < 1 || h != nil && len(h) != k*k {
		return nil, safeio.Corruptf("a Hessian of %d numbers for %d inputs", len(h), k)
	}
	p := &Prepared{k: k, opt: o, mean: 1, h: h, perm: make([]int32, k)}
	for i := range p.perm {
		p.perm[i] = int32(i)
	}
	if p.Fallback = p.inspect(pool); p.Fallback != "" {
		p.h, p.mean = nil, 1
		return p, nil
	}
	slices.SortFunc(p.perm, func(a, b int32) int {
		return cmp.Or(cmp.Compare(h[int(b)*(k+1)], h[int(a)*(k+1)]), cmp.Compare(a, b))
	})
	return p, nil
}

// inspect checks H and finds its mean diagonal.
func (p *Prepared) inspect(pool *kernel.Pool) (reason string) {
	if p.h == nil {
		return "there are no calibration statistics"
	}
	if i := firstBad(pool, p.h, p.k); i >= 0 {
		return fmt.Sprintf("the Hessian holds %v at channel %d", p.h[i], i/p.k)
	}
	sum := 0.0
	for i := range p.k {
		d := p.h[i*(p.k+1)]
		if d < 0 {
			return fmt.Sprintf("the Hessian has the negative diagonal %v at channel %d", d, i)
		}
		if d == 0 {
			p.Dead++
		}
		sum += d
	}
	if p.Dead == p.k {
		return "no calibration token reached this layer"
	}
	if p.mean = sum / float64(p.k); math.IsInf(p.mean, 0) || p.mean < 0x1p-1000 {
		return fmt.Sprintf("the Hessian's mean diagonal is %v", p.mean)
	}
	return ""
}

// firstBad returns the position of the first number of a matrix of k columns that is NaN or infinite, or -1.
func firstBad[T float32 | float64](pool *kernel.Pool, m []T, k int) int {
	bad := make([]int, len(m)/k)
	pool.Run(len(bad), func(i int) {
		bad[i] = slices.IndexFunc(m[i*k:(i+1)*k], func(v T) bool { return v-v != 0 })
	})
	for i, j := range bad {
		if j >= 0 {
			return i*k + j
		}
	}
	return -1
}
