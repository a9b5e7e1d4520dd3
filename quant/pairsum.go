package quant

import (
	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/gptq"
)

// pairSum holds sums over the windows of even and of odd number, or in [0] over all where there are no halves.
type pairSum struct {
	width  int
	h      [2]*gramSum
	d      [2][]float32 // Σ (x_f − x)ᵀ·x, [width, width]
	tokens [2]int64     // of h
	pairs  [2]int64     // of d and r
	halves bool
	// r is Σ (r_f − r)ᵀ·x, [hidden, width], for the linears that write to the residual stream r: their error can make up
	// for what the stream has strayed already.
	r [2][]float32
}

func newPairSum(width int, distance bool, writes int, narrow bool) *pairSum {
	s := &pairSum{width: width, halves: distance && width <= maxHalves}
	for half := range s.h {
		if half == 1 && !s.halves {
			break
		}
		s.h[half] = newGramSum(width, narrow)
		if distance {
			s.d[half] = make([]float32, width*width)
		}
		if writes > 0 {
			s.r[half] = make([]float32, writes*width)
		}
	}
	return s
}

// finish turns sums into averages, in the sums' own memory.
func (s *pairSum) finish(pool *kernel.Pool) *Stats {
	st := &Stats{K: s.width, Tokens: s.tokens[0] + s.tokens[1]}
	pairs, all := s.pairs[0]+s.pairs[1], 0
	if s.halves && min(s.tokens[0], s.tokens[1], s.pairs[0], s.pairs[1]) > 0 {
		all = 1
		st.half = &gptq.Half{Weight: float64(s.tokens[0]) / float64(st.Tokens), DWeight: float64(s.pairs[0]) / float64(pairs)}
		join(pool, s.d[1], s.d[0], pairs, s.pairs[0])
		join(pool, s.r[1], s.r[0], pairs, s.pairs[0])
		s.h[1].join(pool, s.h[0], st.Tokens, s.tokens[0])
		st.half.D, st.halfDrift = s.d[0], s.r[0]
		st.half.H, st.half.H32 = s.h[0].finish(pool)
	} else { // all tokens are in one of the halves
		if s.halves && s.tokens[0] == 0 {
			all = 1
		}
		join(pool, s.d[all], nil, pairs, 0)
		join(pool, s.r[all], nil, pairs, 0)
		s.h[all].join(pool, nil, st.Tokens, 0)
	}
	st.Gram, st.gram32 = s.h[all].finish(pool)
	st.shift, st.drift = s.d[all], s.r[all]
	return st
}

// gramSum is Σ xᵀ·x in float64, or in float32 where memory matters more.
type gramSum struct {
	width  int
	wide   []float64 // lower triangle, until finish
	narrow []float32
}

func newGramSum(width int, narrow bool) *gramSum {
	if narrow {
		return &gramSum{width: width, narrow: make([]float32, width*width)}
	}
	return &gramSum{width: width, wide: make([]float64, width*width)}
}

func (g *gramSum) add(p *forward.Products, x kernel.Mat) {
	if g.wide != nil {
		p.Gram(g.wide, g.width, x)
		return
	}
	p.Gram32(kernel.MatF32(g.width, g.width, g.narrow), x)
}

// join makes g the average of both sums over all tokens and other, if any, the average of its own.
func (g *gramSum) join(pool *kernel.Pool, other *gramSum, all, own int64) {
	var wide []float64
	var narrow []float32
	if other != nil {
		wide, narrow = other.wide, other.narrow
	}
	join(pool, g.wide, wide, all, own)
	join(pool, g.narrow, narrow, all, own)
}

// finish fills both triangles.
func (g *gramSum) finish(pool *kernel.Pool) (wide []float64, narrow []float32) {
	if g.wide != nil {
		kernel.Symmetrize(pool, g.wide, g.width)
	}
	return g.wide, g.narrow
}

// join replaces sum by (sum+other)/all and other by other/own; other may be nil, and counts of 0 leave zeros.
func join[T float32 | float64](pool *kernel.Pool, sum, other []T, all, own int64) {
	const step = 1 << 14
	n, m := T(max(all, 1)), T(max(own, 1))
	pool.Run((len(sum)+step-1)/step, func(t int) {
		for i := t * step; i < min(len(sum), (t+1)*step); i++ {
			if other != nil {
				sum[i] = (sum[i] + other[i]) / n
				other[i] /= m
			} else {
				sum[i] /= n
			}
		}
	})
}
