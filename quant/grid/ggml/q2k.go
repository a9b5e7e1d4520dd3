package ggml

// Q2_K: 84 bytes for 256 weights.
//
//	 0 scales[16]  low nibble scale, high nibble minimum of 16 weights
//	16 qs[64]      weight i: byte 32·(i/128) + i mod 32, bits 2·(i/32 mod 4)
//	80 d, dmin     fp16

const sizeQ2K = 84

var scalarQ2K = kminQ2.scalar("Q2_K", headQ2K, packQ2K, unpackQ2K)

func encodeQ2K(e *encoder)                { encodeScalar(e, &scalarQ2K, sizeQ2K) }
func decodeQ2K(dst []float32, src []byte) { decodeScalar(&scalarQ2K, sizeQ2K, dst, src) }

func packQ2K(b []byte, p *Params, c []uint8) {
	headQ2K(b, p)
	packTwoBits(b[16:80], c)
}

func headQ2K(b []byte, p *Params) {
	for j := range 16 {
		b[j] = uint8(p.Scale[j]) | uint8(p.Min[j])<<4
	}
	putF16(b[80:], p.D)
	putF16(b[82:], p.DMin)
}

func unpackQ2K(p *Params, c []uint8, b []byte) {
	*p = Params{D: getF16(b[80:]), DMin: getF16(b[82:])}
	for j := range 16 {
		p.Scale[j], p.Min[j] = int16(b[j]&15), int16(b[j]>>4)
	}
	unpackTwoBits(c, b[16:80])
}
