package ggml

// Q6_K: 210 bytes for 256 weights.
//
//	  0 ql[128]     low nibbles: byte 64·h + l of half h holds weights 128·h + l and + 64, byte 64·h + 32 + l those + 32, + 96
//	128 qh[64]      top two bits: byte 32·h + l holds weights 128·h + l, + 32, + 64, + 96
//	192 scales[16]  int8, one per 16
//	208 d           fp16

const sizeQ6K = 210

var scalarQ6K = newScalar(Scalar{
	Type: "Q6_K", Span: superBlock, Sub: 16, Levels: integers(-32, 31), ScaleMin: -128, ScaleMax: 127,
	fit: fitQ6K, weights: weightsQ6K, search: subSearch{levels: 32}, head: headQ6K, pack: packQ6K, unpack: unpackQ6K,
	codes: func(codes []uint8, p *Params, x []float32) { requantSym(codes, p, x, 32) },
})

func encodeQ6K(e *encoder)                { encodeScalar(e, &scalarQ6K, sizeQ6K) }
func decodeQ6K(dst []float32, src []byte) { decodeScalar(&scalarQ6K, sizeQ6K, dst, src) }

// weightsQ6K fills the weights of one super-block.
func weightsQ6K(w, x, im []float32) {
	if im == nil {
		squares(w, x)
		return
	}
	copy(w, im)
}

// fitQ6K weights by the importance itself: at 6 bits the usual factor sqrt(sigma² + x²) is not used.
func fitQ6K(c *coder, p []Params, codes []uint8, x []float32, im columns) {
	step := fitBatchQ6K
	if c.k != nil {
		step = fitPlanesQ6K
	}
	eachBatch(p, codes, x, im, func(p []Params, codes []uint8, x []float32, im columns) { step(c, p, codes, x, im) })
}

// fitBatchQ6K is the portable fit.
func fitBatchQ6K(_ *coder, p []Params, codes []uint8, x []float32, im columns) {
	for b := range p {
		block, q := x[b*superBlock:(b+1)*superBlock], codes[b*superBlock:(b+1)*superBlock]
		w := im.of(b*superBlock, superBlock)
		var scales [16]float32
		for j := range scales {
			var wj []float32
			if w != nil {
				wj = w[16*j : 16*j+16]
			}
			scales[j] = searchSym(q[16*j:16*j+16], block[16*j:16*j+16], wj, 32)
		}
		if scalesQ6K(&p[b], scales[:]) {
			requantSym(q, &p[b], block, 32)
		} else {
			clear(q)
		}
	}
}

// fitPlanesQ6K is fitBatchQ6K with vector kernels, a super-block per lane.
func fitPlanesQ6K(c *coder, p []Params, codes []uint8, x []float32, im columns) {
	pl := c.load(x, superBlock)
	w := pl.im[:]
	if im.none() {
		w = pl.w[:]
		c.k.square(&w[0], &pl.x[0], superBlock)
	} else {
		c.loadImportance(im, superBlock)
	}
	for j := range 16 {
		c.k.sym(&pl.codes[j*16*lanes], subPlane(pl.x[:], j, 16), subPlane(w, j, 16), 16, 32, &pl.scale[j*lanes])
	}
	c.signedScales(p, 127, 0, searchEps)
	for b := range p {
		if p[b] == (Params{}) { // a super-block of zeros: see scalesQ6K
			for i := range superBlock {
				pl.codes[i*lanes+b] = 0
			}
		}
	}
	c.requantSym(codes, 32)
}

// scalesQ6K is false for a super-block of zeros, of which the reference writes zero bytes throughout.
func scalesQ6K(p *Params, scales []float32) bool {
	*p = Params{}
	peak, amax := extreme(scales)
	if amax < searchEps {
		return false
	}
	inv := -128 / peak
	p.D = roundF16(1 / inv)
	for j, s := range scales {
		p.Scale[j] = int16(int8(min(127, rn(float32(inv*s)))))
	}
	return true
}

func packQ6K(b []byte, p *Params, c []uint8) {
	for h := range 2 {
		ql, qh, q := b[64*h:64*h+64], b[128+32*h:128+32*h+32], c[halfColumns*h:halfColumns*(h+1)]
		for i := 0; i < 32; i += swarBytes {
			q0, q1, q2, q3 := word(q, i), word(q, i+32), word(q, i+64), word(q, i+96)
			putWord(ql, i, q0&lowNibble|q2&lowNibble<<4)
			putWord(ql, i+32, q1&lowNibble|q3&lowNibble<<4)
			putWord(qh, i, q0>>4&lowPair|q1>>4&lowPair<<2|q2>>4&lowPair<<4|q3>>4&lowPair<<6)
		}
	}
	headQ6K(b, p)
}

func headQ6K(b []byte, p *Params) {
	for j, s := range p.Scale {
		b[192+j] = uint8(s)
	}
	putF16(b[208:], p.D)
}

func unpackQ6K(p *Params, c []uint8, b []byte) {
	*p = Params{D: getF16(b[208:])}
	for j := range p.Scale {
		p.Scale[j] = int16(int8(b[192+j]))
	}
	for h := range 2 {
		ql, qh, q := b[64*h:64*h+64], b[128+32*h:128+32*h+32], c[halfColumns*h:halfColumns*(h+1)]
		for i := 0; i < 32; i += swarBytes {
			l0, l1, t := word(ql, i), word(ql, i+32), word(qh, i)
			putWord(q, i, l0&lowNibble|t&lowPair<<4)
			putWord(q, i+32, l1&lowNibble|t>>2&lowPair<<4)
			putWord(q, i+64, l0>>4&lowNibble|t>>4&lowPair<<4)
			putWord(q, i+96, l1>>4&lowNibble|t>>6&lowPair<<4)
		}
	}
}
