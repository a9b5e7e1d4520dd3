package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// e2m1Values are the doubled values of E2M1, as in the package.
var e2m1Values = []float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// nibbles32 are the nibbles of blocks of 32 weights: byte j holds weights j and j + 16.
func nibbles32(at int) field {
	return field{4, func(i int) (int, int) { return at + i/32*16 + i%16, i / 16 % 2 * 4 }}
}

// nibbles64 are those of Q4_K: byte j of 32 holds weights j and j + 32.
func nibbles64(at int) field {
	return field{4, func(i int) (int, int) { return at + i/64*32 + i%32, i / 32 % 2 * 4 }}
}

// pairs128 are two bits: byte j of 32 holds weights j, j + 32, j + 64 and j + 96.
func pairs128(at int) field {
	return field{2, func(i int) (int, int) { return at + i/128*32 + i%32, i / 32 % 4 * 2 }}
}

// bits256 is one bit: byte j of 32 holds weights j, j + 32, …
func bits256(at int) field {
	return field{1, func(i int) (int, int) { return at + i%32, i / 32 }}
}

// layouts lists the decode kernels.
var layouts = []blockLayout{
	{name: "Q80", elems: 32, size: 34, per: 32, low: field{8, func(i int) (int, int) { return 2 + i, 0 }}, head: oneStep(0)},
	{name: "Q40", elems: 32, size: 18, per: 32, low: nibbles32(2), bias: 8, head: oneStep(0)},
	{name: "Q41", elems: 32, size: 20, per: 32, low: nibbles32(4), head: stepAndMinimum},
	{name: "Q50", elems: 32, size: 22, per: 32, low: nibbles32(6), fifth: 2, bias: 16, head: oneStep(0)},
	{name: "Q51", elems: 32, size: 24, per: 32, low: nibbles32(8), fifth: 4, head: stepAndMinimum},
	{name: "Q2K", elems: 256, size: 84, per: 16, low: pairs128(16), head: headQ2K},
	{name: "Q3K", elems: 256, size: 110, per: 16, low: pairs128(32), high: bits256(0), bias: 4, head: headQ3K},
	{name: "Q4K", elems: 256, size: 144, per: 32, low: nibbles64(16), head: headQ4K},
	{name: "Q5K", elems: 256, size: 176, per: 32, low: nibbles64(48), high: bits256(16), head: headQ4K},
	{name: "Q6K", elems: 256, size: 210, per: 16, bias: 32, head: headQ6K,
		low:  field{4, func(i int) (int, int) { return i/128*64 + i%64, i / 64 % 2 * 4 }},
		high: field{2, func(i int) (int, int) { return 128 + i/128*32 + i%32, i / 32 % 4 * 2 }}},
	{name: "IQ4NL", elems: 32, size: 18, per: 32, low: nibbles32(2), values: iq4Values, head: oneStep(0)},
	{name: "IQ4XS", elems: 256, size: 136, per: 32, low: nibbles32(8), values: iq4Values, head: headIQ4XS},
	{name: "MXFP4", elems: 32, size: 17, per: 32, low: nibbles32(1), values: e2m1Values, head: headMXFP4},
	{name: "TQ20", elems: 256, size: 66, per: 256, low: pairs128(0), bias: 1, head: oneStep(64)},
	{name: "Q20", elems: 64, size: 18, per: 64, low: field{bits: 2}, inWords: true, bias: 1, head: oneStep(0)},
	{name: "Q10", elems: 128, size: 18, per: 128, low: field{bits: 1}, inWords: true, values: []float32{-1, 1}, head: oneStep(0)},
}

func decoders() (all []func(*gen)) {
	for _, l := range layouts {
		all = append(all, decode(l))
	}
	return append(all, decodeNVFP4, scaleCodes)
}

// halfAt is the fp16 number at m in every lane.
func (g *gen) halfAt(m Mem) reg.VecVirtual {
	h, v := g.XMM(), g.vec()
	if !g.wide() {
		g.VPBROADCASTW(m, h)
		g.VCVTPH2PS(h, v)
		return v
	}
	y := g.YMM()
	g.VPBROADCASTW(m, y)
	g.VCVTPH2PS(y, v)
	return v
}

