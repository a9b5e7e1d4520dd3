package ggml

import (
	"encoding/binary"
	"sync"
)

// The codebook types for decoding with kernels: eight weights at a time, as the signed bytes of a word.

// wordsOf returns the codewords as words of `elems` bytes, the values of their levels.
func wordsOf(entries []uint16, elems, bits int, values []float32, unit float32) []uint64 {
	words := make([]uint64, len(entries))
	for i, e := range entries {
		for j := range elems {
			v := int8(values[e>>(bits*j)&(1<<bits-1)] / unit)
			words[i] |= uint64(uint8(v)) << (8 * j)
		}
	}
	return words
}

var (
	wordsIQ2XXS = sync.OnceValue(func() *[256]uint64 { return (*[256]uint64)(wordsOf(entriesIQ2XXS(), 8, 2, valuesIQ2[:], 1)) })
	wordsIQ2XS  = sync.OnceValue(func() *[512]uint64 { return (*[512]uint64)(wordsOf(entriesIQ2XS(), 8, 2, valuesIQ2[:], 1)) })
	wordsIQ2S   = sync.OnceValue(func() *[1024]uint64 { return (*[1024]uint64)(wordsOf(entriesIQ2S(), 8, 2, valuesIQ2[:], 1)) })
	wordsIQ3XXS = sync.OnceValue(func() *[256]uint64 { return (*[256]uint64)(wordsOf(entriesIQ3XXS(), 4, 3, valuesIQ3XXS[:], 1)) })
	wordsIQ3S   = sync.OnceValue(func() *[512]uint64 { return (*[512]uint64)(wordsOf(entriesIQ3S(), 4, 3, valuesIQ3S[:], 1)) })
	// wordsIQ1 counts eighths, first of the levels shifted up, then of those shifted down.
	wordsIQ1 = sync.OnceValue(func() *[4096]uint64 {
		up := wordsOf(entriesIQ1(), 8, 2, []float32{-1 + shiftIQ1, shiftIQ1, 1 + shiftIQ1, 0}, shiftIQ1)
		down := wordsOf(entriesIQ1(), 8, 2, []float32{-1 - shiftIQ1, -shiftIQ1, 1 - shiftIQ1, 0}, shiftIQ1)
		return (*[4096]uint64)(append(up, down...))
	})
	// minusBytes has a byte of ones for every sign bit.
	minusBytes = sync.OnceValue(func() *[256]uint64 {
		var all [256]uint64
		for s := range all {
			for i := range 8 {
				all[s] |= uint64(s) >> i & 1 * 0xff << (8 * i)
			}
		}
		return &all
	})
	// evenMinusBytes is minusBytes of evenSigns.
	evenMinusBytes = sync.OnceValue(func() *[128]uint64 {
		var all [128]uint64
		for s := range all {
			all[s] = minusBytes()[evenSigns(uint32(s))]
		}
		return &all
	})
)

// putSigned stores eight magnitudes, none of them 0, negative where minus has ones.
func (u *unpacked) putSigned(i int, magnitudes, minus uint64) {
	putWord(u.codes[:], i, (magnitudes^minus)+minus&everyByte)
}

func unpackIQ2XXS(u *unpacked, b []byte) {
	book, minus := wordsIQ2XXS(), evenMinusBytes()
	d := getF16(b)
	for j := range 8 {
		index, tail := b[2+8*j:6+8*j], binary.LittleEndian.Uint32(b[6+8*j:])
		u.steps[2*j] = scaleIQ2(d, tail>>28)
		u.steps[2*j+1] = u.steps[2*j]
		for g, word := range index {
			u.putSigned(32*j+8*g, book[word], minus[tail>>(7*g)&127])
		}
	}
}

func unpackIQ2XS(u *unpacked, b []byte) {
	book, minus := wordsIQ2XS(), evenMinusBytes()
	u.stepsIQ2(getF16(b), b[66:74])
	for g := range 32 {
		q := binary.LittleEndian.Uint16(b[2+2*g:])
		u.putSigned(8*g, book[q&511], minus[q>>9])
	}
}

func unpackIQ2S(u *unpacked, b []byte) {
	book, minus := wordsIQ2S(), minusBytes()
	u.stepsIQ2(getF16(b), b[74:82])
	low, signs := b[2:34], b[34:66]
	for g := range low {
		u.putSigned(8*g, book[uint(low[g])|uint(b[66+g/4])>>(2*(g%4))&3<<8], minus[signs[g]])
	}
}

