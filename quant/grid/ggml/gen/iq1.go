package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The ternary codebook types try every division of the sorted weights of a sub-block into three runs.

// iq1Levels are the values of levels 0, 1, 2 under a shift of +1/8 and of -1/8.
var iq1Levels = [2][3]float32{{-0.875, 0.125, 1.125}, {-1.125, -0.125, 0.875}}

// sortRows sorts the rows of a plane in every lane.
func sortRows(g *gen) {
	g.begin("sortRows", "func(key, a, b *float32, order *uint32, network *uint16, comparators int)",
		"sorts rows by key, equal keys by order, and moves the rows of a, b and order along. The network lists pairs of byte "+
			"offsets of rows, the lower first.")
	g.lanes(func() {
		key, order := g.plane("key"), g.plane("order")
		payload := []reg.GPVirtual{g.plane("a"), g.plane("b")}
		pair, n := g.param("network"), g.param("comparators")
		g.Label("comparator")
		i, j := g.GP64(), g.GP64()
		g.MOVWQZX(Mem{Base: pair}, i)
		g.MOVWQZX(Mem{Base: pair, Disp: 2}, j)
		g.ADDQ(Imm(4), pair)
		ki, kj, oi, oj := g.load(at(key, i)), g.load(at(key, j)), g.load(at(order, i)), g.load(at(order, j))
		swap := g.both(g.compare(equal, ki, kj), g.intGreater(oi, oj))
		g.include(swap, g.compare(less, kj, ki))
		exchange := func(p reg.Register, a, b reg.VecVirtual) {
			t := g.copy(a)
			g.choose(swap, b, t)
			g.choose(swap, a, b)
			g.VMOVUPS(t, at(p, i))
			g.VMOVUPS(b, at(p, j))
		}
		exchange(key, ki, kj)
		exchange(order, oi, oj)
		for _, p := range payload {
			exchange(p, g.load(at(p, i)), g.load(at(p, j)))
		}
		g.DECQ(n)
		g.JNE(LabelRef("comparator"))
	})
	g.end()
}

// split is the best division so far, on the stack.
type split struct {
	g                                 *gen
	best, scale, first, second, shift slot
	i1, i2                            reg.GPVirtual // the division in work, in bytes
}

func newSplit(g *gen, s []slot, i1, i2 reg.GPVirtual) *split {
	sp := &split{g: g, best: s[0], scale: s[1], first: s[2], second: s[3], shift: s[4], i1: i1, i2: i2}
	sp.best.put(g.int(0xff7fffff)) // the most negative number
	for _, z := range s[1:5] {
		z.put(g.zero())
	}
	return sp
}

// try replaces the best division in lanes where b > 0 and a² > best·b.
func (s *split) try(label string, a, b reg.VecVirtual, shift uint32) {
	g := s.g
	m := g.both(g.compare(greater, b, g.zero()), g.compare(greater, g.mul(a, a), g.mul(b, s.best.m)))
	g.jumpIfNone(m, label)
	scale := g.div(a, b)
	s.scale.choose(m, scale)
	s.best.choose(m, g.mul(scale, a))
	s.shift.choose(m, g.int(shift))
	for _, cut := range []struct {
		to slot
		at reg.GPVirtual
	}{{s.first, s.i1}, {s.second, s.i2}} {
		x, v := g.XMM(), g.vec()
		g.VMOVD(cut.at.As32(), x)
		g.VPBROADCASTD(x, v)
		cut.to.choose(m, v)
	}
	g.Label(label)
}

func (s *split) store() {
	g := s.g
	g.VMOVUPS(s.scale.get(), Mem{Base: g.plane("scale")})
	g.VMOVUPS(s.shift.get(), Mem{Base: g.plane("shift")})
	for _, cut := range []struct {
		name string
		slot
	}{{"first", s.first}, {"second", s.second}} {
		v := cut.get()
		g.VPSRLD(Imm(6), v, v) // bytes to rows
		g.VMOVUPS(v, Mem{Base: g.plane(cut.name)})
	}
}

// split32State is what the parts of the split32 kernel share.
type split32State struct {
	g          *gen
	end, after reg.GPVirtual // of 32 and of 33 rows
	sx, sw     Mem           // prefix sums, 33 rows
	tail       [4]Mem        // what the run after the second cut adds: to a and b under either shift
	head       []slot        // the same for the run before the first cut
}

