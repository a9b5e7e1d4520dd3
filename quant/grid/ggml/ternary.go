package ggml

import (
	"math"
	"slices"
)

// Types of one and two bits with a single scale.
//
//	Q1_0  (18, 128 weights)  d · qs[16]          bit i set: +d, clear: -d
//	Q2_0  (18, 64 weights)   d · qs[16]          two bits each: (q - 1)·d
//	TQ2_0 (66, 256 weights)  qs[64] · d          byte 32·h + m: weights 128·h + m + 32·n in bits 2·n: (q - 1)·d
//	TQ1_0 (54, 256 weights)  qs[48] · qh[4] · d  five base-3 digits per byte, see runsTQ10

func encodeQ10(e *encoder) {
	e.blocks(128, 18, func(b []byte, x, _ []float32) {
		var s float32
		for _, v := range x {
			s += abs32(v)
		}
		putF16(b, s/128)
		q := b[2:18]
		clear(q)
		for i, v := range x {
			if v >= 0 {
				q[i/8] |= 1 << (i % 8)
			}
		}
	})
}

func decodeQ10(dst []float32, src []byte) {
	eachBlock(128, 18, dst, src, func(x []float32, b []byte) {
		d := getF16(b)
		for i := range x {
			x[i] = d
			if b[2+i/8]>>(i%8)&1 == 0 {
				x[i] = -d
			}
		}
	})
}

func encodeQ20(e *encoder) {
	var codes [64]uint8
	e.blocks(64, 18, func(b []byte, x, _ []float32) {
		d := e.digits(codes[:], x)
		if d > 0 && math.IsInf(float64(1/d), 0) { // no finite inverse: the reference ends at its lowest code
			clear(codes[:])
		}
		putF16(b, d)
		q := b[2:18]
		for i := range q {
			c := codes[4*i : 4*i+4]
			q[i] = c[0]&3 | c[1]&3<<2 | c[2]&3<<4 | c[3]<<6
		}
	})
}

func decodeQ20(dst []float32, src []byte) {
	eachBlock(64, 18, dst, src, func(x []float32, b []byte) {
		d := getF16(b)
		for i := range x {
			x[i] = float32(int(b[2+i/4]>>(2*(i%4))&3)-1) * d
		}
	})
}

// digits rounds a block to -1, 0, 1 times its largest magnitude, plus one; the scale is returned.
func (c *coder) digits(q []uint8, x []float32) (d float32) {
	if c.k != nil {
		var peak [superBlock / run]float32
		n := len(x) / run
		c.k.block.peaks(&peak[0], &x[0], n)
		d = slices.Max(peak[:n])
		c.k.block.digits(&q[0], &x[0], n, inverse(d))
		return d
	}
	_, d = extreme(x)
	inv := inverse(d)
	for i, v := range x {
		q[i] = uint8(roundAway(float32(v*inv)) + 1)
	}
	return d
}

func encodeTQ20(e *encoder) {
	var q [superBlock]uint8
	e.blocks(superBlock, 66, func(b []byte, x, _ []float32) {
		putF16(b[64:], e.digits(q[:], x))
		packTwoBits(b[:64], q[:])
	})
}

func decodeTQ20(dst []float32, src []byte) {
	var q [superBlock]uint8
	eachBlock(superBlock, 66, dst, src, func(x []float32, b []byte) {
		unpackTwoBits(q[:], b[:64])
		decodeTernary(x, q[:], getF16(b[64:]))
	})
}

func decodeTernary(x []float32, q []uint8, d float32) {
	for i := range x {
		x[i] = float32(int(q[i])-1) * d
	}
}

// runsTQ10 lists where the bytes of a TQ1_0 block find their weights: `bytes` bytes from `at` hold `digits` weights
// each, beginning at weight `first` and lying `bytes` apart.
var runsTQ10 = [...]struct{ at, bytes, first, digits int }{
	{0, 32, 0, 5},
	{32, 16, 160, 5},
	{48, 4, 240, 4},
}

func encodeTQ10(e *encoder) {
	var q [superBlock]uint8
	e.blocks(superBlock, 54, func(b []byte, x, _ []float32) {
		putF16(b[52:], e.digits(q[:], x))
		for _, r := range runsTQ10 {
			for m := range r.bytes {
				var t int
				for n := range 5 { // a missing fifth digit is 0
					t *= 3
					if n < r.digits {
						t += int(q[r.first+m+n*r.bytes])
					}
				}
				b[r.at+m] = uint8((t*256 + 242) / 243) // as a fraction of 3^5, rounded up
			}
		}
	})
}

func decodeTQ10(dst []float32, src []byte) {
	var q [superBlock]uint8
	eachBlock(superBlock, 54, dst, src, func(x []float32, b []byte) {
		for _, r := range runsTQ10 {
			for m, t := range b[r.at : r.at+r.bytes] {
				for n := range r.digits {
					q[r.first+m+n*r.bytes] = uint8(uint16(t) * 3 >> 8)
					t *= 3
				}
			}
		}
		decodeTernary(x, q[:], getF16(b[52:]))
	})
}
