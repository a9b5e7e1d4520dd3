package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// symState is what the parts of the sym kernel share.
type symState struct {
	g                       *gen
	x, w, n                 reg.GPVirtual
	products                Mem            // rows of w·x
	levels, low, high, zero reg.VecVirtual // codes are low … high
	peak                    held
	scale, best, bestInv    held // of the best candidate; best is scale·Σ w·x·l
}

// symSteps are the candidates: inverse scales -(levels + 0.1·k)/peak, the full range first.
var symSteps = []int{0, -9, -8, -7, -6, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6, 7, 8, 9}

// symWays is how many candidates are summed up at once: their sums are independent.
func (g *gen) symWays() int {
	if g.wide() {
		return 4
	}
	return 2
}

// sym is searchSym on a plane.
func sym(g *gen) {
	g.begin("sym", "func(codes *uint8, x, w *float32, n int, levels float32, scale *float32)",
		"is searchSym with weights in every lane; n is at most 32.")
	products, keep := g.local(32*rowBytes), g.slots(5)
	g.lanes(func() {
		s := &symState{g: g, x: g.plane("x"), w: g.plane("w"), n: g.rows("n"), products: products, zero: g.zero()}
		peak, none := peaks(g, "peak", s.x, s.n, g.float(searchEps))
		empty := g.hold(keep[0], none)
		s.peak, s.scale, s.best, s.bestInv = g.held(keep[1]), g.held(keep[2]), g.held(keep[3]), g.held(keep[4])
		s.peak.put(peak)
		g.each("products", 0, s.n, func(i reg.GPVirtual) {
			g.VMOVUPS(g.mul(g.load(at(s.w, i)), at(s.x, i)), s.products.Idx(i, 1))
		})
		s.levels = g.scalar("levels")
		s.low, s.high = g.sub(s.zero, s.levels), g.sub(s.levels, g.float(1))
		s.candidates()
		codes := g.bytePlane("codes")
		unused, inv := empty.get(), s.bestInv.get()
		g.each("codes", 0, s.n, func(i reg.GPVirtual) {
			l := g.add(g.roundTo(g.mul(inv, at(s.x, i)), s.low, s.high), s.levels)
			g.choose(unused, s.zero, l)
			g.storeBytes(g.toInt(l), Mem{Base: codes})
			g.ADDQ(Imm(16), codes)
		})
		scale := s.scale.get()
		g.choose(unused, s.zero, scale)
		g.VMOVUPS(scale, Mem{Base: g.plane("scale")})
	})
	g.end()
}

// inverse is the inverse scale of candidate k.
func (s *symState) inverse(k int) reg.VecVirtual {
	g := s.g
	if k == 0 {
		return g.div(s.low, s.peak.get())
	}
	step := float32(0.1) * float32(k)
	return g.div(g.sub(s.zero, g.add(s.levels, g.float(step))), s.peak.get())
}

// candidates tries all, a few at a time. The divisions for the next few are begun before the sums of these.
func (s *symState) candidates() {
	g := s.g
	ways := g.symWays()
	invert := func(steps []int) (inv []reg.VecVirtual) {
		for _, k := range steps {
			inv = append(inv, s.inverse(k))
		}
		return inv
	}
	rest := symSteps
	inv := invert(rest[:ways])
	for len(rest) > 0 {
		steps := rest[:min(ways, len(rest))]
		rest = rest[len(steps):]
		var next []reg.VecVirtual
		if g.wide() {
			next = invert(rest[:min(ways, len(rest))])
		}
		a, b := s.sums(fmt.Sprint("sums", steps[0]+10), steps, inv)
		for i, k := range steps {
			s.judge(k, inv[i], a[i], b[i])
		}
		if !g.wide() { // no registers to be early
			next = invert(rest[:min(ways, len(rest))])
		}
		inv = next
	}
}

// judge keeps a candidate that is better than the best so far.
func (s *symState) judge(k int, inv, a, b reg.VecVirtual) {
	g := s.g
	if k == 0 {
		scale := g.keep(g.compare(notEqual, b, s.zero), g.div(a, b))
		s.scale.put(scale)
		s.best.put(g.mul(scale, a))
		s.bestInv.put(inv)
		return
	}
	better := g.both(g.compare(greater, b, s.zero), g.compare(greater, g.mul(a, a), g.mul(s.best.get(), b)))
	scale := g.div(a, b)
	s.scale.choose(better, scale)
	s.best.choose(better, g.mul(scale, a))
	s.bestInv.choose(better, inv)
}

