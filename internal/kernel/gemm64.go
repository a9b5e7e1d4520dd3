package kernel

import "fmt"

// KC64 is the length of a chain in a float64 product, which is defined like one in float32.
const KC64 = 256

// GemmNT64 computes C[M,N] = A[M,K]·B[N,K]ᵀ in float64, added to C if accumulate is set.
func GemmNT64(p *Pool, c, a, b Mat64, accumulate bool) {
	checkProduct64("GemmNT64", c, a, b, a.Rows, b.Rows, a.Cols, b.Cols)
	multiply64(p, c, a.operand(true), b.operand(true), a.Cols, accumulate)
}

// GemmNN64 computes C[M,N] = A[M,K]·B[K,N] in float64, added to C if accumulate is set.
func GemmNN64(p *Pool, c, a, b Mat64, accumulate bool) {
	checkProduct64("GemmNN64", c, a, b, a.Rows, b.Cols, a.Cols, b.Rows)
	multiply64(p, c, a.operand(true), b.operand(false), a.Cols, accumulate)
}

// GemmTN64 computes C[M,N] = A[K,M]ᵀ·B[K,N] in float64, added to C if accumulate is set.
func GemmTN64(p *Pool, c, a, b Mat64, accumulate bool) {
	checkProduct64("GemmTN64", c, a, b, a.Cols, b.Cols, a.Rows, b.Rows)
	multiply64(p, c, a.operand(false), b.operand(false), a.Rows, accumulate)
}

func checkProduct64(name string, c, a, b Mat64, m, n, ka, kb int) {
	c.check(name)
	a.check(name)
	b.check(name)
	if c.Rows != m || c.Cols != n || ka != kb {
		panic(fmt.Sprintf("kernel: %s: C %dx%d, A %dx%d, B %dx%d do not fit", name, c.Rows, c.Cols, a.Rows, a.Cols, b.Rows, b.Cols))
	}
}

func multiply64(p *Pool, c Mat64, a, b operand[float64], k int, accumulate bool) {
	newProduct64(p, c, a, b, k, accumulate).run()
}

func newProduct64(p *Pool, c Mat64, a, b operand[float64], k int, accumulate bool) *product[float64] {
	if p == nil {
		p = NewPool(1)
	}
	return &product[float64]{
		pool: p, ks: &p.kernels().f64, a: a, b: b, m: c.Rows, n: c.Cols, k: k, kc: KC64, c: c.F64, ldc: c.Stride, add: accumulate,
	}
}

// slice is the sub-matrix of rows [r0, r1) and columns [c0, c1), not empty.
func (m Mat64) slice(r0, r1, c0, c1 int) Mat64 {
	return Mat64{Rows: r1 - r0, Cols: c1 - c0, Stride: m.Stride, F64: m.F64[r0*m.Stride+c0 : (r1-1)*m.Stride+c1]}
}

// operand views m as A or B of a product: alongK says that k runs along its rows.
func (m Mat64) operand(alongK bool) operand[float64] {
	o := operand[float64]{data: m.F64, kind: kindF64, stride: m.Stride, outer: m.Cols, alongK: alongK}
	if alongK {
		o.outer = m.Rows
	}
	return o
}
