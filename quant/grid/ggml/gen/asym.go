package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// asymState is what the parts of the asym kernel share. Registers hold what the inner loops need, slots the rest.
type asymState struct {
	g                            *gen
	x, w, n                      reg.GPVirtual
	trial                        Mem // codes of a candidate, rows of float32
	levels, zero, lo, inv        reg.VecVirtual
	hi, lowest, sumW, sumX, best slot // largest and smallest element, Σ w, Σ w·x, least error
	scale, bestInv, bestLo       slot // of the best candidate: its scale, and the range that gave its codes
	bad                          heldMask
}

// asym is searchAsym on a plane.
func asym(g *gen) {
	g.begin("asym", "func(codes *uint8, x, w *float32, n int, levels, first, step float32, steps int32, abs bool, "+
		"scale, minimum, sum *float32) (ok bool)",
		"is searchAsym in every lane, n at most 32; sum receives Σ w. When ok is false a lane left the range of exact "+
			"rounding and nothing is valid.")
	trial := g.AllocLocal(32 * rowBytes)
	keep := g.slots(11)
	ok := g.GP32()
	g.MOVL(U32(1), ok)
	g.lanes(func() {
		s := &asymState{g: g, x: g.plane("x"), w: g.plane("w"), n: g.rows("n"), trial: trial, zero: g.zero(),
			hi: keep[0], lowest: keep[1], sumW: keep[2], sumX: keep[3], best: keep[4], scale: keep[5], bestInv: keep[6], bestLo: keep[7]}
		s.bad = g.hold(keep[8], g.noLanes())
		s.levels = s.scalar("levels")
		hi := s.extremes()
		empty := g.hold(keep[9], g.compare(lessEqual, hi, s.lo)) // constant and not positive: scale 0
		firstLo := keep[10]
		firstLo.put(s.lo)
		g.choose(empty.get(), g.add(s.lo, g.float(1)), hi) // any range will do: the result is masked in finish
		s.hi.put(hi)
		s.inv = g.div(s.levels, g.sub(hi, s.lo))
		scale := g.div(g.float(1), s.inv)
		s.scale.put(scale)
		s.bestInv.put(s.inv)
		s.bestLo.put(s.lo)
		s.guard()
		g.each("initial", 0, s.n, func(i reg.GPVirtual) { s.code(g.load(at(s.x, i)), i) })
		e := s.error("initial", scale, s.lo)
		g.choose(empty.get(), g.float(-1), e) // errors are not negative: never replaced
		s.best.put(e)
		s.candidates()
		s.finish(empty, firstLo)
		g.jumpIfNone(s.bad.get(), "fine")
		g.XORL(ok, ok)
		g.Label("fine")
	})
	g.Store(ok.As8(), g.ReturnIndex(0))
	g.end()
}

// scalar broadcasts a float32 argument.
func (s *asymState) scalar(name string) reg.VecVirtual {
	f := s.g.XMM()
	s.g.Load(s.g.Param(name), f)
	return s.g.broadcast(f)
}

// extremes finds the range of x and the sums of w and w·x.
func (s *asymState) extremes() (hi reg.VecVirtual) {
	g := s.g
	lo, sumW := g.load(Mem{Base: s.x}), g.load(Mem{Base: s.w})
	hi = g.copy(lo)
	sumX := g.mul(sumW, lo)
	g.each("extremes", rowBytes, s.n, func(i reg.GPVirtual) {
		v, w := g.load(at(s.x, i)), g.load(at(s.w, i))
		g.VMINPS(lo, v, lo) // v < lo ? v : lo
		g.VMAXPS(hi, v, hi)
		g.addTo(sumW, w)
		g.addTo(sumX, g.mul(w, v))
	})
	s.sumW.put(sumW)
	s.sumX.put(sumX)
	s.lowest.put(lo)
	s.lo = g.smaller(s.zero, lo) // 0 < lo ? 0 : lo
	return hi
}

// guard marks lanes whose arguments of rn may leave ±2^22, where the portable rn wraps and vector rounding does not: it
// wants inv·(hi − lo) and inv·(lowest − lo) inside.
func (s *asymState) guard() {
	g := s.g
	width := g.sub(s.hi.get(), s.lo)
	s.bad.include(g.compare(notGreater, width, s.zero))
	s.bad.include(g.compare(notGreater, g.float(4e6), g.mul(s.inv, width)))
	s.bad.include(g.compare(notGreater, g.mul(s.inv, g.sub(s.lowest.get(), s.lo)), g.float(-4e6)))
}

// code rounds x at the current inv and lo and stores the code of row i.
func (s *asymState) code(x reg.VecVirtual, i reg.GPVirtual) (l reg.VecVirtual) {
	g := s.g
	l = g.roundClamp(g.mul(s.inv, g.sub(x, s.lo)), s.zero, s.levels)
	g.VMOVUPS(l, s.trial.Idx(i, 1))
	return l
}

