package kernel

import (
	"fmt"
	"math"
)

// GemmNT64 computes C[M,N] = A[M,K]·B[N,K]ᵀ in float64, added to C if accumulate is set.
func GemmNT64(p *Pool, c, a, b Mat64, accumulate bool) {
	checkProduct64("GemmNT64", c, a, b, a.Rows, b.Rows, a.Cols, b.Cols)
	gemm64(p, c, a.Cols, accumulate, func(i, k int) float64 { return a.F64[i*a.Stride+k] }, func(k, j int) float64 { return b.F64[j*b.Stride+k] })
}

// GemmNN64 computes C[M,N] = A[M,K]·B[K,N] in float64, added to C if accumulate is set.
func GemmNN64(p *Pool, c, a, b Mat64, accumulate bool) {
	checkProduct64("GemmNN64", c, a, b, a.Rows, b.Cols, a.Cols, b.Rows)
	gemm64(p, c, a.Cols, accumulate, func(i, k int) float64 { return a.F64[i*a.Stride+k] }, func(k, j int) float64 { return b.F64[k*b.Stride+j] })
}

// GemmTN64 computes C[M,N] = A[K,M]ᵀ·B[K,N] in float64, added to C if accumulate is set.
func GemmTN64(p *Pool, c, a, b Mat64, accumulate bool) {
	checkProduct64("GemmTN64", c, a, b, a.Cols, b.Cols, a.Rows, b.Rows)
	gemm64(p, c, a.Rows, accumulate, func(i, k int) float64 { return a.F64[k*a.Stride+i] }, func(k, j int) float64 { return b.F64[k*b.Stride+j] })
}

func checkProduct64(name string, c, a, b Mat64, m, n, ka, kb int) {
	c.check(name)
	a.check(name)
	b.check(name)
	if c.Rows != m || c.Cols != n || ka != kb {
		panic(fmt.Sprintf("kernel: %s: C %dx%d, A %dx%d, B %dx%d do not fit", name, c.Rows, c.Cols, a.Rows, a.Cols, b.Rows, b.Cols))
	}
}

func gemm64(p *Pool, c Mat64, k int, accumulate bool, a, b func(int, int) float64) {
	p.Run(c.Rows, func(i int) {
		row := c.F64[i*c.Stride : i*c.Stride+c.Cols]
		for j := range row {
			sum := row[j]
			for k0 := 0; k0 < k; k0 += KC {
				acc := 0.0
				for kk := k0; kk < min(k, k0+KC); kk++ {
					acc = math.FMA(a(i, kk), b(kk, j), acc)
				}
				if k0 == 0 && !accumulate {
					sum = acc
				} else {
					sum += acc
				}
			}
			if k == 0 && !accumulate {
				sum = 0
			}
			row[j] = sum
		}
	})
}
