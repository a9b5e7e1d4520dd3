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
