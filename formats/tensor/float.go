package tensor

import (
	"encoding/binary"
	"fmt"
	"math"
)

// F16ToF32 widens an IEEE half, exactly; NaN payloads keep their upper bits as VCVTPH2PS does.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	man := uint32(h & 0x3ff)
	switch {
	case exp == 0x1f && man != 0: // NaN: make it quiet
		return math.Float32frombits(sign | 0x7fc00000 | man<<13)
	case exp == 0x1f:
		return math.Float32frombits(sign | 0x7f800000)
	case exp == 0: // zero or subnormal: man·2^-24 is exact in float32
		return math.Float32frombits(sign | math.Float32bits(float32(man)*0x1p-24))
	}
	return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
}

// F32ToF16 rounds to the nearest half, ties to even; overflow becomes Inf, NaN stays NaN (as VCVTPS2PH).
func F32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00 | uint16(b>>13)&0x3ff
	case b >= 0x477ff000: // 65520 and up rounds to infinity
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14: adding 0.5 aligns the mantissa at 2^-24 and rounds to even
		aligned := math.Float32frombits(b) + 0.5
		return sign | uint16(math.Float32bits(aligned)-0x3f000000)
	}
	b += 0xc8000fff + (b>>13)&1 // rebias the exponent by -112 and round to even
	return sign | uint16(b>>13)
}

// BF16ToF32 widens a bfloat16, exactly.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F32ToBF16 rounds to the nearest bfloat16, ties to even; NaN stays NaN.
func F32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + (b>>16)&1) >> 16)
}

// F8E4M3ToF32 widens an E4M3FN byte (bias 7, no infinities, NaN 0x7f and 0xff, largest 448).
func F8E4M3ToF32(b uint8) float32 {
	if b&0x7f == 0x7f {
		return float32(math.NaN())
	}
	return f8ToF32(b, 3, 7)
}

// F8E5M2ToF32 widens an E5M2 byte, the upper half of an IEEE half.
func F8E5M2ToF32(b uint8) float32 { return F16ToF32(uint16(b) << 8) }

// F8E8M0ToF32 widens an E8M0 scale: 2^(b-127), NaN for 255.
func F8E8M0ToF32(b uint8) float32 {
	if b == 255 {
		return float32(math.NaN())
	}
	return float32(math.Ldexp(1, int(b)-127))
}

func f8ToF32(b uint8, manBits, bias int) float32 {
	exp := int(b&0x7f) >> manBits
	man := int(b) & (1<<manBits - 1)
	if exp == 0 {
		exp = 1
	} else {
		man |= 1 << manBits
	}
	v := float32(math.Ldexp(float64(man), exp-bias-manBits))
	if b&0x80 != 0 {
		return -v
	}
	return v
}

// F32ToF8E4M3 rounds to the nearest E4M3FN value, ties to even, saturating at ±448; NaN becomes 0x7f with the sign.
func F32ToF8E4M3(f float32) uint8 {
	b := math.Float32bits(f)
	sign := uint8(b>>24) & 0x80
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7f
	case b >= 0x43e00000: // 448 and up saturates, infinity included
		return sign | 0x7e
	case b < 0x3c800000: // below 2^-6: multiples of 2^-9
		return sign | uint8(math.RoundToEven(float64(math.Float32frombits(b))*512))
	}
	b += 0x7ffff + (b>>20)&1
	return sign | uint8((b>>20)-(127-7)<<3)
}

// ToFloat32 widens len(dst) elements of type d from src (little-endian). F64 is rounded to nearest.
func ToFloat32(dst []float32, d DType, src []byte) error {
	if int64(len(src)) != int64(len(dst))*d.Size() || !d.IsFloat() {
		return fmt.Errorf("tensor: cannot read %d float32 from %d bytes of %s", len(dst), len(src), d)
	}
	switch d {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case F64:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
		}
	case F16:
		widenF16(dst, src)
	case BF16:
		widenBF16(dst, src)
	default:
		table := f8Table(d)
		for i := range dst {
			dst[i] = table[src[i]]
		}
	}
	return nil
}

// widenBF16 reads four elements at a time.
func widenBF16(dst []float32, src []byte) {
	for len(dst) >= 4 {
		u, x := binary.LittleEndian.Uint64(src), dst[:4:4]
		x[0] = math.Float32frombits(uint32(u) << 16)
		x[1] = math.Float32frombits(uint32(u) & 0xffff0000)
		x[2] = math.Float32frombits(uint32(u>>32) << 16)
		x[3] = math.Float32frombits(uint32(u>>32) & 0xffff0000)
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = BF16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// widenF16 shifts exponent and mantissa into place and corrects the exponent's bias by a product, which is exact for
// subnormals too. Infinities and NaN take the long way.
func widenF16(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for i := range dst {
		h := uint32(binary.LittleEndian.Uint16(src[2*i:]))
		if h&0x7c00 == 0x7c00 {
			dst[i] = F16ToF32(uint16(h))
			continue
		}
		size := math.Float32frombits(h&0x7fff<<13) * 0x1p112
		dst[i] = math.Float32frombits(math.Float32bits(size) | h&0x8000<<16)
	}
}

func f8Table(d DType) *[256]float32 {
	widen := F8E4M3ToF32
	switch d {
	case F8E5M2:
		widen = F8E5M2ToF32
	case F8E8M0:
		widen = F8E8M0ToF32
	}
	var t [256]float32
	for i := range t {
		t[i] = widen(uint8(i))
	}
	return &t
}

// narrowF16 is F32ToF16 with the way that nearly all values take inside the loop.
func narrowF16(dst []byte, src []float32) {
	dst = dst[:2*len(src)]
	for i, v := range src {
		b := math.Float32bits(v)
		size := b & 0x7fffffff
		if size-0x38800000 >= 0x477ff000-0x38800000 { // subnormal, overflow, NaN
			binary.LittleEndian.PutUint16(dst[2*i:], F32ToF16(v))
			continue
		}
		size += 0xc8000fff + (size>>13)&1
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(size>>13|b>>16&0x8000))
	}
}

// FromFloat32 rounds src to type d (F64, F32, F16, BF16 or F8_E4M3; nearest, ties to even) into dst, little-endian.
func FromFloat32(dst []byte, d DType, src []float32) error {
	if int64(len(dst)) != int64(len(src))*d.Size() {
		return fmt.Errorf("tensor: cannot write %d float32 to %d bytes of %s", len(src), len(dst), d)
	}
	switch d {
	case F64:
		for i, v := range src {
			binary.LittleEndian.PutUint64(dst[8*i:], math.Float64bits(float64(v)))
		}
	case F32:
		for i, v := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
	case F16:
		narrowF16(dst, src)
	case BF16:
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], F32ToBF16(v))
		}
	case F8E4M3:
		for i, v := range src {
			dst[i] = F32ToF8E4M3(v)
		}
	default:
		return fmt.Errorf("tensor: cannot round float32 to %s", d)
	}
	return nil
}
