package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// asymState is what the parts of the asym kernels share.
type asymState struct {
	g            *gen
	n            reg.GPVirtual
	levels, zero reg.VecVirtual
	ways         []*asymWay
}

// asymWay is the search of one sub-block. Registers hold what the inner loops need, slots the rest.
type asymWay struct {
	x, w                         reg.GPVirtual
	trial                        Mem // codes of a candidate, rows of float32
	lo, inv                      reg.VecVirtual
	hi, lowest, sumW, sumX, best slot // largest and smallest element, Σ w, Σ w·x, least error
	scale, bestInv, bestLo       slot // of the best candidate: its scale, and the range that gave its codes
	bad, empty                   heldMask
	firstLo, keepBad, keepEmpty  slot
	newScale, newLo              slot // of the candidate in work
	solved                       heldMask
	keepSolved                   slot
}

const asymSlots = 14

// asym is searchAsym on planes of the given number of sub-blocks. Candidates depend on each other; two independent
// searches fill the gaps that one leaves.
func asym(name string, ways int) func(*gen) {
	return func(g *gen) {
		if ways > 1 && !g.wide() {
			return // AVX2 has no registers for two
		}
		g.begin(name, "func(codes *uint8, x, w *float32, n int, levels, first, step float32, steps int32, abs bool, "+
			"scale, minimum, sum *float32) (ok bool)",
			fmt.Sprintf("is searchAsym in every lane of %d sub-blocks of n rows, at most 32; sum receives Σ w. When ok is false "+
				"a lane left the range of exact rounding and nothing is valid.", ways))
		s := &asymState{g: g}
		for range ways {
			keep := g.slots(asymSlots)
			s.ways = append(s.ways, &asymWay{trial: g.local(32 * rowBytes), hi: keep[0], lowest: keep[1], sumW: keep[2], sumX: keep[3],
				best: keep[4], scale: keep[5], bestInv: keep[6], bestLo: keep[7], firstLo: keep[8], keepBad: keep[9], keepEmpty: keep[10],
				newScale: keep[11], newLo: keep[12], keepSolved: keep[13]})
		}
		ok := g.GP32()
		g.MOVL(U32(1), ok)
		g.lanes(func() {
			s.n, s.zero, s.levels = g.rows("n"), g.zero(), g.scalar("levels")
			for i, w := range s.ways {
				s.start(i, w)
			}
			s.candidates()
			for i, w := range s.ways {
				s.finish(i, w)
				label := fmt.Sprint("fine", i)
				g.jumpIfNone(w.bad.get(), label)
				g.XORL(ok, ok)
				g.Label(label)
			}
		})
		g.Store(ok.As8(), g.ReturnIndex(0))
		g.end()
	}
}

// start finds the extremes and tries the exact range.
func (s *asymState) start(i int, w *asymWay) {
	g := s.g
	w.x, w.w = g.plane("x"), g.plane("w")
	for range i {
		g.ADDQ(s.n, w.x)
		g.ADDQ(s.n, w.w)
	}
	w.bad = g.spill(w.keepBad, g.noLanes())
	hi := s.extremes(fmt.Sprint("extremes", i), w)
	w.empty = g.spill(w.keepEmpty, g.compare(lessEqual, hi, w.lo)) // constant and not positive: scale 0
	w.firstLo.put(w.lo)
	g.choose(w.empty.get(), g.add(w.lo, g.float(1)), hi) // any range will do: the result is masked in finish
	w.hi.put(hi)
	w.inv = g.div(s.levels, g.sub(hi, w.lo))
	scale := g.div(g.float(1), w.inv)
	w.scale.put(scale)
	w.bestInv.put(w.inv)
	w.bestLo.put(w.lo)
	s.guard(w)
	g.each(fmt.Sprint("initial", i), 0, s.n, func(i reg.GPVirtual) { s.code(w, g.load(at(w.x, i)), i, true) })
	e := s.error(fmt.Sprint("initial", i), []*asymWay{w}, []reg.VecVirtual{scale}, []reg.VecVirtual{w.lo})[0]
	g.choose(w.empty.get(), g.float(-1), e) // errors are not negative: never replaced
	w.best.put(e)
}