// stepsIQ2 reads two scales per byte.
func (u *unpacked) stepsIQ2(d float32, scales []byte) {
	for j, s := range scales[:8] {
		u.steps[2*j], u.steps[2*j+1] = scaleIQ2(d, uint32(s&15)), scaleIQ2(d, uint32(s>>4))
	}
}

func unpackIQ3XXS(u *unpacked, b []byte) {
	book, minus := wordsIQ3XXS(), evenMinusBytes()
	d := getF16(b)
	for j := range 8 {
		index, tail := b[2+8*j:10+8*j], binary.LittleEndian.Uint32(b[66+4*j:])
		u.steps[2*j] = float32(d*(0.5+float32(tail>>28))) * 0.5
		u.steps[2*j+1] = u.steps[2*j]
		for g := range 4 {
			u.putSigned(32*j+8*g, book[index[2*g]]|book[index[2*g+1]]<<32, minus[tail>>(7*g)&127])
		}
	}
}

func unpackIQ3S(u *unpacked, b []byte) {
	book, minus := wordsIQ3S(), minusBytes()
	d := getF16(b)
	for j := range 8 {
		step := float32(d * float32(1+2*int(b[106+j/2]>>(4*(j%2))&15)))
		u.steps[2*j], u.steps[2*j+1] = step, step
		index, signs, high := b[2+8*j:10+8*j], b[74+4*j:78+4*j], uint(b[66+j])
		for g, s := range signs {
			first, second := uint(index[2*g])|high>>(2*g)&1<<8, uint(index[2*g+1])|high>>(2*g+1)&1<<8
			u.putSigned(32*j+8*g, book[first]|book[second]<<32, minus[s])
		}
	}
}

// unpackIQ1S divides the step by eight, which is exact.
func unpackIQ1S(u *unpacked, b []byte) {
	book := wordsIQ1()
	d := getF16(b)
	for j := range 8 {
		h := uint(binary.LittleEndian.Uint16(b[34+2*j:]))
		step := float32(d*float32(2*int(h>>12&7)+1)) * shiftIQ1
		u.steps[2*j], u.steps[2*j+1] = step, step
		for g, low := range b[2+4*j : 6+4*j] {
			putWord(u.codes[:], 32*j+8*g, book[uint(low)|h>>(3*g)&7<<8|h>>15<<11])
		}
	}
}

func unpackIQ1M(u *unpacked, b []byte) {
	book := wordsIQ1()
	d := getF16Bits(scaleIQ1M(b))
	for j := range u.steps {
		scales := binary.LittleEndian.Uint16(b[48+2*(j/4):])
		u.steps[j] = float32(d*float32(2*int(scales>>(3*(j%4))&7)+1)) * shiftIQ1
		h := uint(b[32+j]) // per codeword three index bits and the sign of the shift: as wordsIQ1 orders them
		putWord(u.codes[:], 16*j, book[uint(b[2*j])|h&15<<8])
		putWord(u.codes[:], 16*j+8, book[uint(b[2*j+1])|h>>4<<8])
	}
}

// unpackTQ10 takes the digits of four bytes at once: a byte is a fraction of 1, its leading digit the integer part of three
// times it.
func unpackTQ10(u *unpacked, b []byte) {
	const fractions = 0x00ff00ff00ff00ff
	for _, r := range runsTQ10 {
		for m := 0; m < r.bytes; m += 4 {
			t := uint64(binary.LittleEndian.Uint32(b[r.at+m:]))
			t = (t | t<<16) & 0x0000ffff0000ffff
			t = (t | t<<8) & fractions
			for n := range r.digits {
				t *= 3
				q := t >> 8 & fractions
				t &= fractions
				q = (q | q>>8) & 0x0000ffff0000ffff
				// 0, 1, 2 become -1, 0, 1: no carry leaves a byte
				digits := uint32(q|q>>16) | 0x80808080
				binary.LittleEndian.PutUint32(u.codes[r.first+m+n*r.bytes:], (digits-0x01010101)^0x80808080)
			}
		}
	}
	d := getF16(b[52:])
	for j := range u.steps {
		u.steps[j] = d
	}
}
