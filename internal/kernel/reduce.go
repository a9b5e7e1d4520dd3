package kernel

import (
	"fmt"
	"math"
)

// lanes is the number of interleaved accumulators of a sum over a row: element i goes to accumulator i%lanes. It is
// part of the definition of every such sum.
const lanes = 16

// sumLanes adds the accumulators pairwise: i and i+8, then i and i+4, and so on.
func sumLanes[T real](acc *[lanes]T) T {
	for h := lanes / 2; h > 0; h /= 2 {
		for i := range h {
			acc[i] += acc[i+h]
		}
	}
	return acc[0]
}

// Sum adds x in float32 over 16 interleaved accumulators.
func Sum(x []float32) float32 { return active().sum(x) }

// Dot is the inner product of a and b as the matrix products define it: one chain of fused multiply-adds per block of KC
// values, blocks added in order. GemmNT computes many of them much faster.
func Dot(a, b []float32) float32 {
	b = b[:len(a)]
	var sum float32
	for k0 := 0; k0 < len(a); k0 += KC {
		var acc float32
		for k := k0; k < min(len(a), k0+KC); k++ {
			acc = fma32(a[k], b[k], acc)
		}
		if k0 == 0 {
			sum = acc
		} else {
			sum += acc
		}
	}
	return sum
}

// Dot64 is the inner product of a and b in float64, over 16 interleaved accumulators; every product is exact.
func Dot64(a, b []float32) float64 { return active().dot64(a, b) }

// SqDiff is Σ(a-b)² in float64, over 16 interleaved accumulators.
func SqDiff(a, b []float32) float64 { return active().sqDiff(a, b) }

// ColAbsSum adds Σ_i |x[i,j]| to dst[j], rows in order, in float64.
func ColAbsSum(dst []float64, x Mat) { active().columns(dst, x, false) }

// ColSumSq adds Σ_i x[i,j]² to dst[j], rows in order, in float64.
func ColSumSq(dst []float64, x Mat) { active().columns(dst, x, true) }

func (s *set) sum(x []float32) float32 {
	var acc [lanes]float32
	done := s.bursts(len(x), func(v *vectors, i, n int) { v.sum(&acc, &x[i], n) })
	for i := done; i < len(x); i++ {
		acc[i%lanes] += x[i]
	}
	return sumLanes(&acc)
}

func (s *set) dot64(a, b []float32) float64 {
	b = b[:len(a)]
	var acc [lanes]float64
	done := s.bursts(len(a), func(v *vectors, i, n int) { v.dot64(&acc, &a[i], &b[i], n) })
	for i := done; i < len(a); i++ {
		acc[i%lanes] += float64(a[i]) * float64(b[i]) // exact product: fused or not is the same
	}
	return sumLanes(&acc)
}

func (s *set) sqDiff(a, b []float32) float64 {
	b = b[:len(a)]
	var acc [lanes]float64
	done := s.bursts(len(a), func(v *vectors, i, n int) { v.sqDiff(&acc, &a[i], &b[i], n) })
	for i := done; i < len(a); i++ {
		d := float64(a[i]) - float64(b[i])
		acc[i%lanes] = math.FMA(d, d, acc[i%lanes])
	}
	return sumLanes(&acc)
}

// columns adds |x| or x² down the columns of x. It takes a few rows at a time, so that dst is read and written less often
// than x.
func (s *set) columns(dst []float64, x Mat, square bool) {
	x.check("column sum")
	if len(dst) != x.Cols {
		panic(fmt.Sprintf("kernel: %d column sums of a matrix of %d columns", len(dst), x.Cols))
	}
	if x.Rows == 0 || x.Cols == 0 {
		return
	}
	burst := max(1, min(64, vectorBurst/x.Cols))
	var wide []float32
	if x.Kind != F32 {
		wide = make([]float32, burst*x.Cols)
	}
	for r := 0; r < x.Rows; r += burst {
		rows := x.Slice(r, min(x.Rows, r+burst), 0, x.Cols)
		if x.Kind != F32 {
			for i := range rows.Rows {
				s.widen(wide[i*x.Cols:(i+1)*x.Cols], rows.U16[i*rows.Stride:][:x.Cols], x.Kind)
			}
			rows = MatF32(rows.Rows, x.Cols, wide)
		}
		s.columnBurst(dst, rows, square)
	}
}

func (s *set) columnBurst(dst []float64, x Mat, square bool) {
	done := s.bursts(x.Cols, func(v *vectors, j, n int) {
		f := v.colAbsSum
		if square {
			f = v.colSumSq
		}
		f(&dst[j], &x.F32[j], 4*x.Stride, x.Rows, n)
	})
	for i := range x.Rows {
		row := x.Row(i)
		for j := done; j < len(row); j++ {
			v := float64(row[j])
			if square {
				v *= v // exact
			}
			dst[j] += math.Abs(v)
		}
	}
}
