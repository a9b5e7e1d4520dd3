package ggml

import "math"

// Q3_K: 110 bytes for 256 weights.
//
//	  0 hmask[32]   third bit of weight i: bit i/32 of byte i mod 32
//	 32 qs[64]      low two bits, as in Q2_K
//	 96 scales[12]  sixteen 6-bit scales: low nibbles in bytes 0 … 7 (j and j+8 share a byte), top bits in 8 … 11
//	108 d           fp16

const sizeQ3K = 110

var scalarQ3K = newScalar(Scalar{
	Type: "Q3_K", Span: superBlock, Sub: 16, Levels: integers(-4, 3), ScaleMin: -32, ScaleMax: 31,
	fit: fitQ3K, weights: weightsQ3K, search: subSearch{levels: 4}, head: headQ3K, pack: packQ3K, unpack: unpackQ3K,
	codes: func(codes []uint8, p *Params, x []float32) { requantSym(codes, p, x, 4) },
})

func encodeQ3K(e *encoder)                { encodeScalar(e, &scalarQ3K, sizeQ3K) }
func decodeQ3K(dst []float32, src []byte) { decodeScalar(&scalarQ3K, sizeQ3K, dst, src) }

func fitQ3K(c *coder, p []Params, codes []uint8, x []float32, im columns) {
	step := fitBatchQ3K
	if c.k != nil {
		step = fitPlanesQ3K
	}
	eachBatch(p, codes, x, im, func(p []Params, codes []uint8, x []float32, im columns) { step(c, p, codes, x, im) })
}

// weightsQ3K fills the weights of one super-block.
func weightsQ3K(w, x, im []float32) {
	if im == nil {
		squares(w, x)
		return
	}
	importanceWeights(w, x, im, float32(2*sumSquares(x)/superBlock))
}

// fitBatchQ3K is the portable fit.
func fitBatchQ3K(c *coder, p []Params, codes []uint8, x []float32, im columns) {
	work := c.work()
	if im.none() {
		for j := range len(x) / 16 {
			work.scale[j] = searchSym3(codes[16*j:16*j+16], x[16*j:16*j+16])
		}
	} else {
		for i := 0; i < len(x); i += superBlock {
			weightsQ3K(work.w[i:i+superBlock], x[i:i+superBlock], im.of(i, superBlock))
		}
		for j := range len(x) / 16 {
			w := work.w[16*j : 16*j+16]
			work.scale[j] = searchSym(codes[16*j:16*j+16], x[16*j:16*j+16], w, 4)
			work.sum[j] = sum(w)
		}
	}
	for b := range p {
		scales := work.scale[16*b : 16*b+16]
		if im.none() {
			plainScalesQ3K(&p[b], scales)
		} else {
			var l [16]uint8
			d := searchSym(l[:], scales, work.sum[16*b:16*b+16], 32)
			fittedScalesQ3K(&p[b], d, &l)
		}
		requantSym(codes[b*superBlock:(b+1)*superBlock], &p[b], x[b*superBlock:(b+1)*superBlock], 4)
	}
}

func plainScalesQ3K(p *Params, scales []float32) {
	*p = Params{}
	peak, _ := extreme(scales)
	if peak == 0 { // scale bytes of zero, which read as -32
		fillScales(p, -32)
		return
	}
	inv := -32 / peak
	for j, s := range scales {
		p.Scale[j] = int16(rnClamp(float32(inv*s), -32, 31))
	}
	p.D = roundF16(1 / inv)
}

func fittedScalesQ3K(p *Params, d float32, l *[16]uint8) {
	*p = Params{D: roundF16(d)}
	for j, c := range l {
		p.Scale[j] = int16(c) - 32
	}
}

// fitPlanesQ3K is fitBatchQ3K with vector kernels, a super-block per lane.
func fitPlanesQ3K(c *coder, p []Params, codes []uint8, x []float32, im columns) {
	pl := c.load(x, superBlock)
	if im.none() {
		for j := 0; j < 16; j += 4 { // the kernel takes four sub-blocks
			c.k.sym3(&pl.codes[j*16*lanes], subPlane(pl.x[:], j, 16), &pl.scale[j*lanes])
		}
		c.signedScales(p, 31, -32, math.SmallestNonzeroFloat32)
		c.requantSym(codes, 4)
		return
	}
	c.importanceWeights(im, 2)
	for j := range 16 {
		c.searchSym(j, 16, 4)
		c.k.rowSum(&pl.sum[j*lanes], subPlane(pl.w[:], j, 16), 16)
	}
	var d [lanes]float32
	c.k.sym(&pl.levels[0], &pl.scale[0], &pl.sum[0], 16, 32, &d[0])
	for b := range p {
		var l [16]uint8
		for j := range l {
			l[j] = pl.levels[j*lanes+b]
		}
		fittedScalesQ3K(&p[b], d[b], &l)
	}
	c.steps(p)
	c.requantSym(codes, 4)
}

func fillScales(p *Params, v int16) {
	for j := range p.Scale {
		p.Scale[j] = v
	}
}

func packQ3K(b []byte, p *Params, c []uint8) {
	headQ3K(b, p)
	packHighBits(b[:32], c, 2)
	packTwoBits(b[32:96], c)
}

func headQ3K(b []byte, p *Params) {
	b = b[96:sizeQ3K]
	for j := range 4 {
		s0, s1, s2, s3 := uint8(p.Scale[j]+32), uint8(p.Scale[j+4]+32), uint8(p.Scale[j+8]+32), uint8(p.Scale[j+12]+32)
		b[j], b[j+4] = s0&15|s2<<4, s1&15|s3<<4
		b[j+8] = s0>>4 | s1>>4<<2 | s2>>4<<4 | s3>>4<<6
	}
	putF16(b[12:], p.D)
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
