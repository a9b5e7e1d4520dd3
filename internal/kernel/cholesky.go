package kernel

import (
	"fmt"
	"math"
)

// PivotError says that a matrix is not positive definite: the pivot of row Index came out as Value.
type PivotError struct {
	Index int
	Value float64
}

func (e *PivotError) Error() string {
	return fmt.Sprintf("matrix is not positive definite: pivot %d is %g", e.Index, e.Value)
}

// CholeskyUpperInverse replaces the symmetric positive definite n x n matrix h (row-major, lower triangle read) by the
// upper triangular U with a positive diagonal and H⁻¹ = UᵀU, the factor of GPTQ. The strict lower triangle becomes zero.
//
// With J the reversal of rows and columns, JHJ = LLᵀ gives H = VVᵀ for the upper V = JLJ, hence U = V⁻¹: one
// factorization and one triangular inverse, 2n³/3 operations. A *PivotError leaves h undefined.
func CholeskyUpperInverse(p *Pool, h []float64, n int) error {
	at := func(i, j int) *float64 { return &h[i*n+j] }
	for i := range n { // only the lower triangle is input
		for j := i + 1; j < n; j++ {
			*at(i, j) = *at(j, i)
		}
	}
	for j := n - 1; j >= 0; j-- { // V, columns from the right
		for i := j; i >= 0; i-- {
			s := *at(i, j)
			for k := j + 1; k < n; k++ {
				s = math.FMA(-*at(i, k), *at(j, k), s)
			}
			if i == j {
				if !(s > 0) || math.IsInf(s, 0) {
					return &PivotError{j, s}
				}
				*at(j, j) = math.Sqrt(s)
			} else {
				*at(i, j) = s / *at(j, j)
			}
		}
	}
	for j := range n { // U = V⁻¹, column by column: U[:j,j] = -U[:j,:j]·V[:j,j]/V[j,j]
		d := 1 / *at(j, j)
		for i := range j {
			s := 0.0
			for k := i; k < j; k++ {
				s = math.FMA(*at(i, k), *at(k, j), s)
			}
			*at(i, j) = -s * d
		}
		*at(j, j) = d
	}
	for i := range n {
		clear(h[i*n : i*n+i])
	}
	return nil
}

// SyrkAddF64 adds Xᵀ·X to the symmetric n x n matrix h (row-major): to its lower triangle alone, which is all that
// CholeskyUpperInverse reads. Call Symmetrize before reading the upper one. Sums over KC rows are taken in float32 and
// added to h in float64, so the result does not depend on how rows are spread over calls of a multiple of KC rows.
func SyrkAddF64(p *Pool, h []float64, n int, x Mat) {
	g := MatF32(n, n, make([]float32, n*n))
	for r := 0; r < x.Rows; r += KC {
		Syrk(p, g, x.Slice(r, min(x.Rows, r+KC), 0, x.Cols), false)
		for i := range n {
			for j := range i + 1 {
				h[i*n+j] += float64(g.F32[i*n+j])
			}
		}
	}
}

// Symmetrize copies the lower triangle of the n x n matrix h to the upper one.
func Symmetrize(p *Pool, h []float64, n int) {
	p.Run(n, func(i int) {
		for j := range i {
			h[j*n+i] = h[i*n+j]
		}
	})
}
