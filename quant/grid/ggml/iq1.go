package ggml

import "encoding/binary"

// IQ1_S (50 bytes) and IQ1_M (56): codewords of 8 from {-1, 0, 1}, all shifted by +1/8 or -1/8.
//
//	IQ1_S  d · qs[32] low index bytes · qh[8] u16, one per 32 weights: three high index bits per codeword, 3-bit scale in
//	       bits 12 … 14, bit 15 set: shift -1/8
//	IQ1_M  qs[32] · qh[16], one per 16 weights: per codeword three high index bits and the sign of its shift (set: -)
//	       · scales[4] u16: four 3-bit scales each; their top nibbles are d, fp16
//
// A weight decodes to (d·(2·scale + 1))·(level + shift).

const (
	zeroWordIQ1 = 0x5555 // the codeword of eight zeros
	shiftIQ1    = 0.125
)

func decodeIQ1S(dst []float32, src []byte) {
	book := entriesIQ1()
	eachBlock(superBlock, 50, dst, src, func(x []float32, b []byte) {
		d := getF16(b)
		for j := range 8 {
			h := binary.LittleEndian.Uint16(b[34+2*j:])
			step := float32(d * float32(2*int(h>>12&7)+1))
			for g := range 4 {
				index := int(b[2+4*j+g]) | int(h>>(3*g)&7)<<8
				decodeIQ1(x[32*j+8*g:], book[index], step, h>>15 != 0)
			}
		}
	})
}

func decodeIQ1M(dst []float32, src []byte) {
	book := entriesIQ1()
	eachBlock(superBlock, 56, dst, src, func(x []float32, b []byte) {
		d := getF16Bits(scaleIQ1M(b))
		for g := range 32 {
			sc := binary.LittleEndian.Uint16(b[48+2*(g/8):])
			h := b[32+g/2] >> (4 * (g % 2))
			step := float32(d * float32(2*int(sc>>(3*(g/2%4))&7)+1))
			decodeIQ1(x[8*g:], book[int(b[g])|int(h&7)<<8], step, h&8 != 0)
		}
	})
}

func decodeIQ1(x []float32, word uint16, step float32, minus bool) {
	shift := float32(shiftIQ1)
	if minus {
		shift = -shift
	}
	for i := range x[:8] {
		x[i] = step * (float32(int(word>>(2*i)&3)-1) + shift)
	}
}

// scaleIQ1M gathers the fp16 bits of d from the top nibbles of the four scale words.
func scaleIQ1M(b []byte) uint16 {
	var d uint16
	for j := range 4 {
		d |= binary.LittleEndian.Uint16(b[48+2*j:]) >> 12 << (4 * j)
	}
	return d
}

// The largest magnitude below which a sub-block counts as zero.
const (
	zeroIQ1S = 1e-12
	zeroIQ1M = 1e-7
)

// iq1Values are what levels 0, 1, 2 stand for under a shift of +1/8 and -1/8.
var iq1Values = [2][3]float32{{-0.875, 0.125, 1.125}, {-1.125, -0.125, 0.875}}

// order sorts the positions of x by value, equal ones by position. Sub-blocks are short: insertion sort.
func order(idx []uint8, x []float32) {
	for i := range x {
		j := i
		for ; j > 0 && x[idx[j-1]] > x[i]; j-- {
			idx[j] = idx[j-1]
		}
		idx[j] = uint8(i)
	}
}

// iq1Group moves eight levels to a codeword: itself, or the neighbour of least weighted squared error at the given
// scale with the given values of the levels.
func iq1Group(grid *codebook, levels []uint8, x, w []float32, scale float32, values *[3]float32) (word uint16, onGrid bool) {
	for i, l := range levels[:8] {
		word |= uint16(l) << (2 * i)
	}
	near := grid.candidates(word)
	if near == nil {
		return word, true
	}
	var cost [8][8]float32
	for i := range 8 {
		for l, q := range values {
			diff := float32(scale*q) - x[i]
			cost[i][l] = float32(float32(w[i]*diff) * diff)
		}
	}
	word = grid.nearest(near, &cost)
	for i := range levels[:8] {
		levels[i] = uint8(word >> (2 * i) & 3)
	}
	return word, false
}

// cutLevels gives the sorted elements before first level 0, those before second level 1, the rest level 2.
func cutLevels(levels, order []uint8, first, second int) {
	for j, i := range order {
		switch {
		case j < first:
			levels[i] = 0
		case j < second:
			levels[i] = 1
		default:
			levels[i] = 2
		}
	}
}

// refitIQ1 returns the least-squares scale for the values that stand for the levels, or the old one.
func refitIQ1(scale float32, levels []uint8, x, w []float32, values func(i int) *[3]float32) float32 {
	var a, b float32
	for i, v := range x {
		q := values(i)[levels[i]]
		wq := float32(w[i] * q)
		a += float32(wq * v)
		b += float32(wq * q)
	}
	if a > 0 && b > 0 {
		return a / b
	}
	return scale
}

func reverseLevels(levels []uint8) {
	for i, l := range levels {
		levels[i] = 2 - l
	}
}
