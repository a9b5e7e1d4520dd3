package kernel

import "math"

// dotPair defines the chains of bfloat16 products: acc plus the products of the upper halves of two words, rounded, plus the
// product of the lower halves, rounded. A word holds two values of k, the first one in its lower half, so the second comes
// first. Both steps are fused multiply-adds that take denormal numbers as zero and flush denormal results to zero, with
// their sign; a result that rounding lifts to the smallest normal number stays.
//
// This is what VDPBF16PS computes. On an AMD Zen 4 processor its results on 140 million random words had the bits of this
// text, and on as many those of scalar VFMADD with FTZ and DAZ: any bits, sums near underflow and overflow, cancellation,
// denormals, infinities and NaN. Only the payload of a NaN may differ. TestDotPair repeats it on the processor at hand.
func dotPair(acc float32, a, b uint32) float32 {
	acc = fmaFlush(upperBF16(a), upperBF16(b), acc)
	return fmaFlush(lowerBF16(a), lowerBF16(b), acc)
}

func upperBF16(word uint32) float32 { return noDenormal(word & 0xffff0000) }
func lowerBF16(word uint32) float32 { return noDenormal(word << 16) }

// noDenormal is the number with the given bits, zero if it is denormal.
func noDenormal(bits uint32) float32 {
	if bits&0x7f800000 == 0 {
		bits &= 1 << 31
	}
	return math.Float32frombits(bits)
}

// fmaFlush is fma32 with denormal results flushed to zero. a and b are bfloat16 numbers, none of a, b and c is denormal.
func fmaFlush(a, b, c float32) float32 {
	const smallest = 0x1p-126
	s := float64(a)*float64(b) + float64(c)
	if hazard(s) >= 0 {
		return float32(s)
	}
	// Below the normal range s is exact, or too far from the midpoint under it to matter: a product has 16 bits.
	switch size := math.Abs(s); {
	case size >= smallest:
		return fma32Exact(a, b, c, s)
	case size >= smallest-0x1p-151: // rounds to 24 bits
		return float32(math.Copysign(smallest, s))
	}
	return float32(math.Copysign(0, s))
}

// tileBF16 runs the chains of one row over words that have the type of a float32.
func tileBF16(acc *[portableNR]float32, a, b []float32) {
	var x [portableNR]float64 // always float32 values
	var upper, lower [portableNR]float32
	for len(b) >= portableNR {
		for j, v := range b[:portableNR] {
			word := math.Float32bits(v)
			upper[j], lower[j] = upperBF16(word), lowerBF16(word)
		}
		word := math.Float32bits(a[0])
		flushStep(&x, upperBF16(word), &upper)
		flushStep(&x, lowerBF16(word), &lower)
		b = b[portableNR:]
		a = a[min(portableMR, len(a)):]
	}
	for j, v := range x {
		acc[j] = float32(v)
	}
}

// flushStep is fmaFlush for a row of a tile. As in tile32, one sum that might be rounded wrongly sends all the exact way.
func flushStep(x *[portableNR]float64, a float32, b *[portableNR]float32) {
	av := float64(a)
	s0, s1, s2, s3 := av*float64(b[0])+x[0], av*float64(b[1])+x[1], av*float64(b[2])+x[2], av*float64(b[3])+x[3]
	s4, s5, s6, s7 := av*float64(b[4])+x[4], av*float64(b[5])+x[5], av*float64(b[6])+x[6], av*float64(b[7])+x[7]
	if hazard(s0)|hazard(s1)|hazard(s2)|hazard(s3)|hazard(s4)|hazard(s5)|hazard(s6)|hazard(s7) < 0 {
		for j, v := range b {
			x[j] = float64(fmaFlush(a, v, float32(x[j])))
		}
		return
	}
	x[0], x[1], x[2], x[3] = float64(float32(s0)), float64(float32(s1)), float64(float32(s2)), float64(float32(s3))
	x[4], x[5], x[6], x[7] = float64(float32(s4)), float64(float32(s5)), float64(float32(s6)), float64(float32(s7))
}
