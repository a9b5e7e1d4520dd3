package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// sym is searchSym on a plane.
func sym(g *gen) {
	g.begin("sym", "func(codes *uint8, x, w *float32, n int, levels float32, scale *float32)",
		"is searchSym with weights in every lane.")
	g.lanes(func() {
		x, w, n := g.plane("x"), g.plane("w"), g.rows("n")
		zero := g.zero()
		peak, empty := peaks(g, x, n)
		f := g.XMM()
		g.Load(g.Param("levels"), f)
		levels := g.broadcast(f)
		low := g.sub(zero, levels)
		high := g.sub(levels, g.float(1))
		code := func(inv reg.VecVirtual, v Op) reg.VecVirtual { return g.roundClamp(g.mul(inv, v), low, high) }
		sums := func(label string, inv reg.VecVirtual) (a, b reg.VecVirtual) {
			a, b = g.zero(), g.zero()
			g.each(label, 0, n, func(i reg.GPVirtual) {
				v, wt := g.load(at(x, i)), g.load(at(w, i))
				l := code(inv, v)
				g.addTo(a, g.mul(g.mul(wt, v), l))
				g.addTo(b, g.mul(g.mul(wt, l), l))
			})
			return a, b
		}
		inv := g.div(low, peak)
		a, b := sums("first", inv)
		scale := g.keep(g.compare(notEqual, b, zero), g.div(a, b))
		best, bestInv := g.mul(scale, a), g.copy(inv)

		k := g.float(-9)
		k32 := g.GP32()
		g.MOVL(U32(19), k32)
		g.Label("candidate")
		g.CMPL(k32, Imm(10)) // k = 0 was the first
		g.JE(LabelRef("next"))
		c := g.sub(zero, g.add(levels, g.mul(g.float(0.1), k)))
		inv = g.div(c, peak)
		a, b = sums("sums", inv)
		better := g.both(g.compare(greater, b, zero), g.compare(greater, g.mul(a, a), g.mul(best, b)))
		g.choose(better, g.div(a, b), scale)
		g.choose(better, g.mul(scale, a), best)
		g.choose(better, inv, bestInv)
		g.Label("next")
		g.addTo(k, g.float(1))
		g.DECL(k32)
		g.JNE(LabelRef("candidate"))

		codes := g.bytePlane("codes")
		g.each("codes", 0, n, func(i reg.GPVirtual) {
			l := g.add(code(bestInv, at(x, i)), levels)
			g.choose(empty, zero, l)
			g.storeBytes(g.toInt(l), Mem{Base: codes})
			g.ADDQ(Imm(16), codes)
		})
		g.choose(empty, zero, scale)
		g.VMOVUPS(scale, Mem{Base: g.plane("scale")})
	})
	g.end()
}

// peaks is extreme on a plane: the first element of largest magnitude. Lanes whose magnitudes stay below searchEps are
// empty; their peak becomes 1.
func peaks(g *gen, x, n reg.Register) (peak reg.VecVirtual, empty mask) {
	peak = g.zero()
	amax := g.zero()
	magnitude := g.int(0x7fffffff)
	g.each("peak", 0, n, func(i reg.GPVirtual) {
		v := g.load(at(x, i))
		a := g.abs(v, magnitude)
		m := g.compare(greater, a, amax)
		g.choose(m, a, amax)
		g.choose(m, v, peak)
	})
	empty = g.compare(less, amax, g.float(1e-15))
	g.choose(empty, g.float(1), peak)
	return peak, empty
}

// sym3 is searchSym3 on a plane of 16 rows.
func sym3(g *gen) {
	g.begin("sym3", "func(codes *uint8, x, scale *float32)", "is searchSym3 in every lane of 16 rows.")
	local := g.AllocLocal(16 * rowBytes)
	keep := g.slots(1)
	g.lanes(func() {
		x := g.plane("x")
		n := g.GP64()
		g.MOVQ(U32(16*rowBytes), n)
		zero := g.zero()
		peak, none := peaks(g, x, n)
		empty := g.hold(keep[0], none)
		low, high := g.float(-4), g.float(3)
		inv := g.div(low, peak)
		a, b := g.zero(), g.zero()
		g.each("first", 0, n, func(i reg.GPVirtual) {
			v := g.load(at(x, i))
			l := g.roundClamp(g.mul(inv, v), low, high)
			g.VMOVUPS(l, local.Idx(i, 1))
			w := g.mul(v, v)
			g.addTo(a, g.mul(g.mul(w, v), l))
			g.addTo(b, g.mul(g.mul(w, l), l))
		})
		round := g.rounder()
		sweeps := g.GP32()
		g.MOVL(U32(5), sweeps)
		g.Label("sweep")
		changed := g.noLanes()
		g.each("improve", 0, n, func(i reg.GPVirtual) {
			v, old := g.load(at(x, i)), g.load(local.Idx(i, 1))
			w := g.mul(v, v)
			wx := g.mul(w, v)
			restA := g.sub(a, g.mul(wx, old))
			restB := g.sub(b, g.mul(g.mul(w, old), old))
			q := g.rn(round, g.div(g.mul(v, restB), restA))
			next := g.toFloat(g.intMin(g.intMax(q, g.int(0xfffffffc)), g.int(3)))
			ok := g.both(g.compare(greater, restA, zero), g.compare(notEqual, next, old))
			newA := g.add(restA, g.mul(wx, next))
			newB := g.add(restB, g.mul(g.mul(w, next), next))
			ok = g.both(ok, g.compare(greater, newB, zero))
			ok = g.both(ok, g.compare(greater, g.mul(g.mul(newA, newA), b), g.mul(g.mul(a, a), newB)))
			g.choose(ok, newA, a)
			g.choose(ok, newB, b)
			g.choose(ok, next, old)
			g.VMOVUPS(old, local.Idx(i, 1))
			g.include(changed, ok)
		})
		g.jumpIfNone(changed, "settled")
		g.DECL(sweeps)
		g.JNE(LabelRef("sweep"))
		g.Label("settled")

		codes := g.bytePlane("codes")
		four := g.float(4)
		g.each("codes", 0, n, func(i reg.GPVirtual) {
			l := g.add(four, local.Idx(i, 1))
			g.choose(empty.get(), zero, l)
			g.storeBytes(g.toInt(l), Mem{Base: codes})
			g.ADDQ(Imm(16), codes)
		})
		scale := g.keep(g.without(g.compare(greater, b, zero), empty.get()), g.div(a, b))
		g.VMOVUPS(scale, Mem{Base: g.plane("scale")})
	})
	g.end()
}