func (d *decoder) at(disp int) Mem { return Mem{Base: d.src, Disp: disp} }

// oneStep is the head of types with an fp16 scale.
func oneStep(at int) func(*decoder) {
	return func(d *decoder) { d.step = d.halfAt(d.at(at)) }
}

func stepAndMinimum(d *decoder) {
	d.step, d.added = d.halfAt(d.at(0)), d.halfAt(d.at(2))
}

// scales stores eight integers times unit.
func (d *decoder) scales(integers, unit reg.VecVirtual, m Mem) {
	f := d.YMM()
	d.VCVTDQ2PS(integers, f)
	d.VMULPS(unit.AsY(), f, f)
	d.VMOVUPS(f, m)
}

// byteScales widens sixteen bytes and stores them, less the bias, times unit.
func (d *decoder) byteScales(bytes reg.VecVirtual, unit reg.VecVirtual, bias int, m Mem) {
	for half := range 2 {
		v := d.YMM()
		d.VPMOVZXBD(bytes.AsX(), v)
		if bias != 0 {
			d.VPSUBD(d.eight(uint32(bias)), v, v)
		}
		d.scales(v, unit, m.Offset(32*half))
		d.VPSRLDQ(Imm(8), bytes.AsX(), bytes.AsX())
	}
}

// eight is a vector of eight integers in memory.
func (d *decoder) eight(v uint32) Mem {
	return d.table32("eight"+U32(v).Asm()[1:], []uint32{v, v, v, v, v, v, v, v})
}

// four is a vector of four integers in memory.
func (d *decoder) four(name string, a, b, c, e uint32) Mem {
	return d.table32(name, []uint32{a, b, c, e})
}

const everyNibble, everyPair, everySix, everyTop = 0x0f0f0f0f, 0x03030303, 0x3f3f3f3f, 0x30303030

func headQ2K(d *decoder) {
	d.hasMinima = true
	low, high := d.XMM(), d.XMM()
	mask := d.four("nibblesOf16", everyNibble, everyNibble, everyNibble, everyNibble)
	d.VMOVDQU(d.at(0), low)
	d.VPSRLD(Imm(4), low, high)
	d.VPAND(mask, low, low)
	d.VPAND(mask, high, high)
	d.byteScales(low, d.halfAt(d.at(80)), 0, d.steps)
	d.byteScales(high, d.halfAt(d.at(82)), 0, d.minima)
}

// headQ3K joins the low nibbles of scales 0 … 7 and 8 … 15 with the pairs of bits of words of four.
func headQ3K(d *decoder) {
	low, high, top := d.XMM(), d.XMM(), d.XMM()
	d.VMOVQ(d.at(96), low)
	d.VPSRLD(Imm(4), low, high)
	d.VPUNPCKLQDQ(high, low, low)
	d.VPAND(d.four("nibblesOf16", everyNibble, everyNibble, everyNibble, everyNibble), low, low)
	d.VPBROADCASTD(d.at(104), top)
	d.VPSRLVD(d.four("shifts0246", 0, 2, 4, 6), top, top)
	d.VPAND(d.four("pairsOf16", everyPair, everyPair, everyPair, everyPair), top, top)
	d.VPSLLD(Imm(4), top, top)
	d.VPOR(top, low, low)
	d.byteScales(low, d.halfAt(d.at(108)), 32, d.steps)
}

// headQ4K makes bytes of the 6-bit scales, then of the minima: four from six bits each, four of a nibble and two bits.
func headQ4K(d *decoder) {
	d.hasMinima = true
	x, whole, nibbles := d.XMM(), d.XMM(), d.XMM()
	d.VMOVDQU(d.at(4), x)
	d.VPSHUFD(Imm(0x50), x, whole) // words 0 0 1 1
	d.VPSRLVD(d.four("shifts0202", 0, 2, 0, 2), whole, whole)
	d.VPAND(d.four("sixAndTop", everySix, everyTop, everySix, everyTop), whole, whole)
	d.VPSHUFD(Imm(0xaa), x, nibbles) // word 2
	d.VPSRLVD(d.four("shifts0004", 0, 0, 0, 4), nibbles, nibbles)
	d.VPAND(d.four("oddNibbles", 0, everyNibble, 0, everyNibble), nibbles, nibbles)
	d.VPOR(nibbles, whole, whole)
	for i, m := range []Mem{d.steps, d.minima} {
		v := d.YMM()
		d.VPMOVZXBD(whole, v)
		d.scales(v, d.halfAt(d.at(2*i)), m)
		d.VPSRLDQ(Imm(8), whole, whole)
	}
}

