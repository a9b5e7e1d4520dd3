package exl2

import (
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/tensor"
)

// scaleCodes is the number of scale codes of an output in a group.
const scaleCodes = 16

// steps are the steps that a group offers its outputs, one per scale code, as the loader will compute them.
type steps struct {
	bits int
	top  uint16 // q_scale_max, bits of a half
	size [scaleCodes]float32
	inv  [scaleCodes]float32 // 1/size, 0 for a step that vanishes: the zero code then stands for every weight
	lo   float32             // smallest and largest code, zero point taken off
	hi   float32
}

// newSteps returns the steps of a group with the given width whose largest step is about top. What the loader divides by
// 256 is rounded there, so only maxima that are 256 times a half are used: every other one decodes like one of these.
func newSteps(bits int, top float32) steps {
	zero := float32(int(1) << (bits - 1))
	top = min(top, 65504/zero) // the most negative weight stays finite
	d := tensor.F32ToF16(max(top/256, 0x1p-24))
	s := steps{bits: bits, top: tensor.F32ToF16(tensor.F16ToF32(d) * 256), lo: -zero, hi: zero - 1}
	for i := range s.size {
		s.size[i] = packing.EXL2Scale(s.top, i+1)
		if s.size[i] > 0 {
			s.inv[i] = 1 / s.size[i]
		}
	}
	return s
}

// round writes the nearest values y of x with the scale codes s of the rows, and their codes.
func (st *steps) round(x, y []float32, s, codes []uint8) {
	y, s, codes = y[:len(x)], s[:len(x)], codes[:len(x)]
	for r, v := range x {
		q := roundEven(min(max(v*st.inv[s[r]], st.lo), st.hi))
		y[r] = packing.RoundHalf(q * st.size[s[r]])
		codes[r] = uint8(int(q) - int(st.lo))
	}
}

// roundEven rounds |x| < 2^22 to the nearest whole number, ties to even: adding 1.5·2^23 pushes the fraction out of the
// mantissa. The conversion keeps compilers from fusing.
func roundEven(x float32) float32 {
	const magic = 0x1.8p23
	return float32(x+magic) - magic
}

// reach returns the step with which the widest weight of a column of bits is just covered.
func reach(bits int, peak float32) float32 {
	return peak / (float32(int(1)<<bits-1) / 2)
}
