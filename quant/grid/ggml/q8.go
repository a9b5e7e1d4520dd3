package ggml

import (
	"encoding/binary"
	"math"
)

// Eight bits.
//
//	Q8_0 (34)  d fp16 · qs[32] int8
//	Q8_1 (36)  d fp16 · d·Σq fp16 · qs[32] int8         activations at run time
//	Q8_K (292) d f32 · qs[256] int8 · sums of 16 int16  activations at run time

const sizeQ80 = 34

var scalarQ80 = newScalar(Scalar{
	Type: "Q8_0", Span: 32, Sub: 32, Levels: integers(-128, 127), fit: fitQ80, pack: packQ80, unpack: unpackQ80, codes: codesQ80,
	weights: func(w, x, im []float32) { weightsOr1(w, im) }, search: subSearch{levels: 128},
})

// weightsOr1 is the importance, 1 without.
func weightsOr1(w, im []float32) {
	copy(w, im)
	if im == nil {
		for i := range w {
			w[i] = 1
		}
	}
}

func encodeQ80(e *encoder) {
	if e.coder.k != nil && len(e.x) > 0 {
		e.coder.k.block.q80(&e.dst[0], &e.x[0], len(e.x)/32)
		return
	}
	e.blocks(32, sizeQ80, func(b []byte, x, _ []float32) {
		_, amax := extreme(x)
		d := amax / 127
		inv := inverse(d)
		putF16(b, d)
		q := b[2:34]
		for i, v := range x {
			q[i] = uint8(roundAway(float32(v * inv)))
		}
	})
}

func decodeQ80(dst []float32, src []byte) {
	eachBlock(32, sizeQ80, dst, src, func(x []float32, b []byte) { decodeBytes(x, getF16(b), b[2:34]) })
}

func decodeQ81(dst []float32, src []byte) {
	eachBlock(32, 36, dst, src, func(x []float32, b []byte) { decodeBytes(x, getF16(b), b[4:36]) })
}

func decodeQ8K(dst []float32, src []byte) {
	eachBlock(superBlock, 292, dst, src, func(x []float32, b []byte) {
		decodeBytes(x, math.Float32frombits(binary.LittleEndian.Uint32(b)), b[4:4+superBlock])
	})
}

func decodeBytes(x []float32, d float32, q []byte) {
	q = q[:len(x)]
	for i := range x {
		x[i] = d * float32(int8(q[i]))
	}
}

func fitQ80(_ *coder, p []Params, codes []uint8, x []float32, _ columns) {
	for b := range p {
		block := x[32*b : 32*b+32]
		_, amax := extreme(block)
		p[b] = Params{D: roundF16(amax / 127)}
		p[b].Scale[0] = 1
		codesQ80(codes[32*b:32*b+32], &p[b], block)
	}
}

// codesQ80 rounds with the stored scale (the encoder uses the one before rounding to fp16).
func codesQ80(codes []uint8, p *Params, x []float32) {
	inv := inverse(p.D)
	for i, v := range x {
		codes[i] = uint8(min(max(roundAway(float32(v*inv)), -128), 127) + 128)
	}
}

func packQ80(b []byte, p *Params, codes []uint8) {
	putF16(b, p.D)
	for i, c := range codes[:32] {
		b[2+i] = c - 128
	}
}

func unpackQ80(p *Params, codes []uint8, b []byte) {
	*p = Params{D: getF16(b)}
	p.Scale[0] = 1
	for i, q := range b[2:34] {
		codes[i] = q + 128
	}
}
