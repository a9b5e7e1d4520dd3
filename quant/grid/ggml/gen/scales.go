package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The scales of the sub-blocks of super-blocks become small integers times one number of the super-block, which lies in a
// lane.

// integer broadcasts an int32 argument.
func (g *gen) integer(name string) reg.VecVirtual {
	r, x, v := g.GP32(), g.XMM(), g.vec()
	g.Load(g.Param(name), r)
	g.VMOVD(r, x)
	g.VPBROADCASTD(x, v)
	return v
}

// scalar broadcasts a float32 argument.
func (g *gen) scalar(name string) reg.VecVirtual {
	f := g.XMM()
	g.Load(g.Param(name), f)
	return g.broadcast(f)
}

// roundHalf rounds to fp16 and back.
func (g *gen) roundHalf(v reg.VecVirtual) reg.VecVirtual {
	h, r := g.YMM(), g.vec()
	if g.wide() {
		g.VCVTPS2PH(Imm(0), v, h)
		g.VCVTPH2PS(h, r)
		return r
	}
	g.VCVTPS2PH(Imm(0), v, h.AsX())
	g.VCVTPH2PS(h.AsX(), r)
	return r
}

// storeLevels writes row i of the integers, and of what they stand for.
func (g *gen) storeLevels(l, d reg.VecVirtual, levels, step, i reg.GPVirtual) {
	g.VMOVUPS(g.mul(d, g.toFloat(l)), at(step, i))
	if g.wide() {
		g.VPMOVDB(l, Mem{Base: levels})
	} else {
		g.storeBytes(g.bitAnd(l, g.int(0xff)), Mem{Base: levels})
	}
	g.ADDQ(Imm(16), levels)
}

// signedScales gives the largest magnitude the lowest integer.
func signedScales(g *gen) {
	g.begin("signedScales", "func(levels *uint8, step, d, scale *float32, n int, lowest float32, highest, none int32, eps float32)",
		"sets levels to clamp(rn(scale·lowest/peak), lowest, highest), d to peak/lowest as fp16 rounds it and step to d·level "+
			"over n rows, peak being the first scale of largest magnitude; lanes with none of magnitude eps have levels `none`, d 0.")
	g.lanes(func() {
		scale, n := g.plane("scale"), g.rows("n")
		peak, empty := peaks(g, "peak", scale, n, g.scalar("eps"))
		lowest := g.scalar("lowest")
		inv := g.div(lowest, peak)
		d := g.roundHalf(g.div(g.float(1), inv))
		g.choose(empty, g.zero(), d)
		g.VMOVUPS(d, Mem{Base: g.plane("d")})
		low, high, none := g.toInt(lowest), g.integer("highest"), g.integer("none")
		levels, step, round := g.bytePlane("levels"), g.plane("step"), g.rounder()
		g.each("row", 0, n, func(i reg.GPVirtual) {
			l := g.intMin(g.intMax(g.rn(round, g.mul(inv, at(scale, i))), low), high)
			g.choose(empty, none, l)
			g.storeLevels(l, d, levels, step, i)
		})
	})
	g.end()
}

// maxScales gives the largest scale the highest integer; negative ones wrap as bytes do.
func maxScales(g *gen) {
	g.begin("maxScales", "func(levels *uint8, step, d, scale *float32, n int, highest float32)",
		"sets levels to min(byte(rn(scale·highest/peak)), highest), d to peak/highest as fp16 rounds it and step to d·level over n "+
			"rows, peak being the largest scale; lanes with none above 0 have levels and d 0.")
	g.lanes(func() {
		scale, n := g.plane("scale"), g.rows("n")
		peak := g.zero()
		g.each("peak", 0, n, func(i reg.GPVirtual) {
			v := g.load(at(scale, i))
			g.VMAXPS(peak, v, peak) // v > peak ? v : peak
		})
		live := g.compare(greater, peak, g.zero())
		highest := g.scalar("highest")
		inv := g.div(highest, peak)
		d := g.keep(live, g.roundHalf(g.div(peak, highest)))
		g.VMOVUPS(d, Mem{Base: g.plane("d")})
		top := g.toInt(highest)
		levels, step, round := g.bytePlane("levels"), g.plane("step"), g.rounder()
		g.each("row", 0, n, func(i reg.GPVirtual) {
			l := g.bitAnd(g.rn(round, g.mul(inv, at(scale, i))), g.int(0xff))
			g.storeLevels(g.keep(live, g.intMin(l, top)), d, levels, step, i)
		})
	})
	g.end()
}
