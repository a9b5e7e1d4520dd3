package packing

import "encoding/binary"

// strided addresses every step-th int32 word of data, beginning with word first.
type strided struct {
	data        []byte
	first, step int
}

func (s strided) at(i int) int { return 4 * (s.first + i*s.step) }

// streamWords is the number of int32 words of a stream of n codes: ceil(n·bits/32).
func streamWords(n, bits int) int { return int((int64(n)*int64(bits) + 31) / 32) }

// putStream writes code(0 … n-1) as a stream. For 2, 4 and 8 bits that is the natural field order of a word; for
// 3 bits a code straddles words, 32 codes in 3 words, which is what GPTQ and compressed-tensors both store.
func putStream(dst strided, n, bits int, code func(i int) uint8) {
	var acc uint64
	fill, word := 0, 0
	for i := range n {
		acc |= uint64(code(i)) << fill
		if fill += bits; fill >= 32 {
			binary.LittleEndian.PutUint32(dst.data[dst.at(word):], uint32(acc))
			acc >>= 32
			fill -= 32
			word++
		}
	}
	if fill > 0 {
		binary.LittleEndian.PutUint32(dst.data[dst.at(word):], uint32(acc))
	}
}

// getStream reads n codes of a stream.
func getStream(src strided, n, bits int, set func(i int, code uint8)) {
	var acc uint64
	fill, word := 0, 0
	mask := uint64(1)<<bits - 1
	for i := range n {
		if fill < bits {
			acc |= uint64(binary.LittleEndian.Uint32(src.data[src.at(word):])) << fill
			fill += 32
			word++
		}
		set(i, uint8(acc&mask))
		acc >>= bits
		fill -= bits
	}
}

// codeTile is the number of columns handled together where a layout transposes: the lines of the transposed side
// that a tile touches stay in the first-level cache.
const codeTile = 256
