package ggml

import (
	"encoding/binary"
	"math/bits"
)

// IQ2_XXS (66 bytes), IQ2_XS (74) and IQ2_S (82): codewords of 8 magnitudes 1, 3, 5 (times an eighth of 8, 25, 43).
//
//	IQ2_XXS  d · per 32 weights two u32: four 8-bit indices; four 7-bit sign codes and the scale in bits 28 … 31
//	IQ2_XS   d · qs[32] u16 (9-bit index, 7-bit sign code) · scales[8] (two nibbles, 16 weights each)
//	IQ2_S    d · qs[32] low index bytes · signs[32] · qh[8] (two high index bits per codeword) · scales[8]
//
// A weight decodes to ((d·(0.5 + scale))·0.25)·value.

// valuesIQ2 are the magnitudes of the levels, times 8.
var valuesIQ2 = [4]float32{8, 25, 43, 0}

func encodeIQ2XXS(e *encoder) { specIQ2XXS.encode(e, 66, packIQ2XXS) }

func packIQ2XXS(b []byte, q *iqBlock) {
	putF16(b, q.d)
	for j := range 8 {
		var index, signs uint32
		for g := range 4 {
			index |= uint32(q.words[4*j+g]) << (8 * g)
			signs |= uint32(q.signs[4*j+g]&127) << (7 * g)
		}
		binary.LittleEndian.PutUint32(b[2+8*j:], index)
		binary.LittleEndian.PutUint32(b[6+8*j:], signs|uint32(q.scale[j])<<28)
	}
}

func decodeIQ2XXS(dst []float32, src []byte) {
	book := entriesIQ2XXS()
	eachBlock(superBlock, 66, dst, src, func(x []float32, b []byte) {
		d := getF16(b)
		for j := range 8 {
			tail := binary.LittleEndian.Uint32(b[6+8*j:])
			step := scaleIQ2(d, tail>>28)
			for g := range 4 {
				word := book[b[2+8*j+g]]
				decodeIQ2(x[32*j+8*g:], word, evenSigns(tail>>(7*g)), step)
			}
		}
	})
}

func encodeIQ2XS(e *encoder) { specIQ2XS.encode(e, 74, packIQ2XS) }

func packIQ2XS(b []byte, q *iqBlock) {
	putF16(b, q.d)
	for g := range 32 {
		binary.LittleEndian.PutUint16(b[2+2*g:], q.words[g]|uint16(q.signs[g]&127)<<9)
	}
	packScalePairs(b[66:74], q.scale[:])
}

func decodeIQ2XS(dst []float32, src []byte) {
	book := entriesIQ2XS()
	eachBlock(superBlock, 74, dst, src, func(x []float32, b []byte) {
		d := getF16(b)
		for g := range 32 {
			u := binary.LittleEndian.Uint16(b[2+2*g:])
			step := scaleIQ2(d, uint32(b[66+g/4]>>(4*(g/2%2))&15))
			decodeIQ2(x[8*g:], book[u&511], evenSigns(uint32(u>>9)), step)
		}
	})
}

func encodeIQ2S(e *encoder) { specIQ2S.encode(e, 82, packIQ2S) }

func packIQ2S(b []byte, q *iqBlock) {
	putF16(b, q.d)
	clear(b[66:74])
	for g, word := range q.words[:32] {
		b[2+g] = uint8(word)
		b[34+g] = q.signs[g]
		b[66+g/4] |= uint8(word>>8) << (2 * (g % 4))
	}
	packScalePairs(b[74:82], q.scale[:])
}

func decodeIQ2S(dst []float32, src []byte) {
	book := entriesIQ2S()
	eachBlock(superBlock, 82, dst, src, func(x []float32, b []byte) {
		d := getF16(b)
		for g := range 32 {
			index := int(b[2+g]) | int(b[66+g/4]>>(2*(g%4))&3)<<8
			step := scaleIQ2(d, uint32(b[74+g/4]>>(4*(g/2%2))&15))
			decodeIQ2(x[8*g:], book[index], b[34+g], step)
		}
	})
}

func scaleIQ2(d float32, code uint32) float32 { return float32(d*(0.5+float32(code))) * 0.25 }

// evenSigns completes a 7-bit sign code: the eighth bit makes the number of minus signs even.
func evenSigns(code uint32) uint8 {
	s := uint8(code & 127)
	return s | uint8(bits.OnesCount8(s)&1)<<7
}

func decodeIQ2(x []float32, word uint16, signs uint8, step float32) {
	for i := range x[:8] {
		v := float32(step * valuesIQ2[word>>(2*i)&3])
		if signs>>i&1 != 0 {
			v = -v
		}
		x[i] = v
	}
}

// packScalePairs stores sixteen 4-bit scales, even ones in the low nibble.
func packScalePairs(b []byte, scale []uint8) {
	for j := range b {
		b[j] = scale[2*j] | scale[2*j+1]<<4
	}
}
