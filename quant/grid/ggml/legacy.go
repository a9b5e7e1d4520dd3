package ggml

import "encoding/binary"

// The legacy types of 4 and 5 bits, blocks of 32. Nibbles: byte j holds weights j (low) and j+16 (high).
//
//	Q4_0 (18)  d · qs[16]            weight = d·(q − 8)
//	Q4_1 (20)  d · m · qs[16]        weight = d·q + m
//	Q5_0 (22)  d · qh u32 · qs[16]   weight = d·(q − 16), bit i of qh is the fifth bit of weight i
//	Q5_1 (24)  d · m · qh u32 · qs[16]

const legacyBlock = 32

// legacy describes one of the four types.
type legacy struct {
	size    int   // bytes per block
	levels  int32 // symmetric types: codes −levels … levels−1; others: 0 … levels
	hasMin  bool
	fifth   int                                                    // offset of qh, 0 when there is none
	nibbles int                                                    // offset of qs
	kernel  func(*kernels) func(dst *byte, x *float32, blocks int) // encodes without importance
}

var (
	legacyQ40 = legacy{size: 18, levels: 8, nibbles: 2,
		kernel: func(k *kernels) func(*byte, *float32, int) { return k.block.q40 }}
	legacyQ41 = legacy{size: 20, levels: 15, hasMin: true, nibbles: 4,
		kernel: func(k *kernels) func(*byte, *float32, int) { return k.block.q41 }}
	legacyQ50 = legacy{size: 22, levels: 16, fifth: 2, nibbles: 6,
		kernel: func(k *kernels) func(*byte, *float32, int) { return k.block.q50 }}
	legacyQ51 = legacy{size: 24, levels: 31, hasMin: true, fifth: 4, nibbles: 8,
		kernel: func(k *kernels) func(*byte, *float32, int) { return k.block.q51 }}

	scalarQ40 = legacyQ40.scalar("Q4_0")
	scalarQ41 = legacyQ41.scalar("Q4_1")
	scalarQ50 = legacyQ50.scalar("Q5_0")
	scalarQ51 = legacyQ51.scalar("Q5_1")
)

func encodeQ40(e *encoder) { legacyQ40.encode(e) }
func encodeQ41(e *encoder) { legacyQ41.encode(e) }
func encodeQ50(e *encoder) { legacyQ50.encode(e) }
func encodeQ51(e *encoder) { legacyQ51.encode(e) }

func decodeQ40(dst []float32, src []byte) { decodeScalar(&scalarQ40, 18, dst, src) }
func decodeQ41(dst []float32, src []byte) { decodeScalar(&scalarQ41, 20, dst, src) }
func decodeQ50(dst []float32, src []byte) { decodeScalar(&scalarQ50, 22, dst, src) }
func decodeQ51(dst []float32, src []byte) { decodeScalar(&scalarQ51, 24, dst, src) }

// legacyWeighted is the search of the asymmetric types with importance; levels are filled in per type.
func (t *legacy) weighted() *asymSpec {
	return &asymSpec{levels: t.levels, first: -0.9, step: 0.05, steps: 36}
}

func (t *legacy) encode(e *encoder) {
	var codes [legacyBlock]uint8
	if e.im.none() {
		if e.coder.k != nil && len(e.x) > 0 {
			t.kernel(e.coder.k)(&e.dst[0], &e.x[0], len(e.x)/legacyBlock)
			return
		}
		e.blocks(legacyBlock, t.size, func(b []byte, x, _ []float32) {
			d, m := t.plain(codes[:], x)
			t.packBlock(b, d, m, codes[:])
		})
		return
	}
	if e.coder.k != nil {
		t.encodePlanes(e)
		return
	}
	var w [legacyBlock]float32
	spec := t.weighted()
	e.rows(func(dst []byte, x []float32) {
		sigma2 := sumSquares(x) / float32(len(x)) // of the whole row
		for i := 0; i < len(x); i += legacyBlock {
			block := x[i : i+legacyBlock]
			importanceWeights(w[:], block, e.im.of(i, legacyBlock), sigma2)
			d, m := t.search(codes[:], block, w[:], spec)
			at := i / legacyBlock * t.size
			t.packBlock(dst[at:at+t.size], d, m, codes[:])
		}
	})
}

// encodePlanes is the weighted encoder with vector kernels, a block per lane.
func (t *legacy) encodePlanes(e *encoder) {
	var codes [legacyBlock * lanes]uint8
	sigma2 := e.rowMeanSquares()
	spec := t.weighted()
	first := 0 // weights before this tile
	e.tiles(legacyBlock, t.size, func(dst []byte, x []float32, im columns) {
		pl := e.load(x, legacyBlock)
		e.loadImportance(im, legacyBlock)
		for l := range pl.sigma {
			pl.sigma[l] = sigma2[min((first+l*legacyBlock)/e.cols, len(sigma2)-1)]
		}
		first += len(x)
		e.coder.k.weights(&pl.w[0], &pl.x[0], &pl.im[0], &pl.sigma[0], legacyBlock)
		if t.hasMin {
			e.searchAsym(0, 1, legacyBlock, spec)
		} else {
			e.searchSym(0, legacyBlock, t.levels)
			pl.minimum = [16 * lanes]float32{}
		}
		e.store(codes[:], legacyBlock)
		for l := range len(x) / legacyBlock {
			t.packBlock(dst[l*t.size:(l+1)*t.size], pl.scale[l], -pl.minimum[l], codes[l*legacyBlock:(l+1)*legacyBlock])
		}
	})
}

