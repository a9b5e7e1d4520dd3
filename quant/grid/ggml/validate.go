package ggml

import (
	"encoding/binary"
	"fmt"
)

// Validate checks encoded data as a loader does: whole blocks, and no scale, minimum or plain number that is NaN or
// infinite. Every other bit pattern is a legal block.
func (t *Type) Validate(src []byte) error {
	if len(src)%t.Bytes != 0 {
		return fmt.Errorf("ggml: %d bytes are not whole blocks of %s (%d bytes each)", len(src), t.Name, t.Bytes)
	}
	if i := t.check(src, t.Bytes); i >= 0 {
		var x [superBlock]float32
		t.decode(x[:t.Elems], src[i*t.Bytes:(i+1)*t.Bytes])
		return &NonFiniteError{What: t.Name + " block", Index: i, Value: x[0]}
	}
	return nil
}

func noScales([]byte, int) int { return -1 }

// f16Scales checks the halves at the given offsets of each block: the exponent must not be all ones.
func f16Scales(offsets ...int) func([]byte, int) int {
	return func(src []byte, size int) int {
		bad := -1
		for _, o := range offsets {
			if i := badHalf(src[min(o, len(src)):], size); i >= 0 && (bad < 0 || i < bad) {
				bad = i
			}
		}
		return bad
	}
}

// badHalf returns the first block whose half is no number; src begins with that of the first.
func badHalf(src []byte, size int) int {
	for at := 0; at+2 <= len(src); at += size {
		if binary.LittleEndian.Uint16(src[at:])&0x7c00 == 0x7c00 {
			return at / size
		}
	}
	return -1
}

// firstBlock returns the first block for which bad is true.
func firstBlock(src []byte, size int, bad func(b []byte) bool) int {
	for at := 0; at < len(src); at += size {
		if bad(src[at : at+size]) {
			return at / size
		}
	}
	return -1
}

func f32Scale(src []byte, size int) int {
	return firstBlock(src, size, func(b []byte) bool { return binary.LittleEndian.Uint32(b)&0x7f800000 == 0x7f800000 })
}

func f64Numbers(src []byte, size int) int {
	return firstBlock(src, size, func(b []byte) bool { return binary.LittleEndian.Uint64(b)>>52&0x7ff == 0x7ff })
}

func bf16Numbers(src []byte, size int) int {
	return firstBlock(src, size, func(b []byte) bool { return binary.LittleEndian.Uint16(b)&0x7f80 == 0x7f80 })
}

// mxfp4Scales rejects the one exponent byte that means NaN.
func mxfp4Scales(src []byte, size int) int {
	return firstBlock(src, size, func(b []byte) bool { return b[0] == 0xff })
}

func iq1mScales(src []byte, size int) int {
	return firstBlock(src, size, func(b []byte) bool { return scaleIQ1M(b)&0x7c00 == 0x7c00 })
}