// sums returns Σ w·x·l and Σ w·l² for the codes of several inverse scales. |inv·x| is at most levels + 0.1·k: from -6 on
// down no code passes levels - 1, from 4 on down none -levels.
func (s *symState) sums(label string, steps []int, inv []reg.VecVirtual) (a, b []reg.VecVirtual) {
	g := s.g
	for range steps {
		a, b = append(a, g.zero()), append(b, g.zero())
	}
	g.each(label, 0, s.n, func(i reg.GPVirtual) {
		v := g.load(at(s.x, i))
		for c, k := range steps {
			l := g.round(g.mul(inv[c], v))
			if k > 4 {
				g.limitBelow(l, s.low)
			}
			if k > -6 {
				g.limitAbove(l, s.high)
			}
			g.addTo(a[c], g.mul(l, s.products.Idx(i, 1)))
			g.addTo(b[c], g.mul(g.mul(l, at(s.w, i)), l))
		}
	})
	return a, b
}

// searchEps is the magnitude below which a sub-block counts as zero, as in the package.
const searchEps = 1e-15

// peaks is extreme on a plane: the first element of largest magnitude. Lanes whose magnitudes stay below eps are empty; their
// peak becomes 1.
func peaks(g *gen, label string, x, n reg.Register, eps reg.VecVirtual) (peak reg.VecVirtual, empty mask) {
	peak = g.zero()
	amax := g.zero()
	magnitude := g.int(0x7fffffff)
	g.each(label, 0, n, func(i reg.GPVirtual) {
		v := g.load(at(x, i))
		a := g.abs(v, magnitude)
		m := g.compare(greater, a, amax)
		g.choose(m, a, amax)
		g.choose(m, v, peak)
	})
	empty = g.compare(less, amax, eps)
	g.choose(empty, g.float(1), peak)
	return peak, empty
}

// sym3Ways is how many sub-blocks the sym3 kernel takes at once. A sweep is one long chain of dependent operations;
// several chains keep the processor busy.
const (
	sym3Ways = 4
	sym3Rows = 16
	sym3Size = sym3Rows * rowBytes // of a plane of one sub-block
)

// sym3State is what the parts of the sym3 kernel share: planes with the codes as float32 and with what every element
// adds to the sums a = Σ w·x·l and b = Σ w·l².
type sym3State struct {
	g                     *gen
	n                     reg.GPVirtual
	codes, termsA, termsB Mem
	sums                  []slot // a and b of every way
}

// sym3 is searchSym3 on planes of 16 rows.
func sym3(g *gen) {
	g.begin("sym3", "func(codes *uint8, x, scale *float32)", "is searchSym3 in every lane of four sub-blocks of 16 rows.")
	local := func() Mem { return g.local(sym3Ways * sym3Size) }
	s := &sym3State{g: g, codes: local(), termsA: local(), termsB: local(), sums: g.slots(2 * sym3Ways)}
	none := g.slots(sym3Ways)
	g.lanes(func() {
		s.n = g.GP64()
		g.MOVQ(U32(sym3Size), s.n)
		empty := make([]heldMask, sym3Ways)
		for way := range sym3Ways {
			empty[way] = s.start(way, none[way])
		}
		s.sweeps()
		for way := range sym3Ways {
			s.finish(way, empty[way].get())
		}
	})
	g.end()
}

// start rounds at the full range and sums up.
func (s *sym3State) start(way int, keep slot) (empty heldMask) {
	g := s.g
	label := fmt.Sprint(way)
	x := g.plane("x")
	g.ADDQ(U32(uint32(way*sym3Size)), x)
	peak, none := peaks(g, "peak"+label, x, s.n, g.float(searchEps))
	empty = g.hold(keep, none)
	low, high := g.float(-4), g.float(3)
	inv := g.div(low, peak)
	a, b := g.zero(), g.zero()
	g.each("first"+label, 0, s.n, func(i reg.GPVirtual) {
		v := g.load(at(x, i))
		l := g.roundTo(g.mul(inv, v), low, high)
		g.VMOVUPS(l, s.codes.Offset(way*sym3Size).Idx(i, 1))
		w := g.mul(v, v)
		ta, tb := g.mul(g.mul(w, v), l), g.mul(g.mul(w, l), l)
		g.VMOVUPS(ta, s.termsA.Offset(way*sym3Size).Idx(i, 1))
		g.VMOVUPS(tb, s.termsB.Offset(way*sym3Size).Idx(i, 1))
		g.addTo(a, ta)
		g.addTo(b, tb)
	})
	s.sums[2*way].put(a)
	s.sums[2*way+1].put(b)
	return empty
}

