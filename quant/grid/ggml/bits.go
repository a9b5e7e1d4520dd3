package ggml

import "encoding/binary"

// Packing of codes into bit fields, eight bytes at a time: a mask keeps each byte's field, so shifts cannot cross bytes.

const (
	everyByte   = 0x0101010101010101
	lowPair     = 3 * everyByte
	lowNibble   = 15 * everyByte
	swarBytes   = 8
	halfColumns = 128 // K types arrange their low bits by halves of a super-block
)

func word(b []uint8, at int) uint64       { return binary.LittleEndian.Uint64(b[at : at+swarBytes]) }
func putWord(b []uint8, at int, v uint64) { binary.LittleEndian.PutUint64(b[at:at+swarBytes], v) }

// packTwoBits stores the low two bits of 256 codes in the order of Q2_K and Q3_K: each byte holds four weights that lie
// 32 apart.
func packTwoBits(dst []byte, c []uint8) {
	for h := range 2 {
		out, in := dst[32*h:32*h+32], c[halfColumns*h:halfColumns*(h+1)]
		for i := 0; i < 32; i += swarBytes {
			putWord(out, i, word(in, i)&lowPair|word(in, i+32)&lowPair<<2|word(in, i+64)&lowPair<<4|word(in, i+96)&lowPair<<6)
		}
	}
}

func unpackTwoBits(c []uint8, src []byte) {
	for h := range 2 {
		in, out := src[32*h:32*h+32], c[halfColumns*h:halfColumns*(h+1)]
		for i := 0; i < 32; i += swarBytes {
			q := word(in, i)
			for k := range 4 {
				putWord(out, i+32*k, q>>(2*k)&lowPair)
			}
		}
	}
}

// packNibbles64 stores the low nibbles of 256 codes, pairs lying 32 apart in groups of 64.
func packNibbles64(dst []byte, c []uint8) {
	for g := range 4 {
		out, in := dst[32*g:32*g+32], c[64*g:64*g+64]
		for i := 0; i < 32; i += swarBytes {
			putWord(out, i, word(in, i)&lowNibble|word(in, i+32)&lowNibble<<4)
		}
	}
}

func unpackNibbles64(c []uint8, src []byte) {
	for g := range 4 {
		in, out := src[32*g:32*g+32], c[64*g:64*g+64]
		for i := 0; i < 32; i += swarBytes {
			q := word(in, i)
			putWord(out, i, q&lowNibble)
			putWord(out, i+32, q>>4&lowNibble)
		}
	}
}

// packNibbles32 stores the low nibbles of 32 codes, pairs lying 16 apart.
func packNibbles32(dst []byte, codes []uint8) {
	dst, codes = dst[:16], codes[:32]
	for i := 0; i < 16; i += swarBytes {
		putWord(dst, i, word(codes, i)&lowNibble|word(codes, i+16)&lowNibble<<4)
	}
}

func unpackNibbles32(codes []uint8, src []byte) {
	src, codes = src[:16], codes[:32]
	for i := 0; i < 16; i += swarBytes {
		q := word(src, i)
		putWord(codes, i, q&lowNibble)
		putWord(codes, i+16, q>>4&lowNibble)
	}
}

// packHighBits stores bit `bit` of 256 codes: weight i goes to bit i/32 of byte i mod 32.
func packHighBits(dst []byte, c []uint8, bit int) {
	dst, c = dst[:32], c[:superBlock]
	for i := 0; i < 32; i += swarBytes {
		var h uint64
		for k := range 8 {
			h |= word(c, 32*k+i) >> bit & everyByte << k
		}
		putWord(dst, i, h)
	}
}

// unpackHighBits ors bit `bit` into 256 codes.
func unpackHighBits(c []uint8, src []byte, bit int) {
	src, c = src[:32], c[:superBlock]
	for i := 0; i < 32; i += swarBytes {
		h := word(src, i)
		for k := range 8 {
			putWord(c, 32*k+i, word(c, 32*k+i)|h>>k&everyByte<<bit)
		}
	}
}
