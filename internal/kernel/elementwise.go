package kernel

import "math"

// Exp sets dst[i] = e^x[i], within 1 ulp, with overflow to +Inf, gradual underflow to 0 and NaN for NaN. dst may be x.
func Exp(dst, x []float32) { active().exp(dst, x) }

// SiluMul sets dst[i] = silu(gate[i])*up[i] with silu(g) = g/(1+e^-g), the gated unit of a Llama block. dst may be gate or up.
func SiluMul(dst, gate, up []float32) { active().siluMul(dst, gate, up) }

// Softmax replaces row by e^(x-max)/Σe^(x-max). Masked entries may be -Inf.
func Softmax(row []float32) { active().softmax(row) }

// RMSNorm sets dst = x / sqrt(mean(x²)+eps) * weight for one row. dst may be x.
func RMSNorm(dst, x, weight []float32, eps float32) { active().rmsNorm(dst, x, weight, eps) }

// Scale multiplies every element of x by s.
func Scale(x []float32, s float32) { active().scale(x, s) }

// AddScaled adds s*x to dst with one rounding per element.
func AddScaled(dst, x []float32, s float32) { active().addScaled(dst, x, s) }

// AddScaledRows adds s[i]·x[i] to dst for every i in turn, with one rounding per element and i: what AddScaled does in
// len(s) calls, with dst in registers. Vector x[i] begins at x[i*stride].
func AddScaledRows(dst, x []float32, stride int, s []float32) {
	active().addScaledRows(dst, x, stride, s)
}

func (s *set) exp(dst, x []float32) {
	dst = dst[:len(x)]
	done := s.bursts(len(x), func(v *vectors, i, n int) { v.exp(&dst[i], &x[i], n) })
	for i := done; i < len(x); i++ {
		dst[i] = exp32(x[i])
	}
}

func (s *set) siluMul(dst, gate, up []float32) {
	dst, up = dst[:len(gate)], up[:len(gate)]
	done := s.bursts(len(gate), func(v *vectors, i, n int) { v.siluMul(&dst[i], &gate[i], &up[i], n) })
	for i := done; i < len(gate); i++ {
		g := gate[i]
		dst[i] = g / (1 + exp32(-g)) * up[i]
	}
}

func (s *set) softmax(row []float32) {
	if len(row) == 0 {
		return
	}
	top := s.max(row)
	var acc [lanes]float32
	done := s.bursts(len(row), func(v *vectors, i, n int) { v.expSum(&acc, &row[i], top, n) })
	for i := done; i < len(row); i++ {
		row[i] = exp32(row[i] - top)
		acc[i%lanes] += row[i]
	}
	s.scale(row, 1/sumLanes(&acc))
}

// max is the largest element of x, which is not empty. Where a NaN is present the result is unspecified.
func (s *set) max(x []float32) float32 {
	var acc [lanes]float32
	for i := range acc {
		acc[i] = x[0]
	}
	done := s.bursts(len(x), func(v *vectors, i, n int) { v.max(&acc, &x[i], n) })
	top := acc[0]
	for _, v := range acc[1:] {
		top = max(top, v)
	}
	for _, v := range x[done:] {
		top = max(top, v)
	}
	return top
}

func (s *set) rmsNorm(dst, x, weight []float32, eps float32) {
	dst, weight = dst[:len(x)], weight[:len(x)]
	var acc [lanes]float32
	done := s.bursts(len(x), func(v *vectors, i, n int) { v.sumSq(&acc, &x[i], n) })
	for i := done; i < len(x); i++ {
		acc[i%lanes] = fma32(x[i], x[i], acc[i%lanes])
	}
	inv := 1 / float32(math.Sqrt(float64(sumLanes(&acc)/float32(len(x))+eps)))
	done = s.bursts(len(x), func(v *vectors, i, n int) { v.scaleMul(&dst[i], &x[i], &weight[i], inv, n) })
	for i := done; i < len(x); i++ {
		dst[i] = x[i] * inv * weight[i]
	}
}

func (s *set) scale(x []float32, f float32) {
	done := s.bursts(len(x), func(v *vectors, i, n int) { v.scale(&x[i], f, n) })
	for i := done; i < len(x); i++ {
		x[i] *= f
	}
}

func (s *set) addScaled(dst, x []float32, f float32) {
	dst = dst[:len(x)]
	done := s.bursts(len(x), func(v *vectors, i, n int) { v.addScaled(&dst[i], &x[i], f, n) })
	for i := done; i < len(x); i++ {
		dst[i] = fma32(f, x[i], dst[i])
	}
}

func (s *set) addScaledRows(dst, x []float32, stride int, f []float32) {
	if len(f) == 0 || len(dst) == 0 {
		return
	}
	_ = x[(len(f)-1)*stride+len(dst)-1]
	done := 0
	if s.vec != nil {
		for step := max(lanes, vectorBurst/len(f)/64*64); len(dst)-done >= lanes; {
			n := min((len(dst)-done)&^(lanes-1), step)
			s.vec.addScaledRows(&dst[done], &x[done], 4*stride, &f[0], len(f), n)
			done += n
		}
	}
	for i, v := range f {
		from := x[i*stride:]
		for j := done; j < len(dst); j++ {
			dst[j] = fma32(v, from[j], dst[j])
		}
	}
}

// exp32 splits x = n·ln2 + r with |r| <= ln2/2 and scales a polynomial in r by 2^n in two steps, so that a result below
// the normal range is rounded once.
func exp32(x float32) float32 {
	const magic = 0x1.8p23 // adding it rounds to an integer in the low bits
	x = min(max(x, -105), 89)
	t := fma32(x, math.Log2E, magic)
	n := t - magic
	r := fma32(n, -0x1.62e4p-1, x) // exact: the upper part of ln2 has 15 bits
	r = fma32(n, -0x1.7f7d1cp-20, r)
	y := float32(expTerms[0])
	for _, c := range expTerms[1:] {
		y = fma32(y, r, c)
	}
	k := int32(math.Float32bits(t) - math.Float32bits(magic))
	half := k >> 1
	return float32(y*pow2(half)) * pow2(k-half)
}

func pow2(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

// expTerms is 1 + r + r²·q(r), highest power first, with q of degree 4 from a Remez exchange for the least relative error:
// 3e-9 before the coefficients are rounded, a twentieth of an ulp.
var expTerms = [...]float32{0x1.6a2434p-10, 0x1.1239e2p-7, 0x1.5558f2p-5, 0x1.555492p-3, 0x1.fffffcp-2, 1, 1}