// sweeps improves the codes, one element of every sub-block after the other, until a sweep changes nothing.
func (s *sym3State) sweeps() {
	g := s.g
	x := g.plane("x")
	round := g.rounder()
	changed, left := g.GP32(), g.GP32()
	g.MOVL(U32(5), left)
	g.Label("sweep")
	g.XORL(changed, changed)
	g.each("improve", 0, s.n, func(i reg.GPVirtual) {
		for way := range sym3Ways {
			s.improve(fmt.Sprint("keep", way), way, x, i, round, changed)
		}
	})
	g.TESTL(changed, changed)
	g.JE(LabelRef("settled"))
	g.DECL(left)
	g.JNE(LabelRef("sweep"))
	g.Label("settled")
}

// improve moves one element to the optimum of the scale that the others imply, in lanes where that raises a²/b. The
// optimum takes a division; most elements are seen without one to stay: x·b is too near to code·a for rounding to leave
// the code (a thousandth is more than any error of these products), or beyond the last code.
func (s *sym3State) improve(label string, way int, x, i reg.GPVirtual, round rounder, changed reg.GPVirtual) {
	g := s.g
	row := func(m Mem) Mem { return m.Offset(way*sym3Size).Idx(i, 1) }
	v := g.load(Mem{Base: x, Index: i, Scale: 1, Disp: way * sym3Size})
	old := g.load(row(s.codes))
	restA, restB := g.sub(s.sums[2*way].get(), row(s.termsA)), g.sub(s.sums[2*way+1].get(), row(s.termsB))
	product := g.mul(v, restB)
	off, near := g.sub(product, g.mul(old, restA)), g.mul(g.float(0.499), restA)
	up := g.both(g.compare(greater, off, near), g.compare(less, old, g.float(3)))
	down := g.both(g.compare(less, off, g.negate(near)), g.compare(greater, old, g.float(-4)))
	g.include(up, down)
	g.include(up, g.compare(less, restA, g.float(1e-35))) // where products are no longer exact to 24 bits
	may := g.both(up, g.compare(greater, restA, g.zero()))
	g.jumpIfNone(may, label)

	q := g.rn(round, g.div(product, restA))
	next := g.toFloat(g.intMin(g.intMax(q, g.int(0xfffffffc)), g.int(3)))
	w := g.mul(v, v)
	ta, tb := g.mul(g.mul(w, v), next), g.mul(g.mul(w, next), next)
	newA, newB := g.add(restA, ta), g.add(restB, tb)
	a, b := s.sums[2*way].get(), s.sums[2*way+1].get()
	ok := g.both(may, g.compare(notEqual, next, old))
	ok = g.both(ok, g.compare(greater, newB, g.zero()))
	ok = g.both(ok, g.compare(greater, g.mul(g.mul(newA, newA), b), g.mul(g.mul(a, a), newB)))
	g.ORL(g.laneBits(ok), changed)
	s.sums[2*way].choose(ok, newA)
	s.sums[2*way+1].choose(ok, newB)
	for _, p := range []struct {
		plane Mem
		v     reg.VecVirtual
	}{{s.codes, next}, {s.termsA, ta}, {s.termsB, tb}} {
		slot{g, row(p.plane)}.choose(ok, p.v)
	}
	g.Label(label)
}

// finish writes codes and scale of a sub-block.
func (s *sym3State) finish(way int, empty mask) {
	g := s.g
	zero, four := g.zero(), g.float(4)
	codes := g.bytePlane("codes")
	g.ADDQ(U32(uint32(way*sym3Rows*16)), codes)
	g.each(fmt.Sprint("codes", way), 0, s.n, func(i reg.GPVirtual) {
		l := g.add(four, s.codes.Offset(way*sym3Size).Idx(i, 1))
		g.choose(empty, zero, l)
		g.storeBytes(g.toInt(l), Mem{Base: codes})
		g.ADDQ(Imm(16), codes)
	})
	a, b := s.sums[2*way].get(), s.sums[2*way+1].get()
	scale := g.keep(g.without(g.compare(greater, b, zero), empty), g.div(a, b))
	g.VMOVUPS(scale, Mem{Base: g.plane("scale"), Disp: way * rowBytes})
}
