package ggml

import (
	"encoding/binary"
	"math"

	"github.com/llmquant/quantize/formats/tensor"
)

// roundMagic is 1.5·2^23: adding it leaves the integer part of a small float32 in the low mantissa bits.
const roundMagic = 12582912

// rn rounds to the nearest integer, ties to even. Values beyond ±4194303 wrap as they do in the reference, whose
// searches can reach them with a nearly empty range; every caller clamps the result.
func rn(v float32) int32 {
	return int32(math.Float32bits(float32(v)+roundMagic)&0x7fffff) - 0x400000
}

// rnClamp is rn limited to lo … hi.
func rnClamp(v float32, lo, hi int32) int32 { return min(max(rn(v), lo), hi) }

// truncate drops the fraction as the x86 conversion does: what leaves int32 (infinities, NaN) becomes the most
// negative number, so its low byte is 0.
func truncate(v float32) int32 {
	if !(v > -0x1p31 && v < 0x1p31) {
		return math.MinInt32
	}
	return int32(v)
}

// roundAway rounds to the nearest integer, ties away from zero.
func roundAway(v float32) int32 {
	t := truncate(v)
	if t == math.MinInt32 {
		return t
	}
	switch rest := float32(v) - float32(t); { // exact: both are close
	case rest >= 0.5:
		return t + 1
	case rest <= -0.5:
		return t - 1
	}
	return t
}

func sqrt32(v float32) float32 { return float32(math.Sqrt(float64(v))) }

func abs32(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }

// inverse is 1/d, 0 for 0.
func inverse(d float32) float32 {
	if d == 0 {
		return 0
	}
	return 1 / d
}

func getF16(b []byte) float32     { return tensor.F16ToF32(binary.LittleEndian.Uint16(b)) }
func putF16(b []byte, v float32)  { binary.LittleEndian.PutUint16(b, tensor.F32ToF16(v)) }
func getF16Bits(b uint16) float32 { return tensor.F16ToF32(b) }
func f16Bits(v float32) uint16    { return tensor.F32ToF16(v) }
func roundF16(v float32) float32  { return tensor.F16ToF32(tensor.F32ToF16(v)) }
