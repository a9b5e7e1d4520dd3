package kernel

import (
	"unsafe"

	"github.com/llmquant/quantize/formats/tensor"
)

// Widen converts len(src) 16-bit floats of kind k (BF16 or F16) to float32, exactly; a half NaN becomes quiet and keeps its
// payload.
func Widen(dst []float32, src []uint16, k Kind) { active().widen(dst, src, k) }

// NarrowF16 rounds src to IEEE halves, to nearest with ties to even; NaN stays NaN and overflow becomes infinity.
func NarrowF16(dst []uint16, src []float32) { active().narrowF16(dst, src) }

// NarrowBF16 rounds src to bfloat16, to nearest with ties to even; NaN stays NaN.
func NarrowBF16(dst []uint16, src []float32) { active().narrowBF16(dst, src) }

func (s *set) widen(dst []float32, src []uint16, k Kind) {
	dst = dst[:len(src)]
	one := tensor.BF16ToF32
	switch k {
	case BF16:
	case F16:
		one = tensor.F16ToF32
	default:
		panic("kernel: Widen of kind " + k.String())
	}
	done := s.bursts(len(src), func(v *vectors, i, n int) { v.widen[k](&dst[i], (*byte)(unsafe.Pointer(&src[i])), n) })
	for i := done; i < len(src); i++ {
		dst[i] = one(src[i])
	}
}

func (s *set) narrowF16(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	done := s.bursts(len(src), func(v *vectors, i, n int) { v.narrowF16(&dst[i], &src[i], n) })
	for i := done; i < len(src); i++ {
		dst[i] = tensor.F32ToF16(src[i])
	}
}

func (s *set) narrowBF16(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	done := s.bursts(len(src), func(v *vectors, i, n int) { v.narrowBF16(&dst[i], &src[i], n) })
	for i := done; i < len(src); i++ {
		dst[i] = tensor.F32ToBF16(src[i])
	}
}
