package kernel

import "math"

// Exp sets dst[i] = e^x[i], within 2 ulp, with overflow to +Inf, gradual underflow to 0 and NaN for NaN. dst may be x.
func Exp(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = exp32(v)
	}
}

// SiluMul sets dst[i] = silu(gate[i])*up[i] with silu(g) = g/(1+e^-g), the gated unit of a Llama block. dst may be gate or up.
func SiluMul(dst, gate, up []float32) {
	dst, up = dst[:len(gate)], up[:len(gate)]
	for i, g := range gate {
		dst[i] = g / (1 + exp32(-g)) * up[i]
	}
}

// Softmax replaces row by e^(x-max)/Σe^(x-max). Masked entries may be -Inf.
func Softmax(row []float32) {
	if len(row) == 0 {
		return
	}
	top := row[0]
	for _, v := range row[1:] {
		top = max(top, v)
	}
	for i, v := range row {
		row[i] = exp32(v - top)
	}
	inv := 1 / Sum(row)
	for i := range row {
		row[i] *= inv
	}
}

// RMSNorm sets dst = x / sqrt(mean(x²)+eps) * weight for one row. dst may be x.
func RMSNorm(dst, x, weight []float32, eps float32) {
	dst, weight = dst[:len(x)], weight[:len(x)]
	var acc [lanes]float32
	for i, v := range x {
		acc[i%lanes] = fma32(v, v, acc[i%lanes])
	}
	inv := 1 / float32(math.Sqrt(float64(sumLanes(&acc)/float32(len(x))+eps)))
	for i, v := range x {
		dst[i] = float32(v*inv) * weight[i]
	}
}

// Scale multiplies every element of x by s.
func Scale(x []float32, s float32) {
	for i := range x {
		x[i] *= s
	}
}

// AddScaled adds s*x to dst with one rounding per element.
func AddScaled(dst, x []float32, s float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = fma32(s, v, dst[i])
	}
}

// exp32 splits x = n·ln2 + r with |r| <= ln2/2 and scales a polynomial in r by 2^n in two steps, so that results below
// the normal range are rounded once.
func exp32(x float32) float32 {
	const magic = 0x1.8p23 // adding it rounds to an integer in the low bits
	x = min(max(x, -105), 89)
	t := fma32(x, math.Log2E, magic)
	n := t - magic
	r := fma32(n, -0x1.62e4p-1, x)
	r = fma32(n, -0x1.7f7d1cp-20, r)
	y := float32(expCoef[0])
	for _, c := range expCoef[1:] {
		y = fma32(y, r, c)
	}
	k := int32(math.Float32bits(t) - math.Float32bits(magic))
	h := k >> 1
	return float32(y*pow2(h)) * pow2(k-h)
}

func pow2(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

var expCoef = [...]float32{1. / 5040, 1. / 720, 1. / 120, 1. / 24, 1. / 6, 0.5, 1, 1}
