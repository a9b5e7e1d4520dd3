package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// posState is what the parts of the pos kernel share.
type posState struct {
	g           *gen
	x, w, n     reg.GPVirtual
	codes       Mem // rows of integer codes
	zero        reg.VecVirtual
	peak        reg.VecVirtual
	top, levels reg.VecVirtual // the largest code, as integer and as number
	a, b        reg.VecVirtual // Σ w·x·code, Σ w·code²
	round       rounder
}

// pos is searchPos on a plane. Everything rounds with the exact rn: a negative entry can be far outside.
func pos(g *gen) {
	g.begin("pos", "func(codes *uint8, x, w *float32, n int, levels int32, scale *float32)",
		"is searchPos in every lane; n is at most 32.")
	local := g.local(32 * rowBytes)
	keep := g.slots(1)
	g.lanes(func() {
		s := &posState{g: g, x: g.plane("x"), w: g.plane("w"), n: g.rows("n"), codes: local, zero: g.zero(), peak: g.zero()}
		g.each("peak", 0, s.n, func(i reg.GPVirtual) { g.VMAXPS(s.peak, g.load(at(s.x, i)), s.peak) })
		none := g.compare(less, s.peak, g.float(1e-15))
		g.choose(none, g.float(1), s.peak)
		empty := g.hold(keep[0], none)
		r, f := g.GP32(), g.XMM()
		g.Load(g.Param("levels"), r)
		g.VMOVD(r, f)
		s.top = g.vec()
		g.VPBROADCASTD(f, s.top)
		s.levels = g.toFloat(s.top)
		s.round = g.rounder()
		s.fit(s.bestRange())
		s.sweeps()
		s.finish(empty)
	})
	g.end()
}

// residue adds the weighted squared error of codes l at the given scale.
func (s *posState) residue(e, scale, l reg.VecVirtual, i reg.GPVirtual) {
	g := s.g
	d := g.sub(g.load(at(s.x, i)), g.mul(scale, g.toFloat(l)))
	g.addTo(e, g.mul(g.mul(d, at(s.w, i)), d))
}

// bestRange returns the inverse scale of least error: first the exact range, with codes that wrap as bytes do, then eight
// with clamped codes.
func (s *posState) bestRange() (inv reg.VecVirtual) {
	g := s.g
	inv = g.div(s.levels, s.peak)
	best := g.zero()
	scale := g.div(g.float(1), inv)
	g.each("exact", 0, s.n, func(i reg.GPVirtual) {
		s.residue(best, scale, g.bitAnd(g.rn(s.round, g.mul(inv, at(s.x, i))), g.int(0xff)), i)
	})
	k, count := g.float(-4), g.GP32()
	g.MOVL(U32(9), count)
	g.Label("candidate")
	g.CMPL(count, Imm(5)) // k = 0
	g.JE(LabelRef("next"))
	trial := g.div(g.add(g.mul(g.float(0.1), k), s.levels), s.peak)
	scale = g.div(g.float(1), trial)
	e := g.zero()
	g.each("error", 0, s.n, func(i reg.GPVirtual) {
		s.residue(e, scale, g.intMin(s.top, g.rn(s.round, g.mul(trial, at(s.x, i)))), i)
	})
	better := g.compare(less, e, best)
	g.choose(better, e, best)
	g.choose(better, trial, inv)
	g.Label("next")
	g.addTo(k, g.float(1))
	g.DECL(count)
	g.JNE(LabelRef("candidate"))
	return inv
}

// fit stores the codes at inverse scale inv and sums up.
func (s *posState) fit(inv reg.VecVirtual) {
	g := s.g
	s.a, s.b = g.zero(), g.zero()
	g.each("fit", 0, s.n, func(i reg.GPVirtual) {
		v, wt := g.load(at(s.x, i)), g.load(at(s.w, i))
		q := g.intMin(s.top, g.rn(s.round, g.mul(inv, v)))
		g.VMOVUPS(g.bitAnd(q, g.int(0xff)), s.codes.Idx(i, 1))
		l := g.toFloat(q)
		g.addTo(s.a, g.mul(g.mul(wt, v), l))
		g.addTo(s.b, g.mul(g.mul(wt, l), l))
	})
}

// sweeps improves one code at a time.
func (s *posState) sweeps() {
	g := s.g
	sweeps := g.GP32()
	g.MOVL(U32(5), sweeps)
	g.Label("sweep")
	changed := g.noLanes()
	g.each("improve", 0, s.n, func(i reg.GPVirtual) {
		v, wt := g.load(at(s.x, i)), g.load(at(s.w, i))
		code := g.load(s.codes.Idx(i, 1))
		old := g.toFloat(code)
		wx := g.mul(wt, v)
		restA, restB := g.sub(s.a, g.mul(wx, old)), g.sub(s.b, g.mul(g.mul(wt, old), old))
		q := g.intMin(s.top, g.rn(s.round, g.div(g.mul(v, restB), restA)))
		ok := g.both(g.compare(greater, restA, s.zero), g.compare(greater, restB, s.zero))
		ok = g.without(ok, g.intEqual(q, code))
		next := g.toFloat(q)
		newA, newB := g.add(restA, g.mul(wx, next)), g.add(restB, g.mul(g.mul(wt, next), next))
		ok = g.both(ok, g.compare(greater, g.mul(g.mul(newA, newA), s.b), g.mul(g.mul(s.a, s.a), newB)))
		g.choose(ok, newA, s.a)
		g.choose(ok, newB, s.b)
		g.choose(ok, g.bitAnd(q, g.int(0xff)), code)
		g.VMOVUPS(code, s.codes.Idx(i, 1))
		g.include(changed, ok)
	})
	g.jumpIfNone(changed, "settled")
	g.DECL(sweeps)
	g.JNE(LabelRef("sweep"))
	g.Label("settled")
}

func (s *posState) finish(empty heldMask) {
	g := s.g
	none := empty.get()
	codes := g.bytePlane("codes")
	g.each("codes", 0, s.n, func(i reg.GPVirtual) {
		l := g.load(s.codes.Idx(i, 1))
		g.choose(none, s.zero, l)
		g.storeBytes(l, Mem{Base: codes})
		g.ADDQ(Imm(16), codes)
	})
	scale := g.keep(g.without(g.compare(greater, s.b, s.zero), none), g.div(s.a, s.b))
	g.VMOVUPS(scale, Mem{Base: g.plane("scale")})
}
