package kernel

import "unsafe"

// dense is a matrix of either element type, for code that serves both.
type dense[T real] struct {
	rows, cols, stride int
	data               []T
}

// slice is the sub-matrix of rows [r0, r1) and columns [c0, c1), not empty.
func (m dense[T]) slice(r0, r1, c0, c1 int) dense[T] {
	return dense[T]{r1 - r0, c1 - c0, m.stride, m.data[r0*m.stride+c0 : (r1-1)*m.stride+c1]}
}

// operand views m as A or B of a product: alongK says that k runs along its rows.
func (m dense[T]) operand(alongK bool) operand[T] {
	o := operand[T]{data: m.data, kind: F32, stride: m.stride, outer: m.cols, alongK: alongK}
	if unsafe.Sizeof(*new(T)) == 8 {
		o.kind = kindF64
	}
	if alongK {
		o.outer = m.rows
	}
	return o
}

// newDense is the product C = A·B, or C += A·B.
func newDense[T real](p *Pool, c dense[T], a, b operand[T], k int, accumulate bool) *product[T] {
	ks, kc := kernelsOf[T](p), KC
	if unsafe.Sizeof(*new(T)) == 8 {
		kc = KC64
	}
	return &product[T]{pool: p, ks: ks, a: a, b: b, m: c.rows, n: c.cols, k: k, kc: kc, chain: kc, c: c.data, ldc: c.stride, add: accumulate}
}

// kernelsOf returns the kernels of one element type of the set that a pool uses.
func kernelsOf[T real](p *Pool) *kernels[T] {
	s := p.kernels()
	if k, ok := any(&s.f32).(*kernels[T]); ok {
		return k
	}
	return any(&s.f64).(*kernels[T])
}
