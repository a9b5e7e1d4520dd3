package kernel

// lanes is the number of interleaved accumulators of a sum over a row: element i goes to accumulator i%lanes. It is
// part of the definition of every such sum.
const lanes = 16

// sumLanes adds the accumulators pairwise: i and i+8, then i and i+4, and so on.
func sumLanes[T float32 | float64](acc *[lanes]T) T {
	for h := lanes / 2; h > 0; h /= 2 {
		for i := range h {
			acc[i] += acc[i+h]
		}
	}
	return acc[0]
}

// Sum adds x in float32 over 16 interleaved accumulators.
func Sum(x []float32) float32 {
	var acc [lanes]float32
	for i, v := range x {
		acc[i%lanes] += v
	}
	return sumLanes(&acc)
}

// Dot is the inner product of a and b as the matrix products define it: one chain of fused multiply-adds per block of KC
// values, blocks added in order.
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
func Dot64(a, b []float32) float64 {
	b = b[:len(a)]
	var acc [lanes]float64
	for i, v := range a {
		acc[i%lanes] += float64(v) * float64(b[i])
	}
	return sumLanes(&acc)
}

// SqDiff is Σ(a-b)² in float64, over 16 interleaved accumulators; a-b is exact in float64 for most inputs.
func SqDiff(a, b []float32) float64 {
	b = b[:len(a)]
	var acc [lanes]float64
	for i, v := range a {
		d := float64(v) - float64(b[i])
		acc[i%lanes] += float64(d * d)
	}
	return sumLanes(&acc)
}

// ColAbsSum adds Σ_i |x[i,j]| to dst[j], rows in order, in float64.
func ColAbsSum(dst []float64, x Mat) {
	x.check("ColAbsSum")
	row := make([]float32, x.Cols)
	for i := range x.Rows {
		x.widenRow(row, i)
		for j, v := range row {
			dst[j] += float64(max(v, -v))
		}
	}
}

// ColSumSq adds Σ_i x[i,j]² to dst[j], rows in order, in float64.
func ColSumSq(dst []float64, x Mat) {
	x.check("ColSumSq")
	row := make([]float32, x.Cols)
	for i := range x.Rows {
		x.widenRow(row, i)
		for j, v := range row {
			dst[j] += float64(v) * float64(v) // the product is exact
		}
	}
}
