package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The kernels of this file work inside a block of 32 weights, in the order of the row: what they compute per block (a
// maximum, a minimum) does not depend on the order.

const blockElems = 32

// blockLoop runs body for every block; x and dst advance by a block.
func (g *gen) blockLoop(size int, body func(x, dst reg.GPVirtual)) {
	dst, x, n := g.param("dst"), g.param("x"), g.param("blocks")
	g.Label("block")
	body(x, dst)
	g.ADDQ(Imm(4*blockElems), x)
	g.ADDQ(Imm(uint64(size)), dst)
	g.DECQ(n)
	g.JNE(LabelRef("block"))
}

// loadBlock loads 32 floats into two or four vectors.
func (g *gen) loadBlock(x reg.Register) []reg.VecVirtual {
	v := make([]reg.VecVirtual, 4*blockElems/g.bytes)
	for i := range v {
		v[i] = g.load(Mem{Base: x, Disp: i * g.bytes})
	}
	return v
}

// fold combines all elements of the vectors with op and returns the result in every lane.
func (g *gen) fold(v []reg.VecVirtual, op func(a, b Op, dst reg.Register)) reg.VecVirtual {
	for len(v) > 1 {
		r := g.vec()
		op(v[0], v[1], r)
		v = append(v[2:], r)
	}
	r := v[0]
	y := g.YMM()
	if g.wide() {
		g.VEXTRACTF64X4(Imm(1), r, y)
		op(y, r.AsY(), y)
	} else {
		g.VMOVAPS(r, y)
	}
	x, t := g.XMM(), g.XMM()
	g.VEXTRACTF128(Imm(1), y, x)
	op(x, y.AsX(), x)
	g.VPERMILPS(Imm(0x4e), x, t)
	op(t, x, x)
	g.VPERMILPS(Imm(0xb1), x, t)
	op(t, x, x)
	return g.broadcast(x)
}

func (g *gen) opMax(a, b Op, dst reg.Register) { g.VMAXPS(a, b, dst) }
func (g *gen) opMin(a, b Op, dst reg.Register) { g.VMINPS(a, b, dst) }

// first returns, in every lane, the first element of the block for which the vectors in `of` equal what.
func (g *gen) first(x reg.Register, of []reg.VecVirtual, what reg.VecVirtual) reg.VecVirtual {
	bits := g.GP32()
	for i := len(of) - 1; i >= 0; i-- {
		m := g.laneBits(g.compare(equal, of[i], what))
		if i == len(of)-1 {
			g.MOVL(m, bits)
			continue
		}
		g.SHLL(Imm(uint64(g.bytes/4)), bits)
		g.ORL(m, bits)
	}
	g.BSFL(bits, bits)
	return g.broadcast(Mem{Base: x, Index: bits.As64(), Scale: 4})
}

// laneBits turns a mask into bits.
func (g *gen) laneBits(m mask) reg.GPVirtual {
	r := g.GP32()
	if g.wide() {
		g.KMOVW(m, r)
	} else {
		g.VMOVMSKPS(m, r)
	}
	return r
}

// ratio is a/b in the first lane: dividing all takes several times as long.
func (g *gen) ratio(a, b reg.VecVirtual) reg.VecVirtual {
	r := g.XMM()
	g.VDIVSS(b.AsX(), a.AsX(), r)
	return r
}

// inverse is 1/d of the first lane in every lane, 0 for 0.
func (g *gen) inverse(d, one reg.VecVirtual) reg.VecVirtual {
	zero, live := g.XMM(), g.XMM()
	g.VXORPS(zero, zero, zero)
	g.VCMPPS(Imm(notEqual), zero, d.AsX(), live)
	r := g.ratio(one, d)
	g.VANDPS(live, r, r)
	return g.broadcast(r)
}

// storeHalf stores the first lane as fp16.
func (g *gen) storeHalf(v reg.VecVirtual, m Mem) {
	h := g.XMM()
	g.VCVTPS2PH(Imm(0), v.AsX(), h)
	g.VPEXTRW(Imm(0), h, m)
}

// storeLowBytes stores the low byte of 32 integers, in order.
func (g *gen) storeLowBytes(v []reg.VecVirtual, m Mem) {
	if g.wide() {
		for i, r := range v {
			g.VPMOVDB(r, m.Offset(16*i))
		}
		return
	}
	low := g.int(0xff)
	for i := range v {
		v[i] = g.bitAnd(v[i], low)
	}
	a, b := g.YMM(), g.YMM()
	g.VPACKUSDW(v[1], v[0], a)
	g.VPACKUSDW(v[3], v[2], b)
	g.VPACKUSWB(b, a, a) // quarters 0 2 4 6, 1 3 5 7
	order := g.YMM()
	g.VMOVDQU(g.table32("packOrder", []uint32{0, 4, 1, 5, 2, 6, 3, 7}), order)
	g.VPERMD(a, order, a)
	g.VMOVDQU(a, m)
}

// table32 places integers in read-only data.
func (g *gen) table32(name string, values []uint32) Mem {
	if m, ok := g.constants[name]; ok {
		return m
	}
	m := g.StaticGlobal(name)
	g.DataAttributes(rodata)
	for i, v := range values {
		g.AddDatum(4*i, U32(v))
	}
	g.constants[name] = m
	return m
}

// blockQ80 encodes Q8_0.
func blockQ80(g *gen) {
	g.begin("blockQ80", "func(dst *byte, x *float32, blocks int)", "encodes blocks of Q8_0.")
	magnitude, one, levels := g.int(0x7fffffff), g.float(1), g.float(127)
	sign, half := g.int(0x80000000), g.int(0x3effffff) // the number before 0.5: sums round ties away from zero
	g.blockLoop(34, func(x, dst reg.GPVirtual) {
		v := g.loadBlock(x)
		var a []reg.VecVirtual
		for _, r := range v {
			a = append(a, g.abs(r, magnitude))
		}
		d := g.ratio(g.fold(a, g.opMax), levels)
		g.storeHalf(d, Mem{Base: dst})
		inv := g.inverse(d, one)
		for i := range v {
			q := g.mul(v[i], inv)
			s := g.bitAnd(q, sign)
			g.orTo(s, half)
			v[i] = g.toInt(g.add(q, s))
		}
		g.storeLowBytes(v, Mem{Base: dst, Disp: 2})
	})
	g.end()
}

// nibbles stores codes 0 … 15 of 32 weights as 16 bytes, and, if high is set, bit 4 of every code as a word before them.
func (g *gen) nibbles(v []reg.VecVirtual, m Mem, high bool) {
	if high {
		word := g.GP32()
		for i := len(v) - 1; i >= 0; i-- {
			s := g.vec()
			g.VPSLLD(Imm(27), v[i], s)
			var bits reg.GPVirtual
			if g.wide() {
				k := g.K()
				g.VPMOVD2M(s, k)
				bits = g.laneBits(k)
			} else {
				bits = g.laneBits(s)
			}
			if i == len(v)-1 {
				g.MOVL(bits, word)
			} else {
				g.SHLL(Imm(uint64(g.bytes/4)), word)
				g.ORL(bits, word)
			}
		}
		g.MOVL(word, m)
		m = m.Offset(4)
	}
	low := g.int(15)
	n := len(v) / 2
	for i := range n {
		lo, hi := g.bitAnd(v[i], low), g.bitAnd(v[i+n], low)
		g.VPSLLD(Imm(4), hi, hi)
		g.orTo(lo, hi)
		v[i] = lo
	}
	if g.wide() {
		g.VPMOVDB(v[0], m)
		return
	}
	a, h := g.YMM(), g.XMM()
	g.VPACKUSDW(v[1], v[0], a)
	g.VPERMQ(Imm(0xd8), a, a)
	g.VEXTRACTI128(Imm(1), a, h)
	g.VPACKUSWB(h, a.AsX(), h)
	g.VMOVDQU(h, m)
}

// blockSym encodes Q4_0 (levels 8) or Q5_0 (levels 16) without importance.
func blockSym(name string, levels float32, size int) func(*gen) {
	return func(g *gen) {
		g.begin("block"+name, "func(dst *byte, x *float32, blocks int)", "encodes blocks of "+name+" without importance.")
		magnitude, one, least := g.int(0x7fffffff), g.float(1), g.float(-levels)
		half, top := g.float(levels+0.5), g.int(uint32(2*levels-1))
		g.blockLoop(size, func(x, dst reg.GPVirtual) {
			v := g.loadBlock(x)
			var a []reg.VecVirtual
			for _, r := range v {
				a = append(a, g.abs(r, magnitude))
			}
			peak := g.add(g.first(x, a, g.fold(a, g.opMax)), g.zero()) // a block of zeros has peak +0
			d := g.ratio(peak, least)
			g.storeHalf(d, Mem{Base: dst})
			inv := g.inverse(d, one)
			for i := range v {
				v[i] = g.intMin(g.toInt(g.add(g.mul(v[i], inv), half)), top)
			}
			g.nibbles(v, Mem{Base: dst, Disp: 2}, levels > 8)
		})
		g.end()
	}
}

// blockMin encodes Q4_1 (levels 15) or Q5_1 (levels 31) without importance.
func blockMin(name string, levels float32, size int) func(*gen) {
	return func(g *gen) {
		g.begin("block"+name, "func(dst *byte, x *float32, blocks int)", "encodes blocks of "+name+" without importance.")
		one, most := g.float(1), g.float(levels)
		half, top := g.float(0.5), g.int(uint32(levels))
		g.blockLoop(size, func(x, dst reg.GPVirtual) {
			v := g.loadBlock(x)
			lo := g.first(x, v, g.fold(v, g.opMin)) // the first of equals: zeros have signs
			hi := g.first(x, v, g.fold(v, g.opMax))
			d := g.ratio(g.sub(hi, lo), most)
			g.storeHalf(d, Mem{Base: dst})
			g.storeHalf(lo, Mem{Base: dst, Disp: 2})
			inv := g.inverse(d, one)
			for i := range v {
				v[i] = g.intMin(g.toInt(g.add(g.mul(g.sub(v[i], lo), inv), half)), top)
			}
			g.nibbles(v, Mem{Base: dst, Disp: 4}, levels > 15)
		})
		g.end()
	}
}

// blockPeaks finds the largest magnitude of runs of 16.
func blockPeaks(g *gen) {
	g.begin("blockPeaks", "func(peak, x *float32, runs int)", "sets peak to the largest magnitude of every 16 floats.")
	peak, x, n := g.param("peak"), g.param("x"), g.param("runs")
	magnitude := g.int(0x7fffffff)
	g.Label("run")
	v := make([]reg.VecVirtual, 64/g.bytes)
	for i := range v {
		v[i] = g.abs(g.load(Mem{Base: x, Disp: i * g.bytes}), magnitude)
	}
	g.VMOVSS(g.fold(v, g.opMax).AsX(), Mem{Base: peak})
	g.ADDQ(Imm(64), x)
	g.ADDQ(Imm(4), peak)
	g.DECQ(n)
	g.JNE(LabelRef("run"))
	g.end()
}

// blockE2M1 rounds runs of 16 to codes of E2M1.
func blockE2M1(g *gen) {
	g.begin("blockE2M1", "func(codes *byte, x, scale *float32, runs int)",
		"is codesE2M1 for runs of 16 floats with a scale each; a scale of 0 gives codes of 0.")
	codes, x, scale, n := g.param("codes"), g.param("x"), g.param("scale"), g.param("runs")
	magnitude := g.int(0x7fffffff)
	g.Label("run")
	d := g.broadcast(Mem{Base: scale})
	var middles []reg.VecVirtual
	for _, m := range []float32{0.5, 1.5, 2.5, 3.5, 5, 7, 10} {
		middles = append(middles, g.mul(d, g.float(m)))
	}
	live := g.ones(g.compare(notEqual, d, g.zero()))
	for i := range 64 / g.bytes {
		v := g.load(Mem{Base: x, Disp: i * g.bytes})
		a := g.abs(v, magnitude)
		c := g.zero()
		for _, m := range middles {
			g.VPSUBD(g.ones(g.compare(greater, a, m)), c, c) // a true lane is -1
		}
		negative := g.both(g.compare(less, v, g.zero()), g.compare(notEqual, c, g.zero()))
		g.orTo(c, g.bitAnd(g.ones(negative), g.int(8)))
		g.storeBytes(g.bitAnd(c, live), Mem{Base: codes, Disp: i * g.bytes / 4})
	}
	g.ADDQ(Imm(64), x)
	g.ADDQ(Imm(16), codes)
	g.ADDQ(Imm(4), scale)
	g.DECQ(n)
	g.JNE(LabelRef("run"))
	g.end()
}

// blockDigits rounds runs of 16 to -1, 0, 1 of their scale, plus one.
func blockDigits(g *gen) {
	g.begin("blockDigits", "func(codes *byte, x *float32, runs int, inverse float32)",
		"rounds x·inverse to the nearest integer, ties away from zero, plus one, for runs of 16 floats.")
	codes, x, n := g.param("codes"), g.param("x"), g.param("runs")
	f := g.XMM()
	g.Load(g.Param("inverse"), f)
	inv := g.broadcast(f)
	sign, half, one := g.int(0x80000000), g.int(0x3effffff), g.int(1)
	low := g.int(0xff)
	g.Label("run")
	for i := range 64 / g.bytes {
		q := g.mul(inv, Mem{Base: x, Disp: i * g.bytes})
		s := g.bitAnd(q, sign)
		g.orTo(s, half)
		g.storeBytes(g.bitAnd(g.intAdd(g.toInt(g.add(q, s)), one), low), Mem{Base: codes, Disp: i * g.bytes / 4})
	}
	g.ADDQ(Imm(64), x)
	g.ADDQ(Imm(16), codes)
	g.DECQ(n)
	g.JNE(LabelRef("run"))
	g.end()
}

// largest scans for NaN, infinities and weights beyond a limit: as integers, magnitudes are ordered like the numbers.
func largest(g *gen) {
	g.begin("largest", "func(x *float32, runs int) (bits uint32)", "returns the largest magnitude in runs of 16 floats, as bits.")
	x, n := g.param("x"), g.param("runs")
	magnitude := g.int(0x7fffffff)
	most := []reg.VecVirtual{g.zero(), g.zero()}
	g.Label("run")
	for i := range 64 / g.bytes {
		a := g.abs(g.load(Mem{Base: x, Disp: i * g.bytes}), magnitude)
		g.VPMAXUD(a, most[i%2], most[i%2])
	}
	g.ADDQ(Imm(64), x)
	g.DECQ(n)
	g.JNE(LabelRef("run"))
	r := g.fold(most, func(a, b Op, dst reg.Register) { g.VPMAXUD(a, b, dst) })
	bits := g.GP32()
	g.VMOVD(r.AsX(), bits)
	g.Store(bits, g.ReturnIndex(0))
	g.end()
}