func headQ6K(d *decoder) {
	unit := d.halfAt(d.at(208))
	for half := range 2 {
		v := d.YMM()
		d.VPMOVSXBD(d.at(192+8*half), v)
		d.scales(v, unit, d.steps.Offset(32*half))
	}
}

func headIQ4XS(d *decoder) {
	word := d.GP32()
	d.MOVWLZX(d.at(2), word)
	x := d.XMM()
	d.VMOVD(word, x)
	low, high := d.YMM(), d.YMM()
	d.VPBROADCASTD(x, high)
	d.VPSRLVD(d.table32("shiftsBy2", []uint32{0, 2, 4, 6, 8, 10, 12, 14}), high, high)
	d.VPSLLD(Imm(4), high, high)
	d.VPAND(d.eight(0x30), high, high)
	d.VPBROADCASTD(d.at(4), low)
	d.VPSRLVD(d.table32("shiftsBy4", []uint32{0, 4, 8, 12, 16, 20, 24, 28}), low, low)
	d.VPAND(d.eight(15), low, low)
	d.VPOR(high, low, low)
	d.VPSUBD(d.eight(32), low, low)
	d.scales(low, d.halfAt(d.at(0)), d.steps)
}

// headMXFP4 is halfE8M0: 2^(e-128), which is subnormal for the two lowest.
func headMXFP4(d *decoder) {
	e, small, shift := d.GP32(), d.GP32(), reg.ECX
	d.MOVBLZX(d.at(0), shift)
	d.MOVL(U32(0x200000), small)
	d.SHLL(reg.CL, small)
	d.LEAL(Mem{Base: shift.As64(), Disp: -1}, e)
	d.SHLL(Imm(23), e)
	d.CMPL(shift, Imm(2))
	d.CMOVLCS(small, e)
	x := d.XMM()
	d.VMOVD(e, x)
	d.step = d.broadcast(x)
}

// decodeNVFP4 has vectors of eight for both instruction sets: byte j of eight holds weights j and j + 8.
func decodeNVFP4(g *gen) {
	if g.wide() {
		return
	}
	g.begin("decodeNVFP4", "func(dst *float32, src *byte, blocks int)", "decodes blocks of NVFP4.")
	d := &decoder{gen: g, blockLayout: blockLayout{name: "NVFP4", low: field{bits: 4}, values: e2m1Values}}
	d.dst, d.src = g.param("dst"), g.param("src")
	n := g.param("blocks")
	d.loadTable()
	scales := g.GP64()
	g.LEAQ(g.table("ue4m3Halves", halvesUE4M3()), scales)
	g.Label("block")
	for s := range 4 {
		scale := g.GP32()
		g.MOVBLZX(d.at(s), scale)
		step := g.broadcast(Mem{Base: scales, Index: scale.As64(), Scale: 4})
		low, high := g.loadBytes(d.at(4+8*s)), g.vec()
		g.VPSRLD(Imm(4), low, high)
		for half, c := range []reg.VecVirtual{low, high} {
			g.VMOVUPS(g.mul(step, d.look(c)), Mem{Base: d.dst, Disp: 64*s + 32*half})
		}
	}
	g.ADDQ(Imm(36), d.src)
	g.ADDQ(U32(256), d.dst)
	g.DECQ(n)
	g.JNE(LabelRef("block"))
	g.end()
}

// halvesUE4M3 are half the values of all bytes: 0x7f reads as 0, the sign bit is ignored.
func halvesUE4M3() []float32 {
	v := make([]float32, 256)
	for b := range v {
		exp, man := b>>3&15, float32(b&7)
		switch {
		case b == 0x7f:
		case exp == 0:
			v[b] = man * 0x1p-10
		default:
			v[b] = (1 + man/8) / 256 * float32(uint32(1)<<exp)
		}
	}
	return v
}