// search is the weighted fit of one block: scale and the minimum as added on decoding.
func (t *legacy) search(codes []uint8, x, w []float32, spec *asymSpec) (d, m float32) {
	if t.hasMin {
		d, m = searchAsym(codes, x, w, spec)
		return d, -m
	}
	return searchSym(codes, x, w, t.levels), 0
}

// plain spans the range of the block exactly.
func (t *legacy) plain(codes []uint8, x []float32) (d, m float32) {
	if t.hasMin {
		return t.plainMin(codes, x)
	}
	peak, _ := extreme(x)
	d = peak / float32(-t.levels)
	t.symCodes(codes, x, inverse(d))
	return d, 0
}

func (t *legacy) symCodes(codes []uint8, x []float32, inv float32) {
	half := float32(t.levels) + 0.5
	top := int8(2*t.levels - 1)
	for i, v := range x {
		codes[i] = uint8(min(top, int8(truncate(float32(v*inv)+half))))
	}
}

func (t *legacy) plainMin(codes []uint8, x []float32) (d, m float32) {
	lo, hi := x[0], x[0]
	for _, v := range x {
		if v < lo {
			lo = v
		}
		if v > hi {
			hi = v
		}
	}
	d = (hi - lo) / float32(t.levels)
	t.minCodes(codes, x, inverse(d), lo)
	return d, lo
}

func (t *legacy) minCodes(codes []uint8, x []float32, inv, lo float32) {
	for i, v := range x {
		q := uint8(truncate(float32((v-lo)*inv) + 0.5))
		if t.fifth == 0 {
			q = min(uint8(t.levels), q)
		}
		codes[i] = q & 31
	}
}

// clampedCodes rounds weights that the parameters were not fitted to.
func (t *legacy) clampedCodes(codes []uint8, x []float32, inv, minimum float32) {
	half, top := float32(0.5), t.levels
	if !t.hasMin {
		half, top = float32(t.levels)+0.5, 2*t.levels-1
	}
	for i, v := range x {
		codes[i] = uint8(min(max(truncate(float32((v+minimum)*inv)+half), 0), top))
	}
}

func (t *legacy) packBlock(b []byte, d, m float32, codes []uint8) {
	putF16(b, d)
	if t.hasMin {
		putF16(b[2:], m)
	}
	if t.fifth != 0 {
		var h uint32
		for i, q := range codes[:legacyBlock] {
			h |= uint32(q>>4&1) << i
		}
		binary.LittleEndian.PutUint32(b[t.fifth:], h)
	}
	packNibbles32(b[t.nibbles:], codes)
}

func (t *legacy) unpack(p *Params, codes []uint8, b []byte) {
	*p = Params{D: getF16(b)}
	p.Scale[0], p.Min[0] = 1, 1
	if t.hasMin {
		p.DMin = -getF16(b[2:])
	}
	unpackNibbles32(codes, b[t.nibbles:])
	if t.fifth != 0 {
		h := binary.LittleEndian.Uint32(b[t.fifth:])
		for i := range codes[:legacyBlock] {
			codes[i] |= uint8(h>>i&1) << 4
		}
	}
}

// fit is encode without packing: parameters as stored.
func (t *legacy) fit(_ *coder, p []Params, codes []uint8, x []float32, im columns) {
	var w [legacyBlock]float32
	spec := t.weighted()
	for b := range p {
		at := b * legacyBlock
		block, c := x[at:at+legacyBlock], codes[at:at+legacyBlock]
		var d, m float32
		if im.none() {
			d, m = t.plain(c, block)
		} else {
			t.weights(w[:], block, im.of(at, legacyBlock))
			d, m = t.search(c, block, w[:], spec)
		}
		p[b] = Params{D: roundF16(d), DMin: -roundF16(m)}
		p[b].Scale[0], p[b].Min[0] = 1, 1
	}
}

// weights fills the weights of one block; the encoder takes the mean square of the whole row.
func (t *legacy) weights(w, x, im []float32) {
	if im == nil {
		squares(w, x)
		return
	}
	importanceWeights(w, x, im, float32(sumSquares(x)/legacyBlock))
}

func (t *legacy) scalar(name string) Scalar {
	s := Scalar{
		Type: name, Span: legacyBlock, Sub: legacyBlock, Levels: integers(int(-t.levels), int(t.levels-1)), HasMin: t.hasMin,
		fit: t.fit, weights: t.weights, search: subSearch{levels: t.levels}, unpack: t.unpack,
		pack:  func(b []byte, p *Params, codes []uint8) { t.packBlock(b, p.D, -p.DMin, codes) },
		codes: func(codes []uint8, p *Params, x []float32) { t.clampedCodes(codes, x, inverse(p.D), p.DMin) },
	}
	if t.hasMin {
		s.Levels = integers(0, int(t.levels))
		s.search = subSearch{asym: t.weighted()}
	}
	return newScalar(s)
}
