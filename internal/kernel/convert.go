package kernel

import (
	"encoding/binary"
	"unsafe"

	"github.com/llmquant/quantize/formats/tensor"
)

// Widen converts len(src) 16-bit floats of kind k (BF16 or F16) to float32, exactly; a half NaN becomes quiet and keeps its
// payload.
func Widen(dst []float32, src []uint16, k Kind) { active().widen(dst, src, k) }

// WidenBytes is Widen for numbers as they lie in a file: little-endian, at any alignment.
func WidenBytes(dst []float32, src []byte, k Kind) {
	src = src[:2*len(dst)]
	one := widenOne(k)
	done := active().bursts(len(dst), func(v *vectors, i, n int) { v.widen[k](&dst[i], &src[2*i], n) })
	for i := done; i < len(dst); i++ {
		dst[i] = one(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// NarrowBytes is NarrowF16 or NarrowBF16 for numbers as they lie in a file.
func NarrowBytes(dst []byte, src []float32, k Kind) {
	dst = dst[:2*len(src)]
	one := narrowOne(k)
	done := active().bursts(len(src), func(v *vectors, i, n int) {
		narrow := v.narrowBF16
		if k == F16 {
			narrow = v.narrowF16
		}
		narrow((*uint16)(unsafe.Pointer(&dst[2*i])), &src[i], n)
	})
	for i := done; i < len(src); i++ {
		binary.LittleEndian.PutUint16(dst[2*i:], one(src[i]))
	}
}

// NarrowF16 rounds src to IEEE halves, to nearest with ties to even; NaN stays NaN and overflow becomes infinity.
func NarrowF16(dst []uint16, src []float32) { active().narrowF16(dst, src) }

// NarrowBF16 rounds src to bfloat16, to nearest with ties to even; NaN stays NaN.
func NarrowBF16(dst []uint16, src []float32) { active().narrowBF16(dst, src) }

func (s *set) widen(dst []float32, src []uint16, k Kind) {
	dst = dst[:len(src)]
	one := widenOne(k)
	done := s.bursts(len(src), func(v *vectors, i, n int) { v.widen[k](&dst[i], (*byte)(unsafe.Pointer(&src[i])), n) })
	for i := done; i < len(src); i++ {
		dst[i] = one(src[i])
	}
}

// widenOne returns the portable widening of a 16-bit kind.
func widenOne(k Kind) func(uint16) float32 {
	switch k {
	case BF16:
		return tensor.BF16ToF32
	case F16:
		return tensor.F16ToF32
	}
	panic("kernel: no 16-bit kind: " + k.String())
}

// narrowOne returns the portable rounding to a 16-bit kind.
func narrowOne(k Kind) func(float32) uint16 {
	switch k {
	case BF16:
		return tensor.F32ToBF16
	case F16:
		return tensor.F32ToF16
	}
	panic("kernel: no 16-bit kind: " + k.String())
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
