package forward

import (
	"math"

	"github.com/llmquant/quantize/formats/arch"
)

// ropeTable holds cosines and sines per position, [positions, dim/2] each, times the attention scale of yarn.
type ropeTable struct {
	half     int
	cos, sin []float32
}

// newRopeTable computes angles as every engine does, position times frequency rounded to float32, and their cosines
// and sines in float64 on top, so that only the last rounding is ours.
func newRopeTable(r *arch.Rope, positions int) ropeTable {
	half := len(r.InvFreq)
	t := ropeTable{half: half, cos: make([]float32, positions*half), sin: make([]float32, positions*half)}
	scale := float32(r.AttentionScale)
	for p := range positions {
		for i, f := range r.InvFreq {
			angle := float32(p) * float32(f)
			sin, cos := sincos(float64(angle))
			t.cos[p*half+i] = float32(cos) * scale
			t.sin[p*half+i] = float32(sin) * scale
		}
	}
	return t
}

// rotate turns the pairs (i, i+half) of one head at a position, in place.
func (t *ropeTable) rotate(head []float32, position int) {
	cos := t.cos[position*t.half : (position+1)*t.half]
	sin := t.sin[position*t.half : (position+1)*t.half][:len(cos)]
	lo, hi := head[:len(cos)], head[t.half:][:len(cos)]
	for i, c := range cos {
		s, a, b := sin[i], lo[i], hi[i]
		// Explicit conversions keep the products from being fused on some CPUs only.
		lo[i] = float32(a*c) - float32(b*s)
		hi[i] = float32(b*c) + float32(a*s)
	}
}

// sincos is accurate to about one unit of float64 for |x| up to 1e6 and, unlike math.Sincos, made of single
// operations that no compiler fuses: the tables are equal on every CPU.
func sincos(x float64) (sin, cos float64) {
	// Cody and Waite: π/2 in three parts, the first two of 33 bits, so that k times them is exact for k < 2^20.
	const (
		part1 = 0x1.921fb544p+0
		part2 = 0x1.0b4611a6p-34
		part3 = 0x1.3198a2e037073p-69
	)
	k := math.RoundToEven(x * (2 / math.Pi))
	r := float64(x-float64(k*part1)) - float64(k*part2)
	r = r - float64(k*part3)
	s, c := sinPoly(r), cosPoly(r)
	switch int64(k) & 3 {
	case 1:
		s, c = c, -s
	case 2:
		s, c = -s, -c
	case 3:
		s, c = -c, s
	}
	return s, c
}

// sinPoly and cosPoly are Taylor series on |x| ≤ π/4; the first term left out is below 1e-17.
func sinPoly(x float64) float64 {
	z := float64(x * x)
	p := 0.0
	for _, c := range [...]float64{1. / 355687428096000, -1. / 1307674368000, 1. / 6227020800, -1. / 39916800, 1. / 362880, -1. / 5040, 1. / 120, -1. / 6} {
		p = float64(p*z) + c
	}
	return x + float64(float64(x*z)*p)
}

func cosPoly(x float64) float64 {
	z := float64(x * x)
	p := 0.0
	for _, c := range [...]float64{1. / 20922789888000, -1. / 87178291200, 1. / 479001600, -1. / 3628800, 1. / 40320, -1. / 720, 1. / 24, -1. / 2} {
		p = float64(p*z) + c
	}
	return 1 + float64(z*p)
}
