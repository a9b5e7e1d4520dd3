package ggml

// blockDecoder decodes blocks, at least one, that follow each other.
type blockDecoder func(dst *float32, src *byte, blocks int)

// unpacker opens blocks of 256 weights that are step·integer: codes gets the integers as signed bytes, steps one number per
// 16 weights.
type unpacker func(c *unpacked, b []byte)

type unpacked struct {
	codes [superBlock]uint8
	steps [superBlock / run]float32
}

// unpackers lists the codebook types by name: what takes time is the lookup, which assembly would not speed up.
var unpackers = map[string]unpacker{
	"IQ1_S": unpackIQ1S, "IQ1_M": unpackIQ1M, "IQ2_XXS": unpackIQ2XXS, "IQ2_XS": unpackIQ2XS, "IQ2_S": unpackIQ2S,
	"IQ3_XXS": unpackIQ3XXS, "IQ3_S": unpackIQ3S, "TQ1_0": unpackTQ10,
}

// DecodeRow decodes len(dst)/Elems blocks of src into dst, with the float32 operations of the reference: a row, or any
// number of rows that follow each other. src must be as long as RowBytes(len(dst)); a shorter one is a programming error and
// panics as an index would.
func (t *Type) DecodeRow(dst []float32, src []byte) { t.decodeWith(active(), dst, src) }

// decodeWith is DecodeRow with the given vector kernels; nil is the portable code.
func (t *Type) decodeWith(set *kernels, dst []float32, src []byte) {
	n := len(dst) / t.Elems
	dst, src = dst[:n*t.Elems], src[:n*t.Bytes]
	if set == nil || n == 0 || t.Elems == 1 { // plain numbers have no blocks
		t.decode(dst, src)
		return
	}
	if f := set.decode[t.Name]; f != nil {
		f(&dst[0], &src[0], n)
		return
	}
	unpack := unpackers[t.Name]
	if unpack == nil {
		t.decode(dst, src)
		return
	}
	var u unpacked
	eachBlock(superBlock, t.Bytes, dst, src, func(x []float32, b []byte) {
		unpack(&u, b)
		set.scaleCodes(&x[0], &u.codes[0], &u.steps[0], superBlock/run)
	})
}

// eachBlock calls f for every block of a row.
func eachBlock(elems, size int, dst []float32, src []byte, f func(x []float32, b []byte)) {
	for len(dst) >= elems {
		f(dst[:elems:elems], src[:size:size])
		dst, src = dst[elems:], src[size:]
	}
}