// extremes finds the range of x and the sums of w and w·x.
func (s *asymState) extremes(label string, w *asymWay) (hi reg.VecVirtual) {
	g := s.g
	lo, sumW := g.load(Mem{Base: w.x}), g.load(Mem{Base: w.w})
	hi = g.copy(lo)
	sumX := g.mul(sumW, lo)
	g.each(label, rowBytes, s.n, func(i reg.GPVirtual) {
		v, wt := g.load(at(w.x, i)), g.load(at(w.w, i))
		g.VMINPS(lo, v, lo) // v < lo ? v : lo
		g.VMAXPS(hi, v, hi)
		g.addTo(sumW, wt)
		g.addTo(sumX, g.mul(wt, v))
	})
	w.sumW.put(sumW)
	w.sumX.put(sumX)
	w.lowest.put(lo)
	w.lo = g.smaller(s.zero, lo) // 0 < lo ? 0 : lo
	return hi
}

// guard marks lanes whose arguments of rn may leave ±2^22, where the portable rn wraps and vector rounding does not: it
// wants inv·(hi − lo) and inv·(lowest − lo) inside.
func (s *asymState) guard(w *asymWay) {
	g := s.g
	width := g.sub(w.hi.get(), w.lo)
	w.bad.include(g.compare(notGreater, width, s.zero))
	w.bad.include(g.compare(notGreater, g.float(4e6), g.mul(w.inv, width)))
	w.bad.include(g.compare(notGreater, g.mul(w.inv, g.sub(w.lowest.get(), w.lo)), g.float(-4e6)))
}

// code rounds x at the current inv and lo and stores the code of row i; limited if it may pass the last.
func (s *asymState) code(w *asymWay, x reg.VecVirtual, i reg.GPVirtual, limited bool) (l reg.VecVirtual) {
	g := s.g
	l = g.round(g.mul(w.inv, g.sub(x, w.lo)))
	g.notNegative(l, s.zero)
	if limited {
		g.limitAbove(l, s.levels)
	}
	g.VMOVUPS(l, w.trial.Idx(i, 1))
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
	numerator := g.add(g.add(g.scalar("first"), g.mul(g.scalar("step"), g.broadcast(kf))), s.levels)
	for _, w := range s.ways {
		g.set(w.inv, g.div(numerator, g.sub(w.hi.get(), w.lo)))
		s.guard(w)
	}
	narrow := g.GP8() // x − lo is at most hi − lo: with such a numerator nothing rounds beyond the last code
	limit := g.add(s.levels, g.float(0.45))
	g.VUCOMISS(numerator.AsX(), limit.AsX())
	g.SETHI(narrow)
	s.fit(narrow)
	var scale, lo []reg.VecVirtual
	for _, w := range s.ways {
		scale, lo = append(scale, w.newScale.get()), append(lo, w.newLo.get())
	}
	for i, e := range s.error("candidate", s.ways, scale, lo) {
		w := s.ways[i]
		better := g.both(w.solved.get(), g.compare(less, e, w.best.get()))
		w.best.choose(better, e)
		w.scale.choose(better, scale[i])
		w.bestInv.choose(better, w.inv)
		w.bestLo.choose(better, w.lo)
		g.choose(better, lo[i], w.lo) // later candidates start from the new minimum
	}
	g.INCL(k)
	g.CMPL(k, steps)
	g.JLE(LabelRef("candidate"))
}

