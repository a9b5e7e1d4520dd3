package ggml

import "math"

// Four-bit floats (E2M1) with a byte scale. Nibbles lie as in Q4_0.
//
//	MXFP4 (17, 32 weights)  e (E8M0) · qs[16]
//	NVFP4 (36, 64 weights)  d[4] (UE4M3, one per 16) · qs[32]; sub-block s: byte 4 + 8·s + j holds weights j and j+8
//
// The table of values is doubled to stay in integers, so both scales are read at half their value.

// levelsE2M1 are the doubled values of the 16 codes.
var levelsE2M1 = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// middlesE2M1 lie half-way between the doubled magnitudes.
var middlesE2M1 = [7]float32{0.5, 1.5, 2.5, 3.5, 5, 7, 10}

var (
	scalarMXFP4 = newScalar(Scalar{
		Type: "MXFP4", Span: 32, Sub: 32, Levels: levelsE2M1[:], roundD: func(d float32) float32 { return halfE8M0(nearestE8M0(d)) },
		fit: fitMXFP4, pack: packMXFP4, unpack: unpackMXFP4, weights: func(w, x, im []float32) { weightsOr1(w, im) },
		codes: func(codes []uint8, p *Params, x []float32) { codesE2M1(codes, x, p.D) },
		search: subSearch{other: func(x, _ []float32) float32 {
			_, amax := extreme(x)
			return halfE8M0(exponentMXFP4(amax))
		}},
	})
	scalarNVFP4 = newScalar(Scalar{
		Type: "NVFP4", Span: 64, Sub: 16, Levels: levelsE2M1[:], ScaleMax: 0x7e,
		roundD: func(float32) float32 { return 1 }, subScale: func(b int16) float32 { return halfUE4M3(uint8(b)) },
		fit: fitNVFP4, pack: packNVFP4, unpack: unpackNVFP4, codes: codesNVFP4, weights: func(w, x, im []float32) { weightsOr1(w, im) },
		search: subSearch{other: func(x, _ []float32) float32 {
			_, amax := extreme(x)
			return halfUE4M3(roundUE4M3(amax / 6))
		}},
	})
)

func encodeMXFP4(e *encoder)                { encodeSmall(e, &scalarMXFP4, 17) }
func decodeMXFP4(dst []float32, src []byte) { decodeScalar(&scalarMXFP4, 17, dst, src) }
func encodeNVFP4(e *encoder)                { encodeSmall(e, &scalarNVFP4, 36) }
func decodeNVFP4(dst []float32, src []byte) { decodeScalar(&scalarNVFP4, 36, dst, src) }

// encodeSmall encodes a few blocks at a time.
func encodeSmall(e *encoder, s *Scalar, size int) {
	const some = 1024 // weights, a multiple of any block
	var p [some / 32]Params
	var codes [some]uint8
	for i := 0; i < len(e.x); i += some {
		x := e.x[i:min(i+some, len(e.x))]
		n := len(x) / s.Span
		s.fit(e.coder, p[:n], codes[:len(x)], x, e.im.skip(i))
		for b := range n {
			at := (i/s.Span + b) * size
			s.pack(e.dst[at:at+size], &p[b], codes[b*s.Span:(b+1)*s.Span])
		}
	}
}

// peaks returns the largest magnitude of every 16 weights.
func (c *coder) peaks(peak, x []float32) {
	if c.k != nil && len(x) > 0 {
		c.k.block.peaks(&peak[0], &x[0], len(x)/run)
		return
	}
	for i := range len(x) / run {
		_, peak[i] = extreme(x[run*i : run*i+run])
	}
}

// codesE2M1 rounds every 16 weights with a scale of their own.
func (c *coder) codesE2M1(codes []uint8, x, scale []float32) {
	if c.k != nil && len(x) > 0 {
		c.k.block.e2m1(&codes[0], &x[0], &scale[0], len(x)/run)
		return
	}
	for i := range len(x) / run {
		codesE2M1(codes[run*i:run*i+run], x[run*i:run*i+run], scale[i])
	}
}

