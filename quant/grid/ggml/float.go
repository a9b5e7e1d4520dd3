package ggml

import (
	"encoding/binary"
	"math"

	"github.com/llmquant/quantize/formats/tensor"
)

// Plain numbers: blocks of one element.

func decodeF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func decodeF16(dst []float32, src []byte) {
	done := 0
	if k := active(); k != nil && len(dst) >= run {
		done = len(dst) / run * run
		k.block.fromF16(&dst[0], &src[0], done/run)
	}
	for i := done; i < len(dst); i++ {
		dst[i] = tensor.F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func decodeBF16(dst []float32, src []byte) {
	done := 0
	if k := active(); k != nil && len(dst) >= run {
		done = len(dst) / run * run
		k.block.fromBF16(&dst[0], &src[0], done/run)
	}
	for i := done; i < len(dst); i++ {
		dst[i] = tensor.BF16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func decodeF64(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
	}
}

func decodeI8(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(int8(src[i]))
	}
}

func decodeI16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(int16(binary.LittleEndian.Uint16(src[2*i:])))
	}
}

func decodeI32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(int32(binary.LittleEndian.Uint32(src[4*i:])))
	}
}

func decodeI64(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(int64(binary.LittleEndian.Uint64(src[8*i:])))
	}
}

func encodeF32(e *encoder) {
	for i, v := range e.x {
		binary.LittleEndian.PutUint32(e.dst[4*i:], math.Float32bits(v))
	}
}

func encodeF16(e *encoder) {
	done := 0
	if e.coder.k != nil && len(e.x) >= run {
		done = len(e.x) / run * run
		e.coder.k.block.toF16(&e.dst[0], &e.x[0], done/run)
	}
	for i := done; i < len(e.x); i++ {
		binary.LittleEndian.PutUint16(e.dst[2*i:], tensor.F32ToF16(e.x[i]))
	}
}

func encodeBF16(e *encoder) {
	done := 0
	if e.coder.k != nil && len(e.x) >= run {
		done = len(e.x) / run * run
		e.coder.k.block.toBF16(&e.dst[0], &e.x[0], done/run)
	}
	for i := done; i < len(e.x); i++ {
		binary.LittleEndian.PutUint16(e.dst[2*i:], tensor.F32ToBF16(e.x[i]))
	}
}
