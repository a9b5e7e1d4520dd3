package kernel

import "fmt"

// KC is the number of values of k in one chain of fused multiply-adds. It is part of the definition of every product.
const KC = 512

// GemmNT computes C[M,N] = A[M,K]·B[N,K]ᵀ, added to C if accumulate is set: a linear layer with activations A and weights B.
// C and A are F32, B is of any kind.
func GemmNT(p *Pool, c, a, b Mat, accumulate bool) {
	checkProduct("GemmNT", c, a, b, a.Rows, b.Rows, a.Cols, b.Cols)
	gemm(p, c, a, b, false, true, accumulate)
}

// GemmNN computes C[M,N] = A[M,K]·B[K,N], added to C if accumulate is set. C and A are F32, B is of any kind.
func GemmNN(p *Pool, c, a, b Mat, accumulate bool) {
	checkProduct("GemmNN", c, a, b, a.Rows, b.Cols, a.Cols, b.Rows)
	gemm(p, c, a, b, false, false, accumulate)
}

// GemmTN computes C[M,N] = A[K,M]ᵀ·B[K,N], added to C if accumulate is set. C and A are F32, B is of any kind.
func GemmTN(p *Pool, c, a, b Mat, accumulate bool) {
	checkProduct("GemmTN", c, a, b, a.Cols, b.Cols, a.Rows, b.Rows)
	gemm(p, c, a, b, true, false, accumulate)
}

// Syrk computes the Gram matrix C[K,K] = Xᵀ·X of X[T,K], added to C if accumulate is set, and fills both triangles. Only the
// lower triangle of the old C is read.
func Syrk(p *Pool, c, x Mat, accumulate bool) {
	checkProduct("Syrk", c, x, x, x.Cols, x.Cols, x.Rows, x.Rows)
	gemm(p, c, x, x, true, false, accumulate)
	for i := range c.Rows {
		for j := range i {
			c.F32[j*c.Stride+i] = c.F32[i*c.Stride+j]
		}
	}
}

func checkProduct(name string, c, a, b Mat, m, n, ka, kb int) {
	c.check(name)
	a.check(name)
	b.check(name)
	if c.Kind != F32 || a.Kind != F32 {
		panic(fmt.Sprintf("kernel: %s: C is %v and A is %v, want F32", name, c.Kind, a.Kind))
	}
	if c.Rows != m || c.Cols != n || ka != kb {
		panic(fmt.Sprintf("kernel: %s: C %dx%d, A %dx%d, B %dx%d do not fit", name, c.Rows, c.Cols, a.Rows, a.Cols, b.Rows, b.Cols))
	}
}

func gemm(p *Pool, c, a, b Mat, transA, transB, accumulate bool) {
	k := a.Cols
	if transA {
		k = a.Rows
	}
	p.Run(c.Rows, func(i int) {
		acc := make([]float32, c.Cols)
		brow := make([]float32, b.Cols)
		row := c.Row(i)
		if !accumulate {
			clear(row)
		}
		for k0 := 0; k0 < k; k0 += KC {
			clear(acc)
			if transB {
				for j := range acc {
					b.widenRow(brow, j)
					for kk := k0; kk < min(k, k0+KC); kk++ {
						acc[j] = fma32(a.F32[i*a.Stride+kk], brow[kk], acc[j])
					}
				}
			} else {
				for kk := k0; kk < min(k, k0+KC); kk++ {
					b.widenRow(brow, kk)
					ai := a.F32[0]
					if transA {
						ai = a.F32[kk*a.Stride+i]
					} else {
						ai = a.F32[i*a.Stride+kk]
					}
					for j := range acc {
						acc[j] = fma32(ai, brow[j], acc[j])
					}
				}
			}
			if k0 == 0 && !accumulate {
				copy(row, acc)
			} else {
				for j := range acc {
					row[j] += acc[j]
				}
			}
		}
	})
}

func (m Mat) widenRow(dst []float32, i int) {
	if m.Kind == F32 {
		copy(dst, m.F32[i*m.Stride:i*m.Stride+m.Cols])
		return
	}
	Widen(dst[:m.Cols], m.U16[i*m.Stride:i*m.Stride+m.Cols], m.Kind)
}
