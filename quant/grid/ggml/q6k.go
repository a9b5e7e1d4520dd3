package ggml

// Q6_K: 210 bytes for 256 weights.
//
//	  0 ql[128]     low nibbles: byte 64·h + l of half h holds weights 128·h + l and + 64, byte 64·h + 32 + l those + 32, + 96
//	128 qh[64]      top two bits: byte 32·h + l holds weights 128·h + l, + 32, + 64, + 96
//	192 scales[16]  int8, one per 16
//	208 d           fp16

const sizeQ6K = 210

var scalarQ6K = Scalar{
	Type: "Q6_K", Span: superBlock, Sub: 16, Levels: integers(-32, 31), ScaleMin: -128, ScaleMax: 127, MinMax: 1,
	roundD: roundF16, fit: fitQ6K, pack: packQ6K, unpack: unpackQ6K,
	codes: func(codes []uint8, p *Params, x []float32) { requantSym(codes, p, x, 32) },
	sub:   func(codes []uint8, x, w []float32) (float32, float32) { return searchSym(codes, x, w, 32), 0 },
}

func encodeQ6K(e *encoder)                { encodeScalar(e, &scalarQ6K, sizeQ6K) }
func decodeQ6K(dst []float32, src []byte) { decodeScalar(&scalarQ6K, sizeQ6K, dst, src) }

// fitQ6K weights by the importance itself: at 6 bits the usual factor sqrt(sigma² + x²) is not used.
func fitQ6K(p []Params, codes []uint8, x []float32, im columns) {
	var work kwork
	for b := 0; b < len(p); b += batch {
		n := min(batch, len(p)-b)
		at, end := b*superBlock, (b+n)*superBlock
		var w []float32
		if !im.none() {
			w = work.w[:n*superBlock]
			for i := range n {
				copy(w[i*superBlock:], im.of(at+i*superBlock, superBlock))
			}
		}
		searchSymAll(codes[at:end], x[at:end], w, 16, 32, work.scale[:])
		for i := range n {
			scalesQ6K(&p[b+i], codes[at+i*superBlock:][:superBlock], work.scale[16*i:16*i+16])
		}
	}
}

func scalesQ6K(p *Params, codes []uint8, scales []float32) {
	*p = Params{}
	peak := signedPeak(scales)
	if abs32(peak) < searchEps { // the reference writes zero bytes throughout
		clear(codes)
		return
	}
	inv := -128 / peak
	p.D = roundF16(1 / inv)
	for j, s := range scales {
		p.Scale[j] = int16(int8(min(127, rn(float32(inv*s)))))
	}
}

func packQ6K(b []byte, p *Params, c []uint8) {
	for h := range 2 {
		ql, qh, q := b[64*h:64*h+64], b[128+32*h:128+32*h+32], c[128*h:128*h+128]
		for l := range qh {
			ql[l] = q[l]&15 | q[l+64]<<4
			ql[l+32] = q[l+32]&15 | q[l+96]<<4
			qh[l] = q[l]>>4 | q[l+32]>>4<<2 | q[l+64]>>4<<4 | q[l+96]>>4<<6
		}
	}
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
		ql, qh, q := b[64*h:64*h+64], b[128+32*h:128+32*h+32], c[128*h:128*h+128]
		for l, t := range qh {
			q[l], q[l+64] = ql[l]&15|t&3<<4, ql[l]>>4|t>>4&3<<4
			q[l+32], q[l+96] = ql[l+32]&15|t>>2&3<<4, ql[l+32]>>4|t>>6<<4
		}
	}
}
