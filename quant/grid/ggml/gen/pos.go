package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// pos is searchPos on a plane. Everything rounds with the exact rn: a negative entry can be far outside.
func pos(g *gen) {
	g.begin("pos", "func(codes *uint8, x, w *float32, n int, levels int32, scale *float32)",
		"is searchPos in every lane; n is at most 32.")
	local := g.AllocLocal(32 * rowBytes) // integer codes
	keep := g.slots(1)
	g.lanes(func() {
		x, w, n := g.plane("x"), g.plane("w"), g.rows("n")
		zero := g.zero()
		peak := g.zero()
		g.each("peak", 0, n, func(i reg.GPVirtual) { g.VMAXPS(peak, g.load(at(x, i)), peak) })
		none := g.compare(less, peak, g.float(1e-15))
		g.choose(none, g.float(1), peak)
		empty := g.hold(keep[0], none)
		r, f := g.GP32(), g.XMM()
		g.Load(g.Param("levels"), r)
		g.VMOVD(r, f)
		top := g.vec()
		g.VPBROADCASTD(f, top)
		levels := g.toFloat(top)
		round := g.rounder()

		// The range of least error: first with bytes that wrap, then eight clamped ones.
		inv := g.div(levels, peak)
		best := g.zero()
		s := g.div(g.float(1), inv)
		residue := func(e, s, l reg.VecVirtual, i reg.GPVirtual) {
			d := g.sub(g.load(at(x, i)), g.mul(s, g.toFloat(l)))
			g.addTo(e, g.mul(g.mul(d, at(w, i)), d))
		}
		g.each("first", 0, n, func(i reg.GPVirtual) {
			l := g.bitAnd(g.rn(round, g.mul(inv, at(x, i))), g.int(0xff))
			residue(best, s, l, i)
		})
		k := g.float(-4)
		count := g.GP32()
		g.MOVL(U32(9), count)
		g.Label("candidate")
		g.CMPL(count, Imm(5)) // k = 0
		g.JE(LabelRef("next"))
		trial := g.div(g.add(g.mul(g.float(0.1), k), levels), peak)
		st := g.div(g.float(1), trial)
		e := g.zero()
		g.each("error", 0, n, func(i reg.GPVirtual) {
			residue(e, st, g.intMin(top, g.rn(round, g.mul(trial, at(x, i)))), i)
		})
		better := g.compare(less, e, best)
		g.choose(better, e, best)
		g.choose(better, trial, inv)
		g.Label("next")
		g.addTo(k, g.float(1))
		g.DECL(count)
		g.JNE(LabelRef("candidate"))

		a, b := g.zero(), g.zero()
		g.each("fit", 0, n, func(i reg.GPVirtual) {
			v, wt := g.load(at(x, i)), g.load(at(w, i))
			q := g.intMin(top, g.rn(round, g.mul(inv, v)))
			g.VMOVUPS(g.bitAnd(q, g.int(0xff)), local.Idx(i, 1))
			l := g.toFloat(q)
			g.addTo(a, g.mul(g.mul(wt, v), l))
			g.addTo(b, g.mul(g.mul(wt, l), l))
		})
		sweeps := g.GP32()
		g.MOVL(U32(5), sweeps)
		g.Label("sweep")
		changed := g.noLanes()
		g.each("improve", 0, n, func(i reg.GPVirtual) {
			v, wt := g.load(at(x, i)), g.load(at(w, i))
			code := g.load(local.Idx(i, 1))
			old := g.toFloat(code)
			wx := g.mul(wt, v)
			restA := g.sub(a, g.mul(wx, old))
			restB := g.sub(b, g.mul(g.mul(wt, old), old))
			q := g.intMin(top, g.rn(round, g.div(g.mul(v, restB), restA)))
			ok := g.both(g.compare(greater, restA, zero), g.compare(greater, restB, zero))
			ok = g.without(ok, g.intEqual(q, code))
			next := g.toFloat(q)
			newA := g.add(restA, g.mul(wx, next))
			newB := g.add(restB, g.mul(g.mul(wt, next), next))
			ok = g.both(ok, g.compare(greater, g.mul(g.mul(newA, newA), b), g.mul(g.mul(a, a), newB)))
			g.choose(ok, newA, a)
			g.choose(ok, newB, b)
			g.choose(ok, g.bitAnd(q, g.int(0xff)), code)
			g.VMOVUPS(code, local.Idx(i, 1))
			g.include(changed, ok)
		})
		g.jumpIfNone(changed, "settled")
		g.DECL(sweeps)
		g.JNE(LabelRef("sweep"))
		g.Label("settled")

		codes := g.bytePlane("codes")
		g.each("codes", 0, n, func(i reg.GPVirtual) {
			l := g.load(local.Idx(i, 1))
			g.choose(empty.get(), zero, l)
			g.storeBytes(l, Mem{Base: codes})
			g.ADDQ(Imm(16), codes)
		})
		scale := g.keep(g.without(g.compare(greater, b, zero), empty.get()), g.div(a, b))
		g.VMOVUPS(scale, Mem{Base: g.plane("scale")})
	})
	g.end()
}
