package ggml

import "encoding/binary"

// IQ3_XXS (98 bytes) and IQ3_S (110): codewords of 4 magnitudes with 8 levels.
//
//	IQ3_XXS  d · qs[64] · eight u32, one per 32 weights: four 7-bit sign codes, scale in bits 28 … 31
//	         weight = ((d·(0.5 + scale))·0.5)·value
//	IQ3_S    d · qs[64] low index bytes · qh[8] ninth index bits · signs[32] · scales[4] (two nibbles, 32 weights each)
//	         weight = (d·(1 + 2·scale))·value

var (
	valuesIQ3XXS = [8]float32{4, 12, 20, 28, 36, 44, 52, 62}
	valuesIQ3S   = [8]float32{1, 3, 5, 7, 9, 11, 13, 15}
)

func encodeIQ3XXS(e *encoder) { specIQ3XXS.encode(e, 98, packIQ3XXS) }

func packIQ3XXS(b []byte, q *iqBlock) {
	putF16(b, q.d)
	for g, word := range q.words {
		b[2+g] = uint8(word)
	}
	for j := range 8 {
		tail := uint32(q.scale[j]) << 28
		for g := range 4 {
			tail |= uint32(q.signs[4*j+g]&127) << (7 * g)
		}
		binary.LittleEndian.PutUint32(b[66+4*j:], tail)
	}
}

func decodeIQ3XXS(dst []float32, src []byte) {
	book := entriesIQ3XXS()
	eachBlock(superBlock, 98, dst, src, func(x []float32, b []byte) {
		d := getF16(b)
		for j := range 8 {
			tail := binary.LittleEndian.Uint32(b[66+4*j:])
			step := float32(d*(0.5+float32(tail>>28))) * 0.5
			for g := range 4 {
				signs := evenSigns(tail >> (7 * g))
				at := 8*j + 2*g
				decodeIQ3(x[4*at:], book[b[2+at]], signs, step, &valuesIQ3XXS)
				decodeIQ3(x[4*at+4:], book[b[3+at]], signs>>4, step, &valuesIQ3XXS)
			}
		}
	})
}

func encodeIQ3S(e *encoder) { specIQ3S.encode(e, 110, packIQ3S) }

func packIQ3S(b []byte, q *iqBlock) {
	putF16(b, q.d)
	clear(b[66:74])
	for g, word := range q.words {
		b[2+g] = uint8(word)
		b[66+g/8] |= uint8(word>>8) << (g % 8)
	}
	copy(b[74:106], q.signs[:])
	packScalePairs(b[106:110], q.scale[:])
}

func decodeIQ3S(dst []float32, src []byte) {
	book := entriesIQ3S()
	eachBlock(superBlock, 110, dst, src, func(x []float32, b []byte) {
		d := getF16(b)
		for g := range 64 {
			step := float32(d * float32(1+2*int(b[106+g/16]>>(4*(g/8%2))&15)))
			index := int(b[2+g]) | int(b[66+g/8]>>(g%8)&1)<<8
			decodeIQ3(x[4*g:], book[index], b[74+g/2]>>(4*(g%2)), step, &valuesIQ3S)
		}
	})
}

func decodeIQ3(x []float32, word uint16, signs uint8, step float32, values *[8]float32) {
	for i := range x[:4] {
		v := float32(step * values[word>>(3*i)&7])
		if signs>>i&1 != 0 {
			v = -v
		}
		x[i] = v
	}
}
