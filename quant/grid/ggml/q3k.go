package ggml

// Q3_K: 110 bytes for 256 weights.
//
//	  0 hmask[32]   third bit of weight i: bit i/32 of byte i mod 32
//	 32 qs[64]      low two bits, as in Q2_K
//	 96 scales[12]  sixteen 6-bit scales: low nibbles in bytes 0 … 7 (j and j+8 share a byte), top bits in 8 … 11
//	108 d           fp16

const sizeQ3K = 110

var scalarQ3K = Scalar{
	Type: "Q3_K", Span: superBlock, Sub: 16, Levels: integers(-4, 3), ScaleMin: -32, ScaleMax: 31, MinMax: 1,
	roundD: roundF16, fit: fitQ3K, pack: packQ3K, unpack: unpackQ3K,
	codes: func(codes []uint8, p *Params, x []float32) { requantSym(codes, p, x, 4) },
	sub:   func(codes []uint8, x, w []float32) (float32, float32) { return searchSym(codes, x, w, 4), 0 },
}

func encodeQ3K(e *encoder)                { encodeScalar(e, &scalarQ3K, sizeQ3K) }
func decodeQ3K(dst []float32, src []byte) { decodeScalar(&scalarQ3K, sizeQ3K, dst, src) }

func fitQ3K(p []Params, codes []uint8, x []float32, im columns) {
	var work kwork
	for b := 0; b < len(p); b += batch {
		n := min(batch, len(p)-b)
		at, end := b*superBlock, (b+n)*superBlock
		if im.none() {
			fitPlainQ3K(&work, p[b:b+n], codes[at:end], x[at:end])
		} else {
			fitWeightedQ3K(&work, p[b:b+n], codes[at:end], x[at:end], im.skip(at))
		}
	}
}

func fitPlainQ3K(work *kwork, p []Params, codes []uint8, x []float32) {
	for j := range len(x) / 16 {
		work.scale[j] = searchSym3(codes[16*j:16*j+16], x[16*j:16*j+16])
	}
	for b := range p {
		p[b] = Params{}
		scales := work.scale[16*b : 16*b+16]
		peak := signedPeak(scales)
		if peak == 0 { // scale bytes of zero, which read as -32
			fillScales(&p[b], -32)
			continue
		}
		inv := -32 / peak
		for j, s := range scales {
			p[b].Scale[j] = int16(rnClamp(float32(inv*s), -32, 31))
		}
		p[b].D = roundF16(1 / inv)
	}
}

func fitWeightedQ3K(work *kwork, p []Params, codes []uint8, x []float32, im columns) {
	for b := range p {
		at := b * superBlock
		block := x[at : at+superBlock]
		importanceWeights(work.w[at:at+superBlock], block, im.of(at, superBlock), 2*sumSquares(block)/superBlock)
	}
	for j := range len(x) / 16 {
		work.sum[j] = sum(work.w[16*j : 16*j+16])
	}
	searchSymAll(codes, x, work.w[:len(x)], 16, 4, work.scale[:])
	var l [16]uint8
	for b := range p {
		p[b] = Params{D: roundF16(searchSym(l[:], work.scale[16*b:16*b+16], work.sum[16*b:16*b+16], 32))}
		for j, c := range l {
			p[b].Scale[j] = int16(c) - 32
		}
	}
}

func fillScales(p *Params, v int16) {
	for j := range p.Scale {
		p.Scale[j] = v
	}
}

func packQ3K(b []byte, p *Params, c []uint8) {
	packHighBits(b[:32], c, 2)
	packTwoBits(b[32:96], c)
	clear(b[104:108])
	for j := range 8 {
		lo, hi := uint8(p.Scale[j]+32), uint8(p.Scale[j+8]+32)
		b[96+j] = lo&15 | hi<<4
		b[104+j%4] |= lo>>4<<(2*(j/4)) | hi>>4<<(2*(j/4)+4)
	}
	putF16(b[108:], p.D)
}

func unpackQ3K(p *Params, c []uint8, b []byte) {
	*p = Params{D: getF16(b[108:])}
	for j := range 8 {
		top := b[104+j%4] >> (2 * (j / 4))
		p.Scale[j] = int16(b[96+j]&15|top&3<<4) - 32
		p.Scale[j+8] = int16(b[96+j]>>4|top>>4&3<<4) - 32
	}
	unpackTwoBits(c, b[32:96])
	unpackHighBits(c, b[:32], 2)
}
