package ggml

// Q4_K (144 bytes) and Q5_K (176 bytes), 256 weights each.
//
//	0 d, dmin      fp16
//	4 scales[12]   eight 6-bit scales and minima, see packSixBits
//	Q5_K: 16 qh[32]  fifth bit of weight i: bit i/32 of byte i mod 32
//	  qs[128]      group g of 64 weights: byte 32·g + l holds weights 64·g + l (low nibble) and 64·g + 32 + l

const (
	sizeQ4K = 144
	sizeQ5K = 176
)

var (
	scalarQ4K = kminQ4.scalar("Q4_K", packHeadQ4K, packQ4K, unpackQ4K)
	scalarQ5K = kminQ5.scalar("Q5_K", packHeadQ4K, packQ5K, unpackQ5K)
)

func encodeQ4K(e *encoder)                { encodeScalar(e, &scalarQ4K, sizeQ4K) }
func encodeQ5K(e *encoder)                { encodeScalar(e, &scalarQ5K, sizeQ5K) }
func decodeQ4K(dst []float32, src []byte) { decodeScalar(&scalarQ4K, sizeQ4K, dst, src) }
func decodeQ5K(dst []float32, src []byte) { decodeScalar(&scalarQ5K, sizeQ5K, dst, src) }

func packQ4K(b []byte, p *Params, c []uint8) {
	packHeadQ4K(b, p)
	packNibbles64(b[16:144], c)
}

func unpackQ4K(p *Params, c []uint8, b []byte) {
	unpackHeadQ4K(p, b)
	unpackNibbles64(c, b[16:144])
}

func packQ5K(b []byte, p *Params, c []uint8) {
	packHeadQ4K(b, p)
	packHighBits(b[16:48], c, 4)
	packNibbles64(b[48:176], c)
}

func unpackQ5K(p *Params, c []uint8, b []byte) {
	unpackHeadQ4K(p, b)
	unpackNibbles64(c, b[48:176])
	unpackHighBits(c, b[16:48], 4)
}

func packHeadQ4K(b []byte, p *Params) {
	putF16(b, p.D)
	putF16(b[2:], p.DMin)
	packSixBits(b[4:16], p)
}

func unpackHeadQ4K(p *Params, b []byte) {
	*p = Params{D: getF16(b), DMin: getF16(b[2:])}
	unpackSixBits(p, b[4:16])
}

// packSixBits stores eight 6-bit scales and minima in 12 bytes: entries 0 … 3 fill the low six bits of bytes 0 … 3
// (scales) and 4 … 7 (minima); entries 4 … 7 put their low nibbles into bytes 8 … 11 and their top two bits on top of
// bytes 0 … 7.
func packSixBits(b []byte, p *Params) {
	for j := range 4 {
		sc, mn := uint8(p.Scale[j+4]), uint8(p.Min[j+4])
		b[j] = uint8(p.Scale[j]) | sc>>4<<6
		b[j+4] = uint8(p.Min[j]) | mn>>4<<6
		b[j+8] = sc&15 | mn<<4
	}
}

func unpackSixBits(p *Params, b []byte) {
	for j := range 4 {
		p.Scale[j] = int16(b[j] & 63)
		p.Min[j] = int16(b[j+4] & 63)
		p.Scale[j+4] = int16(b[j+8]&15 | b[j]>>6<<4)
		p.Min[j+4] = int16(b[j+8]>>4 | b[j+4]>>6<<4)
	}
}