// fit rounds at the current inv and lo and solves for scale and minimum; solved holds the lanes with a solution. If narrow
// is set no code can pass the last.
func (s *asymState) fit(narrow reg.GPVirtual) {
	g := s.g
	type sums struct{ l, ll, lx reg.VecVirtual }
	all := make([]sums, len(s.ways))
	for i := range all {
		all[i] = sums{g.zero(), g.zero(), g.zero()}
	}
	rows := func(label string, limited bool) {
		g.each(label, 0, s.n, func(i reg.GPVirtual) {
			for k, w := range s.ways {
				x := g.load(at(w.x, i))
				l := s.code(w, x, i, limited)
				wl := g.mul(l, at(w.w, i))
				g.addTo(all[k].l, wl)
				g.addTo(all[k].ll, g.mul(wl, l))
				g.addTo(all[k].lx, g.mul(wl, x))
			}
		})
	}
	g.TESTB(narrow, narrow)
	g.JNE(LabelRef("narrow"))
	rows("fit", true)
	g.JMP(LabelRef("fitted"))
	g.Label("narrow")
	rows("fitNarrow", false)
	g.Label("fitted")
	for k, w := range s.ways {
		t := all[k]
		sumW, sumX := w.sumW.get(), w.sumX.get()
		det := g.sub(g.mul(sumW, t.ll), g.mul(t.l, t.l))
		scale := g.div(g.sub(g.mul(sumW, t.lx), g.mul(sumX, t.l)), det)
		lo := g.div(g.sub(g.mul(t.ll, sumX), g.mul(t.l, t.lx)), det)
		positive := g.compare(greater, lo, s.zero)
		g.choose(positive, g.div(t.lx, t.ll), scale)
		g.choose(positive, s.zero, lo)
		w.newScale.put(scale)
		w.newLo.put(lo)
		w.solved = g.spill(w.keepSolved, g.compare(greater, det, s.zero))
	}
}

// error returns the weighted errors of the stored codes: of squares, or of magnitudes if abs is set.
func (s *asymState) error(label string, ways []*asymWay, scale, lo []reg.VecVirtual) (e []reg.VecVirtual) {
	g := s.g
	for range ways {
		e = append(e, g.zero())
	}
	diff := func(k int, i reg.GPVirtual) reg.VecVirtual {
		return g.sub(g.add(g.mul(scale[k], ways[k].trial.Idx(i, 1)), lo[k]), at(ways[k].x, i))
	}
	abs := g.GP8()
	g.Load(g.Param("abs"), abs)
	g.TESTB(abs, abs)
	g.JNE(LabelRef(label + "Abs"))
	g.each(label+"SquareRow", 0, s.n, func(i reg.GPVirtual) {
		for k, w := range ways {
			d := diff(k, i)
			g.addTo(e[k], g.mul(g.mul(d, d), at(w.w, i)))
		}
	})
	g.JMP(LabelRef(label + "Done"))
	g.Label(label + "Abs")
	magnitude := g.int(0x7fffffff)
	g.each(label+"AbsRow", 0, s.n, func(i reg.GPVirtual) {
		for k, w := range ways {
			g.addTo(e[k], g.mul(g.abs(diff(k, i), magnitude), at(w.w, i)))
		}
	})
	g.Label(label + "Done")
	return e
}

// finish writes the results, the codes from the winning candidate's range.
func (s *asymState) finish(i int, w *asymWay) {
	g := s.g
	none := w.empty.get()
	codes := g.bytePlane("codes")
	quarter := g.GP64()
	g.MOVQ(s.n, quarter)
	g.SHRQ(Imm(2), quarter)
	for range i {
		g.ADDQ(quarter, codes)
	}
	bestInv, bestLo := w.bestInv.get(), w.bestLo.get()
	g.each(fmt.Sprint("codes", i), 0, s.n, func(i reg.GPVirtual) {
		l := g.roundCode(g.mul(bestInv, g.sub(g.load(at(w.x, i)), bestLo)), s.zero, s.levels)
		g.choose(none, s.zero, l)
		g.storeBytes(g.toInt(l), Mem{Base: codes})
		g.ADDQ(Imm(16), codes)
	})
	scale := w.scale.get()
	g.choose(none, s.zero, scale)
	g.VMOVUPS(scale, Mem{Base: g.plane("scale"), Disp: i * rowBytes})
	g.choose(none, w.firstLo.get(), w.lo)
	g.VMOVUPS(g.negate(w.lo), Mem{Base: g.plane("minimum"), Disp: i * rowBytes})
	g.VMOVUPS(w.sumW.get(), Mem{Base: g.plane("sum"), Disp: i * rowBytes})
}
