package forward

import "github.com/llmquant/quantize/internal/kernel"

// Products adds up products of activations over tokens: of float32 numbers or, with BF16, of numbers rounded to bfloat16
// first. It owns scratch memory, so it is not safe for concurrent use; the pool inside works in parallel.
type Products struct {
	Pool *kernel.Pool
	BF16 bool
	a, b []uint16 // words of pairs
}

// Gram adds xᵀ·x for x [tokens, n] to the lower triangle of h [n, n].
func (p *Products) Gram(h []float64, n int, x kernel.Mat) {
	if p.BF16 {
		kernel.SyrkPairsAddF64(p.Pool, h, n, p.pairs(&p.a, x))
		return
	}
	kernel.SyrkAddF64(p.Pool, h, n, x)
}

// Gram32 adds xᵀ·x to c [n, n] in float32.
func (p *Products) Gram32(c, x kernel.Mat) {
	if p.BF16 {
		kernel.SyrkPairs(p.Pool, c, p.pairs(&p.a, x), true)
		return
	}
	kernel.Syrk(p.Pool, c, x, true)
}

// Cross adds aᵀ·b for a [tokens, m] and b [tokens, n] to c [m, n].
func (p *Products) Cross(c, a, b kernel.Mat) {
	if p.BF16 {
		kernel.GemmTNPairs(p.Pool, c, p.pairs(&p.a, a), p.pairs(&p.b, b), true)
		return
	}
	kernel.GemmTN(p.Pool, c, a, b, true)
}

func (p *Products) pairs(buf *[]uint16, x kernel.Mat) kernel.Mat {
	words := kernel.MatU16(kernel.Pairs, (x.Rows+1)/2, x.Cols, grow(buf, (x.Rows+1)/2*x.Cols*2))
	kernel.PairRows(p.Pool, words, x)
	return words
}
