package kernel

import "fmt"

// GemmNTBF16 computes C[M,N] = A[M,K]·B[N,K]ᵀ, added to C if accumulate is set, for A and B of Kind BF16 whose K and strides
// are even; C is F32. Where the processor multiplies bfloat16 numbers itself it is about twice as fast as GemmNT, with other
// vector kernels as fast, with the same bits. dotPair defines the chains.
func GemmNTBF16(p *Pool, c, a, b Mat, accumulate bool) {
	checkPairs("GemmNTBF16", BF16, c, a, b, a.Rows, b.Rows, a.Cols, b.Cols)
	newPairs(p, c, a.rowPairs("GemmNTBF16"), b.rowPairs("GemmNTBF16"), a.Cols/2, accumulate).run()
}

// GemmTNPairs computes C[M,N] = A[T,M]ᵀ·B[T,N], added to C if accumulate is set, for A and B as PairRows makes them.
func GemmTNPairs(p *Pool, c, a, b Mat, accumulate bool) {
	checkPairs("GemmTNPairs", Pairs, c, a, b, a.Cols, b.Cols, a.Rows, b.Rows)
	newPairs(p, c, a.operand(false), b.operand(false), a.Rows, accumulate).run()
}

// SyrkPairs is Syrk, the Gram matrix C[K,K] = Xᵀ·X of X[T,K], for X as PairRows makes it.
func SyrkPairs(p *Pool, c, words Mat, accumulate bool) {
	checkPairs("SyrkPairs", Pairs, c, words, words, words.Cols, words.Cols, words.Rows, words.Rows)
	g := newPairs(p, c, words.operand(false), words.operand(false), words.Rows, accumulate)
	g.part, g.mirror = lower, true
	g.run()
}

// SyrkPairsAddF64 is SyrkAddF64 for X as PairRows makes it: sums over KC rows of X, KC/2 of words, are taken in float32 and
// added to the lower triangle of h in float64.
func SyrkPairsAddF64(p *Pool, h []float64, n int, words Mat) {
	checkShape("SyrkPairsAddF64", n, n, n, len(h))
	words.check("SyrkPairsAddF64")
	if words.Kind != Pairs || words.Cols != n {
		panic(fmt.Sprintf("kernel: SyrkPairsAddF64: X is %v %dx%d, want %d columns of Pairs", words.Kind, words.Rows, words.Cols, n))
	}
	c := Mat{Rows: n, Cols: n, Stride: n}
	g := newPairs(p, c, words.operand(false), words.operand(false), words.Rows, true)
	g.part, g.wide = lower, h
	g.run()
}

// newPairs is the product C = A·B, or C += A·B, over k words of two values of k each. A block is as many words as a float32
// product has values, which is two chains: so the elements of C travel half as often.
func newPairs(p *Pool, c Mat, a, b operand[float32], k int, accumulate bool) *product[float32] {
	g := newProduct(p, c, a, b, k, accumulate)
	g.ks, g.kc, g.chain = &g.pool.kernels().bf16, KC, KC/2
	return g
}

// rowPairs views a BF16 matrix whose rows run along k as words.
func (m Mat) rowPairs(name string) operand[float32] {
	if m.Cols%2 != 0 || m.Stride%2 != 0 {
		panic(fmt.Sprintf("kernel: %s: %dx%d with stride %d, want pairs along rows", name, m.Rows, m.Cols, m.Stride))
	}
	o := m.operand(true)
	o.kind, o.stride = Pairs, m.Stride/2
	return o
}

func checkPairs(name string, kind Kind, c, a, b Mat, m, n, ka, kb int) {
	checkFit(name, c, a, b, m, n, ka, kb)
	if c.Kind != F32 || a.Kind != kind || b.Kind != kind {
		panic(fmt.Sprintf("kernel: %s: C is %v, A is %v and B is %v, want F32 and twice %v", name, c.Kind, a.Kind, b.Kind, kind))
	}
}
