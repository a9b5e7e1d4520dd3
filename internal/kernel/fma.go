package kernel

import "math"

// fma32 returns a*b + c rounded once, as VFMADD does.
//
// The product of two float32 is exact in float64, so s below is the sum rounded to 53 bits. Narrowing s rounds a second
// time, which goes wrong only where s sits exactly on the midpoint of two float32 values and the first rounding moved it
// there, or below the normal range of float32, where midpoints lie elsewhere. Those rare cases take the exact way.
func fma32(a, b, c float32) float32 {
	s := float64(a)*float64(b) + float64(c)
	if hazard(s) < 0 {
		return fma32Exact(a, b, c, s)
	}
	return float32(s)
}

// hazard is negative if narrowing s to float32 might go wrong: the 29 bits that get lost are 100…0, or s is below the
// normal range. It has no branch, so that several can be combined.
func hazard(s float64) int64 {
	const smallest = 0x3810 << 48 // 2^-126
	bits := int64(math.Float64bits(s))
	return ((bits&0x1fffffff ^ 0x10000000) - 1) | ((bits & math.MaxInt64) - smallest)
}

// fma32Exact rounds the exact sum to odd before narrowing: the lost part of s sets its last bit, so that s is a midpoint
// only if the exact sum is one.
func fma32Exact(a, b, c float32, s float64) float32 {
	p, q := float64(a)*float64(b), float64(c)
	t := s - p // Knuth's two-sum: err is exactly p + q - s
	err := (p - (s - t)) + (q - t)
	if err == 0 || err != err {
		return float32(s)
	}
	bits := math.Float64bits(s)
	if bits&1 == 0 {
		if (err > 0) == (s > 0) {
			bits++
		} else {
			bits--
		}
	}
	return float32(math.Float64frombits(bits))
}
