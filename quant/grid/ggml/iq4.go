package ggml

// IQ4_NL and IQ4_XS: four bits that index a table of 16 unequally spaced values.
//
//	IQ4_NL (18, 32 weights)    d · qs[16], nibbles as Q4_0
//	IQ4_XS (136, 256 weights)  d · scales_h u16 · scales_l[4] · qs[128]; sub-block b of 32 has a 6-bit scale whose low
//	                           nibble is in scales_l[b/2] and whose top bits are bits 2·b of scales_h; its nibbles are
//	                           bytes 16·b … as in Q4_0

import "encoding/binary"

const (
	sizeIQ4NL = 18
	sizeIQ4XS = 136
	iq4Steps  = 7 // candidates on either side
)

var levelsIQ4 = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// middlesIQ4 lie half-way between neighbours; a value on one belongs to the upper neighbour.
var middlesIQ4 = [15]float32{-115.5, -93.5, -74, -57, -42, -28.5, -16, -4.5, 7, 19, 31.5, 45.5, 61, 79, 101}

var (
	scalarIQ4NL = newScalar(Scalar{
		Type: "IQ4_NL", Span: 32, Sub: 32, Levels: levelsIQ4[:], fit: fitIQ4NL, pack: packIQ4NL, unpack: unpackIQ4NL,
		weights: weightsIQ4, search: searchesIQ4,
		codes: func(codes []uint8, p *Params, x []float32) { codesIQ4(codes, x, inverse(p.D)) },
	})
	scalarIQ4XS = newScalar(Scalar{
		Type: "IQ4_XS", Span: superBlock, Sub: 32, Levels: levelsIQ4[:], ScaleMin: -32, ScaleMax: 31,
		fit: fitIQ4XS, head: headIQ4XS, pack: packIQ4XS, unpack: unpackIQ4XS, weights: weightsIQ4, search: searchesIQ4,
		codes: func(codes []uint8, p *Params, x []float32) { codesIQ4XS(codes, p.D, p, x) },
	})
	searchesIQ4 = subSearch{other: searchIQ4, plane: func(k *kernels, x, w *float32, n int, scale *float32) { k.iq4(x, w, n, scale) }}
)

func decodeIQ4NL(dst []float32, src []byte) { decodeScalar(&scalarIQ4NL, sizeIQ4NL, dst, src) }
func decodeIQ4XS(dst []float32, src []byte) { decodeScalar(&scalarIQ4XS, sizeIQ4XS, dst, src) }

// nearestIQ4 returns the code of the table value nearest to v.
func nearestIQ4(v float32) uint8 {
	var c uint8
	if v >= middlesIQ4[7] {
		c = 8
	}
	if v >= middlesIQ4[c+3] {
		c += 4
	}
	if v >= middlesIQ4[c+1] {
		c += 2
	}
	if v >= middlesIQ4[c] {
		c++
	}
	return c
}

func codesIQ4(codes []uint8, x []float32, inv float32) {
	for i, v := range x {
		codes[i] = nearestIQ4(float32(inv * v))
	}
}

// searchIQ4 fits the scale of 32 weights: the best of 16 ranges by weighted least squares.
func searchIQ4(x, w []float32) (d float32) {
	peak, amax := extreme(x)
	if amax < searchEps {
		return 0
	}
	a, b := sumsIQ4(x, w, 1/(-peak/levelsIQ4[0]))
	if b > 0 {
		d = a / b
	}
	best := float32(d * a)
	for k := -iq4Steps; k <= iq4Steps; k++ {
		a, b := sumsIQ4(x, w, (float32(k)+levelsIQ4[0])/peak)
		if b > 0 && float32(a*a) > float32(best*b) {
			d = a / b
			best = float32(d * a)
		}
	}
	return d
}

func sumsIQ4(x, w []float32, inv float32) (a, b float32) {
	w = w[:len(x)]
	for i, v := range x {
		q := levelsIQ4[nearestIQ4(float32(inv*v))&15]
		wq := float32(w[i] * q)
		a += float32(wq * v)
		b += float32(wq * q)
	}
	return a, b
}

// weightsIQ4 fills the weights of a block: sigma² is twice the mean square.
func weightsIQ4(w, x, im []float32) {
	if im == nil {
		squares(w, x)
		return
	}
	importanceWeights(w, x, im, float32(sumSquares(x)*(2/float32(len(x)))))
}

// encodeIQ4NL rounds with the scale before it is rounded to fp16.
func encodeIQ4NL(e *encoder) {
	if e.coder.k != nil {
		e.encodeIQ4NLPlanes()
		return
	}
	var w [32]float32
	var codes [32]uint8
	e.blocks(32, sizeIQ4NL, func(b []byte, x, im []float32) {
		weightsIQ4(w[:], x, im)
		d := searchIQ4(x, w[:])
		codesIQ4(codes[:], x, inverse(d))
		putF16(b, d)
		packNibbles32(b[2:18], codes[:])
	})
}

// encodeIQ4NLPlanes is encodeIQ4NL with vector kernels, a block per lane.
func (e *encoder) encodeIQ4NLPlanes() {
	var codes [32 * lanes]uint8
	e.tiles(32, sizeIQ4NL, func(dst []byte, x []float32, im columns) {
		pl := e.load(x, 32)
		e.weightsIQ4(im, 32)
		e.coder.k.iq4(&pl.x[0], &pl.w[0], 32, &pl.scale[0])
		for l := range lanes {
			pl.step[l] = inverse(pl.scale[l])
		}
		e.coder.k.iq4Codes(&pl.codes[0], &pl.x[0], 32, &pl.step[0])
		e.store(codes[:], 32)
		for l := range len(x) / 32 {
			putF16(dst[l*sizeIQ4NL:], pl.scale[l])
			packNibbles32(dst[l*sizeIQ4NL+2:], codes[32*l:])
		}
	})
}