const split32Rows = 32

// split32 is iq1sSub.split on sorted planes of 32 rows.
func split32(g *gen) {
	g.begin("split32", "func(wx, w, scale *float32, first, second, shift *uint32)",
		"finds the best division of 32 sorted rows: cuts before rows first and second, shift 1 for -1/8.")
	rows := func() Mem { return g.local((split32Rows + 1) * rowBytes) }
	s := &split32State{g: g, sx: rows(), sw: rows(), tail: [4]Mem{rows(), rows(), rows(), rows()}}
	keep := g.slots(9)
	s.head = keep[5:]
	g.lanes(func() {
		s.end, s.after = g.GP64(), g.GP64()
		g.MOVQ(U32(split32Rows*rowBytes), s.end)
		g.MOVQ(U32((split32Rows+1)*rowBytes), s.after)
		s.prefix("wx", s.sx)
		s.prefix("w", s.sw)
		s.tails()
		s.search(keep[:5])
	})
	g.end()
}

// prefix stores the sums of the first 0, 1, … 32 rows of an argument.
func (s *split32State) prefix(name string, to Mem) {
	g := s.g
	from, sum := g.plane(name), g.zero()
	g.VMOVUPS(sum, to)
	g.each(name, 0, s.end, func(i reg.GPVirtual) {
		g.addTo(sum, at(from, i))
		g.VMOVUPS(sum, to.Offset(rowBytes).Idx(i, 1))
	})
}

// run returns what rows with sums x and w add to a and b at a level that stands for c.
func (s *split32State) run(x, w reg.VecVirtual, c float32) (a, b reg.VecVirtual) {
	v := s.g.float(c)
	return s.g.mul(x, v), s.g.mul(s.g.mul(w, v), v)
}

func (s *split32State) tails() {
	g := s.g
	g.each("tails", 0, s.after, func(i reg.GPVirtual) {
		x := g.sub(g.load(s.sx.Offset(split32Rows*rowBytes)), s.sx.Idx(i, 1))
		w := g.sub(g.load(s.sw.Offset(split32Rows*rowBytes)), s.sw.Idx(i, 1))
		for k := range 2 {
			a, b := s.run(x, w, iq1Levels[k][2])
			g.VMOVUPS(a, s.tail[2*k].Idx(i, 1))
			g.VMOVUPS(b, s.tail[2*k+1].Idx(i, 1))
		}
	})
}

// search tries all pairs of cuts.
func (s *split32State) search(keep []slot) {
	g := s.g
	i1, i2 := g.GP64(), g.GP64()
	sp := newSplit(g, keep, i1, i2)
	g.XORQ(i1, i1)
	g.Label("first")
	x, w := g.sub(g.load(s.sx.Idx(i1, 1)), s.sx), g.sub(g.load(s.sw.Idx(i1, 1)), s.sw)
	for k := range 2 {
		a, b := s.run(x, w, iq1Levels[k][0])
		s.head[2*k].put(a)
		s.head[2*k+1].put(b)
	}
	g.MOVQ(i1, i2)
	g.Label("second")
	x, w = g.sub(g.load(s.sx.Idx(i2, 1)), s.sx.Idx(i1, 1)), g.sub(g.load(s.sw.Idx(i2, 1)), s.sw.Idx(i1, 1))
	midA, midB := s.run(x, w, iq1Levels[0][1]) // under the other shift the level is the negative
	for k, label := range []string{"minus", "next"} {
		var a reg.VecVirtual
		if k == 0 {
			a = g.add(s.head[0].get(), midA)
		} else {
			a = g.sub(s.head[2].get(), midA)
		}
		b := g.add(s.head[2*k+1].get(), midB)
		sp.try(label, g.add(a, s.tail[2*k].Idx(i2, 1)), g.add(b, s.tail[2*k+1].Idx(i2, 1)), uint32(k))
	}
	g.ADDQ(Imm(rowBytes), i2)
	g.CMPQ(i2, s.after)
	g.JL(LabelRef("second"))
	g.ADDQ(Imm(rowBytes), i1)
	g.CMPQ(i1, s.after)
	g.JL(LabelRef("first"))
	sp.store()
}