// candidates tries ranges levels + first + step·k, k = 0 … steps.
func (s *asymState) candidates() {
	g := s.g
	k, steps := g.GP32(), g.GP32()
	g.XORL(k, k)
	g.Load(g.Param("steps"), steps)
	g.Label("candidate")
	kf := g.XMM()
	g.VXORPS(kf, kf, kf)
	g.VCVTSI2SSL(k, kf, kf)
	numerator := g.add(g.add(s.scalar("first"), g.mul(s.scalar("step"), g.broadcast(kf))), s.levels)
	g.set(s.inv, g.div(numerator, g.sub(s.hi.get(), s.lo)))
	s.guard()
	scale, lo, solved := s.fit()
	e := s.error("candidate", scale, lo)
	better := g.both(solved, g.compare(less, e, s.best.get()))
	s.best.choose(better, e)
	s.scale.choose(better, scale)
	s.bestInv.choose(better, s.inv)
	s.bestLo.choose(better, s.lo)
	g.choose(better, lo, s.lo) // later candidates start from the new minimum
	g.INCL(k)
	g.CMPL(k, steps)
	g.JLE(LabelRef("candidate"))
}

// fit rounds at the current inv and lo and solves for scale and minimum; solved holds the lanes with a solution.
func (s *asymState) fit() (scale, lo reg.VecVirtual, solved mask) {
	g := s.g
	sl, sl2, sxl := g.zero(), g.zero(), g.zero()
	g.each("fit", 0, s.n, func(i reg.GPVirtual) {
		x := g.load(at(s.x, i))
		l := s.code(x, i)
		wl := g.mul(l, at(s.w, i))
		g.addTo(sl, wl)
		g.addTo(sl2, g.mul(wl, l))
		g.addTo(sxl, g.mul(wl, x))
	})
	sumW, sumX := s.sumW.get(), s.sumX.get()
	det := g.sub(g.mul(sumW, sl2), g.mul(sl, sl))
	scale = g.div(g.sub(g.mul(sumW, sxl), g.mul(sumX, sl)), det)
	lo = g.div(g.sub(g.mul(sl2, sumX), g.mul(sl, sxl)), det)
	positive := g.compare(greater, lo, s.zero)
	g.choose(positive, g.div(sxl, sl2), scale)
	g.choose(positive, s.zero, lo)
	return scale, lo, g.compare(greater, det, s.zero)
}

// error returns the weighted error of the stored codes: of squares, or of magnitudes if abs is set.
func (s *asymState) error(label string, scale, lo reg.VecVirtual) (e reg.VecVirtual) {
	g := s.g
	e = g.zero()
	diff := func(i reg.GPVirtual) reg.VecVirtual {
		return g.sub(g.add(g.mul(scale, s.trial.Idx(i, 1)), lo), at(s.x, i))
	}
	abs := g.GP8()
	g.Load(g.Param("abs"), abs)
	g.TESTB(abs, abs)
	g.JNE(LabelRef(label + "Abs"))
	g.each(label+"SquareRow", 0, s.n, func(i reg.GPVirtual) {
		d := diff(i)
		g.addTo(e, g.mul(g.mul(d, d), at(s.w, i)))
	})
	g.JMP(LabelRef(label + "Done"))
	g.Label(label + "Abs")
	magnitude := g.int(0x7fffffff)
	g.each(label+"AbsRow", 0, s.n, func(i reg.GPVirtual) {
		g.addTo(e, g.mul(g.abs(diff(i), magnitude), at(s.w, i)))
	})
	g.Label(label + "Done")
	return e
}

// finish writes the results, the codes from the winning candidate's range.
func (s *asymState) finish(empty heldMask, firstLo slot) {
	g := s.g
	none := empty.get()
	codes := g.bytePlane("codes")
	bestInv, bestLo := s.bestInv.get(), s.bestLo.get()
	g.each("codes", 0, s.n, func(i reg.GPVirtual) {
		l := g.roundClamp(g.mul(bestInv, g.sub(g.load(at(s.x, i)), bestLo)), s.zero, s.levels)
		g.choose(none, s.zero, l)
		g.storeBytes(g.toInt(l), Mem{Base: codes})
		g.ADDQ(Imm(16), codes)
	})
	scale := s.scale.get()
	g.choose(none, s.zero, scale)
	g.VMOVUPS(scale, Mem{Base: g.plane("scale")})
	g.choose(none, firstLo.get(), s.lo)
	g.VMOVUPS(g.negate(s.lo), Mem{Base: g.plane("minimum")})
	g.VMOVUPS(s.sumW.get(), Mem{Base: g.plane("sum")})
}
