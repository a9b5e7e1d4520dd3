package kernel

import "fmt"

// KC is the number of values of k in one chain of fused multiply-adds. It is part of the definition of every product.
const KC = 512

// GemmNT computes C[M,N] = A[M,K]·B[N,K]ᵀ, added to C if accumulate is set: a linear layer with activations A and weights B.
// C and A are F32, B is of any kind but Pairs. C must not overlap A or B.
func GemmNT(p *Pool, c, a, b Mat, accumulate bool) {
	checkProduct("GemmNT", c, a, b, a.Rows, b.Rows, a.Cols, b.Cols)
	multiply(p, c, a.operand(true), b.operand(true), a.Cols, accumulate)
}

// GemmNN computes C[M,N] = A[M,K]·B[K,N], added to C if accumulate is set. C and A are F32, B is of any kind but Pairs.
func GemmNN(p *Pool, c, a, b Mat, accumulate bool) {
	checkProduct("GemmNN", c, a, b, a.Rows, b.Cols, a.Cols, b.Rows)
	multiply(p, c, a.operand(true), b.operand(false), a.Cols, accumulate)
}

// GemmTN computes C[M,N] = A[K,M]ᵀ·B[K,N], added to C if accumulate is set. C and A are F32, B is of any kind but Pairs.
func GemmTN(p *Pool, c, a, b Mat, accumulate bool) {
	checkProduct("GemmTN", c, a, b, a.Cols, b.Cols, a.Rows, b.Rows)
	multiply(p, c, a.operand(false), b.operand(false), a.Rows, accumulate)
}

// GemmNTUpper is GemmNT for a square upper triangular B, C[M,N] = A·Bᵀ: half the work and the same bits. What lies below
// the diagonal of B must be zero.
func GemmNTUpper(p *Pool, c, a, b Mat) {
	checkProduct("GemmNTUpper", c, a, b, a.Rows, b.Rows, a.Cols, b.Cols)
	g := newProduct(p, c, a.operand(true), b.operand(true), a.Cols, false)
	g.zeros = zeroBUpper
	g.run()
}

// GemmNNUpper is GemmNN for a square upper triangular B, as GemmNTUpper.
func GemmNNUpper(p *Pool, c, a, b Mat) {
	checkProduct("GemmNNUpper", c, a, b, a.Rows, b.Cols, a.Cols, b.Rows)
	g := newProduct(p, c, a.operand(true), b.operand(false), a.Cols, false)
	g.zeros = zeroBLower
	g.run()
}

// Syrk computes the Gram matrix C[K,K] = Xᵀ·X of X[T,K], added to C if accumulate is set, and fills both triangles. Only the
// lower triangle of the old C is read. C and X are F32.
func Syrk(p *Pool, c, x Mat, accumulate bool) {
	checkProduct("Syrk", c, x, x, x.Cols, x.Cols, x.Rows, x.Rows)
	g := newProduct(p, c, x.operand(false), x.operand(false), x.Rows, accumulate)
	g.part, g.mirror = lower, true
	g.run()
}

// SyrkAddF64 adds Xᵀ·X to the symmetric n x n matrix h (row-major): to its lower triangle alone, which is all that
// CholeskyUpperInverse reads. Call Symmetrize before reading the upper one. Sums over KC rows are taken in float32 and
// added to h in float64, so the result does not depend on how rows are spread over calls of a multiple of KC rows.
func SyrkAddF64(p *Pool, h []float64, n int, x Mat) {
	checkShape("SyrkAddF64", n, n, n, len(h))
	c := Mat{Rows: n, Cols: n, Stride: n, F32: nil}
	x.check("SyrkAddF64")
	if x.Kind != F32 || x.Cols != n {
		panic(fmt.Sprintf("kernel: SyrkAddF64: X is %v %dx%d, want %d columns of F32", x.Kind, x.Rows, x.Cols, n))
	}
	g := newProduct(p, c, x.operand(false), x.operand(false), x.Rows, true)
	g.part, g.wide = lower, h
	g.run()
}

// Symmetrize copies the lower triangle of the n x n matrix h to the upper one.
func Symmetrize(p *Pool, h []float64, n int) {
	checkShape("Symmetrize", n, n, n, len(h))
	symmetrize(p, h, n)
}

func symmetrize[T real](p *Pool, h []T, n int) {
	const side = 64
	ks, blocks := kernelsOf[T](p), (n+side-1)/side
	p.Run(blocks, func(t int) {
		i := (blocks - 1 - t) * side // long rows first
		for j := 0; j <= i; j += side {
			mirror(ks, h, n, i, min(n, i+side), j, min(n, j+side))
		}
	})
}

func checkProduct(name string, c, a, b Mat, m, n, ka, kb int) {
	checkFit(name, c, a, b, m, n, ka, kb)
	if c.Kind != F32 || a.Kind != F32 || b.Kind == Pairs {
		panic(fmt.Sprintf("kernel: %s: C is %v, A is %v and B is %v, want F32, F32 and a kind of numbers", name, c.Kind, a.Kind, b.Kind))
	}
}

// checkFit panics unless C is m x n and both operands have the same k.
func checkFit(name string, c, a, b Mat, m, n, ka, kb int) {
	c.check(name)
	a.check(name)
	b.check(name)
	if c.Rows != m || c.Cols != n || ka != kb {
		panic(fmt.Sprintf("kernel: %s: C %dx%d, A %dx%d, B %dx%d do not fit", name, c.Rows, c.Cols, a.Rows, a.Cols, b.Rows, b.Cols))
	}
}

func multiply(p *Pool, c Mat, a, b operand[float32], k int, accumulate bool) {
	g := newProduct(p, c, a, b, k, accumulate)
	if !runSkinny(g, p.kernels()) {
		g.run()
	}
}

func newProduct(p *Pool, c Mat, a, b operand[float32], k int, accumulate bool) *product[float32] {
	if p == nil {
		p = NewPool(1) // its scratch memory serves all tasks of this product
	}
	return &product[float32]{
		pool: p, ks: &p.kernels().f32, a: a, b: b, m: c.Rows, n: c.Cols, k: k, kc: KC, chain: KC, c: c.F32, ldc: c.Stride, add: accumulate,
	}
}

// operand views m as A or B of a product: alongK says that k runs along its rows.
func (m Mat) operand(alongK bool) operand[float32] {
	o := operand[float32]{data: m.F32, half: m.U16, kind: m.Kind, stride: m.Stride, outer: m.Cols, alongK: alongK}
	if alongK {
		o.outer = m.Rows
	}
	return o
}
