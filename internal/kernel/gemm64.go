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
	if p == nil {
		p = NewPool(1)
	}
	newDense(p, dense[float64]{c.Rows, c.Cols, c.Stride, c.F64}, a, b, k, accumulate).run()
}

// operand views m as A or B of a product.
func (m Mat64) operand(alongK bool) operand[float64] {
	return dense[float64]{m.Rows, m.Cols, m.Stride, m.F64}.operand(alongK)
}