// halfE8M0 is 2^(e-128).
func halfE8M0(e uint8) float32 {
	if e < 2 {
		return math.Float32frombits(0x200000 << e) // subnormal
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

// nearestE8M0 returns the exponent byte whose half value is nearest to d.
func nearestE8M0(d float32) uint8 {
	if !(d > 0) {
		return 0
	}
	frac, exp := math.Frexp(float64(d)) // d = frac·2^exp, frac in [0.5, 1)
	if frac >= 0.75 {
		exp++
	}
	return uint8(min(max(exp-1+128, 0), 254))
}

// exponentMXFP4 puts the largest magnitude between 4 and 8 of the 6 that E2M1 reaches: floor(log2 amax) - 2. A few
// ulp below a power of two the reference's float32 logarithm rounds up to it; so does ours.
func exponentMXFP4(amax float32) uint8 {
	if amax == 0 {
		return 0
	}
	log := math.Ilogb(float64(amax))
	if math.Float32bits(amax)&0x7fff00 == 0x7fff00 { // perhaps near enough to the next power
		log = int(math.Floor(float64(float32(math.Log2(float64(amax))))))
	}
	return uint8(min(max(log-2+127, 0), 254))
}

// codesE2M1 picks the nearest value of scale d, the smaller magnitude of two equally near, never negative zero.
func codesE2M1(codes []uint8, x []float32, d float32) {
	if d == 0 {
		clear(codes[:len(x)])
		return
	}
	var middles [7]float32
	for i, m := range middlesE2M1 {
		middles[i] = m * d // exact
	}
	for i, v := range x {
		a := abs32(v)
		var c uint8
		for _, m := range middles {
			if a > m {
				c++
			}
		}
		if v < 0 && c > 0 {
			c |= 8
		}
		codes[i] = c
	}
}

func fitMXFP4(c *coder, p []Params, codes []uint8, x []float32, _ columns) {
	peak := make([]float32, len(x)/run)
	c.peaks(peak, x)
	for b := range p {
		d := halfE8M0(exponentMXFP4(max(peak[2*b], peak[2*b+1])))
		p[b] = Params{D: d}
		p[b].Scale[0] = 1
		peak[2*b], peak[2*b+1] = d, d
	}
	c.codesE2M1(codes, x, peak)
}

func packMXFP4(b []byte, p *Params, codes []uint8) {
	b[0] = nearestE8M0(p.D)
	packNibbles32(b[1:17], codes)
}

func unpackMXFP4(p *Params, codes []uint8, b []byte) {
	*p = Params{D: halfE8M0(b[0])}
	p.Scale[0] = 1
	unpackNibbles32(codes, b[1:17])
}

// halfUE4M3 is half the value of an unsigned E4M3 byte; 0x7f reads as 0 and the sign bit is ignored.
func halfUE4M3(b uint8) float32 {
	exp, man := int(b>>3&15), float32(b&7)
	switch {
	case b == 0 || b == 0x7f:
		return 0
	case exp == 0:
		return man * 0x1p-10
	}
	return (1 + float32(man/8)) * math.Float32frombits(uint32(exp-8+127)<<23)
}

// roundUE4M3 rounds half up to an unsigned E4M3 byte, saturating at 448 (0x7e).
func roundUE4M3(v float32) uint8 {
	if !(v > 0) {
		return 0
	}
	if v > 448 {
		v = 448
	}
	bits := math.Float32bits(v)
	exp := int(bits>>23) - 127 + 7
	switch {
	case exp <= 0: // multiples of 2^-9
		return uint8(min(truncate(float32(v*512)+0.5), 7))
	case exp >= 15:
		return 0x7e
	}
	man := int(bits>>20&7) + int(bits>>19&1)
	if man == 8 {
		man, exp = 0, exp+1
		if exp >= 15 {
			return 0x7e
		}
	}
	return uint8(exp<<3 | man)
}

func codesNVFP4(codes []uint8, p *Params, x []float32) {
	for s := range 4 {
		codesE2M1(codes[16*s:16*s+16], x[16*s:16*s+16], halfUE4M3(uint8(p.Scale[s])))
	}
}

func fitNVFP4(c *coder, p []Params, codes []uint8, x []float32, _ columns) {
	scale := make([]float32, len(x)/run)
	c.peaks(scale, x)
	for b := range p {
		p[b] = Params{D: 1}
		for s := range 4 {
			byteScale := roundUE4M3(scale[4*b+s] / 6)
			p[b].Scale[s] = int16(byteScale)
			scale[4*b+s] = halfUE4M3(byteScale)
		}
	}
	c.codesE2M1(codes, x, scale)
}

func packNVFP4(b []byte, p *Params, codes []uint8) {
	for s := range 4 {
		b[s] = uint8(p.Scale[s])
		out, in := b[4+8*s:12+8*s], codes[16*s:16*s+16]
		for j := range out {
			out[j] = in[j]&15 | in[j+8]<<4
		}
	}
}

func unpackNVFP4(p *Params, codes []uint8, b []byte) {
	*p = Params{D: 1}
	for s := range 4 {
		p.Scale[s] = int16(b[s])
		out, in := codes[16*s:16*s+16], b[4+8*s:12+8*s]
		for j, q := range in {
			out[j], out[j+8] = q&15, q>>4
		}
	}
}