// weightsIQ4 fills the w plane as weightsIQ4 does for one block of n weights.
func (c *coder) weightsIQ4(im columns, n int) {
	pl := c.pl
	if im.none() {
		c.k.square(&pl.w[0], &pl.x[0], n)
		return
	}
	c.loadImportance(im, n)
	c.meanSquares(n, 2)
	c.k.weights(&pl.w[0], &pl.x[0], &pl.im[0], &pl.sigma[0], n)
}

func fitIQ4NL(_ *coder, p []Params, codes []uint8, x []float32, im columns) {
	var w [32]float32
	for b := range p {
		block := x[32*b : 32*b+32]
		weightsIQ4(w[:], block, im.of(32*b, 32))
		p[b] = Params{D: roundF16(searchIQ4(block, w[:]))}
		p[b].Scale[0] = 1
		codesIQ4(codes[32*b:32*b+32], block, inverse(p[b].D))
	}
}

func packIQ4NL(b []byte, p *Params, codes []uint8) {
	putF16(b, p.D)
	packNibbles32(b[2:18], codes)
}

func unpackIQ4NL(p *Params, codes []uint8, b []byte) {
	*p = Params{D: getF16(b)}
	p.Scale[0] = 1
	unpackNibbles32(codes, b[2:18])
}

// paramsIQ4XS chooses the parameters of one super-block; d is the scale before it is rounded to fp16.
func paramsIQ4XS(p *Params, x, im []float32) (d float32) {
	var w [superBlock]float32
	var scales [8]float32
	weightsIQ4(w[:], x, im)
	for j := range scales {
		scales[j] = searchIQ4(x[32*j:32*j+32], w[32*j:32*j+32])
	}
	return scalesIQ4XS(p, scales[:])
}

// scalesIQ4XS rounds the scales of the sub-blocks to multiples of d.
func scalesIQ4XS(p *Params, scales []float32) (d float32) {
	peak, _ := extreme(scales)
	d = -peak / 32
	inv := inverse(d)
	*p = Params{D: roundF16(d)}
	for j, s := range scales {
		p.Scale[j] = int16(rnClamp(float32(inv*s), -32, 31))
	}
	return d
}

// codesIQ4XS rounds with super-block scale d.
func codesIQ4XS(codes []uint8, d float32, p *Params, x []float32) {
	for j := range 8 {
		codesIQ4(codes[32*j:32*j+32], x[32*j:32*j+32], inverse(float32(d*float32(p.Scale[j]))))
	}
}

func encodeIQ4XS(e *encoder) {
	encodeScalar(e, &scalarIQ4XS, sizeIQ4XS)
}

func fitIQ4XS(c *coder, p []Params, codes []uint8, x []float32, im columns) {
	eachBatch(p, codes, x, im, func(p []Params, codes []uint8, x []float32, im columns) {
		if c.k != nil {
			fitPlanesIQ4XS(c, p, codes, x, im)
			return
		}
		for b := range p {
			at, end := superBlock*b, superBlock*(b+1)
			d := paramsIQ4XS(&p[b], x[at:end], im.of(at, superBlock))
			codesIQ4XS(codes[at:end], d, &p[b], x[at:end])
		}
	})
}

// fitPlanesIQ4XS is the fit with vector kernels, a super-block per lane.
func fitPlanesIQ4XS(c *coder, p []Params, codes []uint8, x []float32, im columns) {
	pl := c.load(x, superBlock)
	c.weightsIQ4(im, superBlock)
	for j := range 8 {
		c.k.iq4(subPlane(pl.x[:], j, 32), subPlane(pl.w[:], j, 32), 32, &pl.scale[j*lanes])
	}
	for b := range p {
		scales := laneOf(pl.scale[:], b, 8)
		d := scalesIQ4XS(&p[b], scales[:8])
		for j := range 8 {
			pl.step[j*lanes+b] = inverse(float32(d * float32(p[b].Scale[j])))
		}
	}
	for j := range 8 {
		c.k.iq4Codes(&pl.codes[j*32*lanes], subPlane(pl.x[:], j, 32), 32, &pl.step[j*lanes])
	}
	c.store(codes, superBlock)
}

func packIQ4XS(b []byte, p *Params, codes []uint8) {
	headIQ4XS(b, p)
	for j := range 8 {
		packNibbles32(b[8+16*j:], codes[32*j:])
	}
}

func headIQ4XS(b []byte, p *Params) {
	putF16(b, p.D)
	var high uint16
	clear(b[4:8])
	for j := range 8 {
		l := uint8(p.Scale[j] + 32)
		b[4+j/2] |= l & 15 << (4 * (j % 2))
		high |= uint16(l>>4) << (2 * j)
	}
	binary.LittleEndian.PutUint16(b[2:], high)
}

func unpackIQ4XS(p *Params, codes []uint8, b []byte) {
	*p = Params{D: getF16(b)}
	high := binary.LittleEndian.Uint16(b[2:])
	for j := range 8 {
		l := b[4+j/2]>>(4*(j%2))&15 | uint8(high>>(2*j))&3<<4
		p.Scale[j] = int16(l) - 32
		unpackNibbles32(codes[32*j:], b[8+16*j:])
	}
}
