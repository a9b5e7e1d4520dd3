package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// sym3Ways is how many sub-blocks the sym3 kernel takes at once. A sweep is one long chain of dependent operations;
// several chains keep the processor busy.
const (
	sym3Ways = 4
	sym3Rows = 16
	sym3Size = sym3Rows * rowBytes // of a plane of one sub-block
)

// sym3State is what the parts of the sym3 kernel share: planes with the codes as float32, with what every element adds to
// the sums a = Σ w·x·l and b = Σ w·l², and with the range in which the optimum leaves its code.
type sym3State struct {
	g                     *gen
	n                     reg.GPVirtual
	codes, termsA, termsB Mem
	from, to              Mem
	sums                  []held // a and b of every way
}

// sym3 is searchSym3 on planes of 16 rows.
func sym3(g *gen) {
	g.begin("sym3", "func(codes *uint8, x, scale *float32)", "is searchSym3 in every lane of four sub-blocks of 16 rows.")
	local := func() Mem { return g.local(sym3Ways * sym3Size) }
	s := &sym3State{g: g, codes: local(), termsA: local(), termsB: local(), from: local(), to: local()}
	for _, keep := range g.slots(2 * sym3Ways) {
		s.sums = append(s.sums, g.held(keep))
	}
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
		from, to := s.stay(l)
		g.VMOVUPS(from, s.from.Offset(way*sym3Size).Idx(i, 1))
		g.VMOVUPS(to, s.to.Offset(way*sym3Size).Idx(i, 1))
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

// stay returns between which optima a code stays: half a step to either side, less a thousandth, which is more than any error
// of the products in improve; the outer codes have no end.
func (s *sym3State) stay(l reg.VecVirtual) (from, to reg.VecVirtual) {
	g := s.g
	from, to = g.sub(l, g.float(0.499)), g.add(l, g.float(0.499))
	g.choose(g.compare(lessEqual, l, g.float(-4)), g.negate(g.infinity()), from)
	g.choose(g.compare(greaterEqual, l, g.float(3)), g.infinity(), to)
	return from, to
}

// sweeps improves the codes, one element of every sub-block after the other: five sweeps, or until 16 elements in a row have
// stayed, after which all would.
func (s *sym3State) sweeps() {
	g := s.g
	x := g.plane("x")
	round := g.rounder()
	calm, left, none := g.GP32(), g.GP32(), g.GP32() // calm: rows without a change, plus 1
	g.MOVL(U32(1), calm)
	g.MOVL(U32(5), left)
	g.XORL(none, none)
	g.Label("sweep")
	g.each("improve", 0, s.n, func(i reg.GPVirtual) {
		for way := range sym3Ways {
			s.improve(fmt.Sprint("keep", way), way, x, i, round, func(ok mask) {
				bits := g.laneBits(ok)
				g.TESTL(bits, bits)
				g.CMOVLNE(none, calm)
			})
		}
		g.INCL(calm)
		g.CMPL(calm, Imm(sym3Rows+1))
		g.JE(LabelRef("settled"))
	})
	g.DECL(left)
	g.JNE(LabelRef("sweep"))
	g.Label("settled")
}

// improve moves one element to the optimum of the scale that the others imply, in lanes where that raises a²/b. The optimum
// takes a division; most elements are seen without one to stay.
func (s *sym3State) improve(label string, way int, x, i reg.GPVirtual, round rounder, moved func(ok mask)) {
	g := s.g
	row := func(m Mem) Mem { return m.Offset(way*sym3Size).Idx(i, 1) }
	v := g.load(Mem{Base: x, Index: i, Scale: 1, Disp: way * sym3Size})
	restA, restB := g.sub(s.sums[2*way].get(), row(s.termsA)), g.sub(s.sums[2*way+1].get(), row(s.termsB))
	product := g.mul(v, restB)
	may := g.compare(greater, product, g.mul(restA, row(s.to)))
	g.include(may, g.compare(less, product, g.mul(restA, row(s.from))))
	g.include(may, g.compare(less, restA, g.float(1e-35))) // where products are no longer exact to 24 bits
	may = g.both(may, g.compare(greater, restA, g.zero()))
	g.jumpIfNone(may, label)

	old := g.load(row(s.codes))
	q := g.rn(round, g.div(product, restA))
	next := g.toFloat(g.intMin(g.intMax(q, g.int(0xfffffffc)), g.int(3)))
	w := g.mul(v, v)
	ta, tb := g.mul(g.mul(w, v), next), g.mul(g.mul(w, next), next)
	newA, newB := g.add(restA, ta), g.add(restB, tb)
	a, b := s.sums[2*way].get(), s.sums[2*way+1].get()
	ok := g.both(may, g.compare(notEqual, next, old))
	ok = g.both(ok, g.compare(greater, newB, g.zero()))
	ok = g.both(ok, g.compare(greater, g.mul(g.mul(newA, newA), b), g.mul(g.mul(a, a), newB)))
	moved(ok)
	s.sums[2*way].choose(ok, newA)
	s.sums[2*way+1].choose(ok, newB)
	from, to := s.stay(next)
	for _, p := range []struct {
		plane Mem
		v     reg.VecVirtual
	}{{s.codes, next}, {s.termsA, ta}, {s.termsB, tb}, {s.from, from}, {s.to, to}} {
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
