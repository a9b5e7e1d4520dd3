package quant

import "math"

// The functions below are the standard library's to within a few units in the last place, made of operations that round
// the same on every processor and at every GOAMD64 level. The library's own are not: compilers fuse their sums, and some
// are written in assembly. Scales that are chosen with them must not depend on who built the program.

// power is x^y for x ≥ 0; 0^y is 0 for y > 0 and 1 for y = 0.
func power(x, y float64) float64 {
	switch {
	case y == 0:
		return 1
	case x == 0:
		return 0
	}
	return exponential(float64(y * logarithm(x)))
}

// logarithm is the natural logarithm of a positive number: the exponent's part, and for the mantissa m
// 2·artanh((m−1)/(m+1)) = 2·(t + t³/3 + t⁵/5 + …) with |t| below 0.172.
func logarithm(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	t := (m - 1) / (m + 1)
	t2, sum := float64(t*t), 0.0
	for n := 21; n >= 1; n -= 2 {
		sum = float64(sum*t2) + 1/float64(n)
	}
	return float64(float64(e)*math.Ln2) + float64(2*t*sum)
}

// exponential is e^x: 2^k times the power series of the rest, which is at most half of ln 2.
func exponential(x float64) float64 {
	const hi, lo = 0x1.62e42fee00000p-1, 0x1.a39ef35793c76p-33 // ln 2 in two parts: k times the first is exact
	if !(math.Abs(x) < 700) {
		return math.Exp(x) // out of range, or not a number: exact cases
	}
	k := math.RoundToEven(float64(x * (1 / math.Ln2)))
	r := (x - float64(k*hi)) - float64(k*lo)
	sum := 1.0
	for n := 14; n >= 1; n-- {
		sum = float64(sum*r)/float64(n) + 1
	}
	return math.Ldexp(sum, int(k))
}
