package kernel

import "github.com/llmquant/quantize/formats/tensor"

// Widen converts len(src) 16-bit floats of kind k (BF16 or F16) to float32, exactly. NaNs become quiet and keep their payload.
func Widen(dst []float32, src []uint16, k Kind) {
	dst = dst[:len(src)]
	switch k {
	case BF16:
		for i, v := range src {
			dst[i] = tensor.BF16ToF32(v)
		}
	case F16:
		for i, v := range src {
			dst[i] = tensor.F16ToF32(v)
		}
	default:
		panic("kernel: Widen of kind " + k.String())
	}
}

// NarrowF16 rounds src to IEEE halves, to nearest with ties to even; NaN stays NaN and overflow becomes infinity.
func NarrowF16(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	for i, v := range src {
		dst[i] = tensor.F32ToF16(v)
	}
}

// NarrowBF16 rounds src to bfloat16, to nearest with ties to even; NaN stays NaN.
func NarrowBF16(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	for i, v := range src {
		dst[i] = tensor.F32ToBF16(v)
	}
}
