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

// split32 is iq1sSub.split on sorted planes of 32 rows.
func split32(g *gen) {
	const n = 32
	g.begin("split32", "func(wx, w, scale *float32, first, second, shift *uint32)",
		"finds the best division of 32 sorted rows: cuts before rows first and second, shift 1 for -1/8.")
	// Prefix sums, and what the run after the second cut adds: to a and b under either shift.
	rows := func() Mem { return g.AllocLocal((n + 1) * rowBytes) }
	sx, sw := rows(), rows()
	tail := [4]Mem{rows(), rows(), rows(), rows()}
	keep := g.slots(9)
	g.lanes(func() {
		end := g.GP64()
		g.MOVQ(U32(n*rowBytes), end)
		for _, p := range []struct {
			name string
			to   Mem
		}{{"wx", sx}, {"w", sw}} {
			from, sum := g.plane(p.name), g.zero()
			g.VMOVUPS(sum, p.to)
			g.each(p.name, 0, end, func(i reg.GPVirtual) {
				g.addTo(sum, at(from, i))
				g.VMOVUPS(sum, p.to.Offset(rowBytes).Idx(i, 1))
			})
		}
		after := g.GP64()
		g.MOVQ(U32((n+1)*rowBytes), after)
		g.each("tails", 0, after, func(i reg.GPVirtual) {
			x := g.sub(g.load(sx.Offset(n*rowBytes)), sx.Idx(i, 1))
			w := g.sub(g.load(sw.Offset(n*rowBytes)), sw.Idx(i, 1))
			for s := range 2 {
				c := g.float(iq1Levels[s][2])
				g.VMOVUPS(g.mul(x, c), tail[2*s].Idx(i, 1))
				g.VMOVUPS(g.mul(g.mul(w, c), c), tail[2*s+1].Idx(i, 1))
			}
		})
		i1 := g.GP64()
		g.XORQ(i1, i1)
		i2 := g.GP64()
		sp := newSplit(g, keep, i1, i2)
		heads := keep[5:9] // what the run before the first cut adds
		g.Label("first")
		x := g.sub(g.load(sx.Idx(i1, 1)), sx)
		w := g.sub(g.load(sw.Idx(i1, 1)), sw)
		for s := range 2 {
			c := g.float(iq1Levels[s][0])
			heads[2*s].put(g.mul(x, c))
			heads[2*s+1].put(g.mul(g.mul(w, c), c))
		}
		g.MOVQ(i1, i2)
		g.Label("second")
		c := g.float(iq1Levels[0][1]) // the other shift has -c
		midA := g.mul(g.sub(g.load(sx.Idx(i2, 1)), sx.Idx(i1, 1)), c)
		midB := g.mul(g.mul(g.sub(g.load(sw.Idx(i2, 1)), sw.Idx(i1, 1)), c), c)
		for s, label := range []string{"minus", "next"} {
			a := g.vec()
			if s == 0 {
				a = g.add(heads[0].get(), midA)
			} else {
				a = g.sub(heads[2].get(), midA)
			}
			a = g.add(a, tail[2*s].Idx(i2, 1))
			b := g.add(g.add(heads[2*s+1].get(), midB), tail[2*s+1].Idx(i2, 1))
			sp.try(label, a, b, uint32(s))
		}
		g.ADDQ(Imm(rowBytes), i2)
		g.CMPQ(i2, after)
		g.JL(LabelRef("second"))
		g.ADDQ(Imm(rowBytes), i1)
		g.CMPQ(i1, after)
		g.JL(LabelRef("first"))
		sp.store()
	})
	g.end()
}

// split16 is iq1mSub.split on sorted planes of 16 rows.
func split16(g *gen) {
	const n = 16
	g.begin("split16", "func(x, w *float32, order *uint32, scale *float32, first, second, shift *uint32)",
		"finds the best division of 16 sorted rows and the shifts of the two codewords: bit 1 the first's, bit 0 the second's.")
	// terms[level] holds, row by row, what a row adds at that level: a under shift pairs 0 … 3, then b.
	const pairs = 4
	rowTerms := 2 * pairs * g.bytes
	var terms [3]Mem
	for l := range terms {
		terms[l] = g.AllocLocal(n * rowTerms)
	}
	keep := g.slots(5 + 4*pairs)
	g.lanes(func() {
		x, w, order := g.plane("x"), g.plane("w"), g.plane("order")
		end := g.GP64()
		g.MOVQ(U32(n*rowBytes), end)
		to := g.GP64()
		g.XORQ(to, to)
		g.each("terms", 0, end, func(i reg.GPVirtual) {
			late := g.intGreater(g.load(at(order, i)), g.int(7)) // row of the second codeword
			for l := range terms {
				var a, b [2]reg.VecVirtual
				for s := range 2 {
					c := g.float(iq1Levels[s][l])
					wc := g.mul(c, at(w, i))
					a[s], b[s] = g.mul(wc, at(x, i)), g.mul(wc, c)
				}
				for k, t := range [][2]reg.VecVirtual{a, b} {
					mixed := g.copy(t[0]) // (+, -)
					g.choose(late, t[1], mixed)
					other := g.copy(t[1]) // (-, +)
					g.choose(late, t[0], other)
					for p, v := range []reg.VecVirtual{t[0], mixed, other, t[1]} {
						g.VMOVUPS(v, terms[l].Offset((k*pairs+p)*g.bytes).Idx(to, 1))
					}
				}
			}
			g.ADDQ(U32(uint32(rowTerms)), to)
		})
		i1, i2 := g.GP64(), g.GP64()
		g.XORQ(i1, i1)
		sp := newSplit(g, keep, i1, i2)
		head, mid := keep[5:5+2*pairs], keep[5+2*pairs:] // sums before i1, before i2
		for _, s := range head {
			s.put(g.zero())
		}
		t1, t2, t, last := g.GP64(), g.GP64(), g.GP64(), g.GP64() // i1, i2 and the row in work as offsets of terms
		g.XORQ(t1, t1)
		g.MOVQ(U32(uint32(n*rowTerms)), last)
		g.Label("first")
		for k := range mid {
			mid[k].put(head[k].get())
		}
		g.MOVQ(i1, i2)
		g.MOVQ(t1, t2)
		g.Label("second")
		sum := make([]reg.VecVirtual, 2*pairs)
		for k := range sum {
			sum[k] = mid[k].get()
		}
		g.MOVQ(t2, t)
		g.CMPQ(t, last)
		g.JGE(LabelRef("summed"))
		g.Label("tail")
		for k := range sum {
			g.addTo(sum[k], terms[2].Offset(k*g.bytes).Idx(t, 1))
		}
		g.ADDQ(U32(uint32(rowTerms)), t)
		g.CMPQ(t, last)
		g.JL(LabelRef("tail"))
		g.Label("summed")
		for p := range pairs {
			sp.try([]string{"pair1", "pair2", "pair3", "pair4"}[p], sum[p], sum[pairs+p], uint32(p))
		}
		g.CMPQ(t2, last)
		g.JGE(LabelRef("nextFirst"))
		for k, s := range mid {
			v := s.get()
			g.addTo(v, terms[1].Offset(k*g.bytes).Idx(t2, 1))
			s.put(v)
		}
		g.ADDQ(U32(uint32(rowTerms)), t2)
		g.ADDQ(Imm(rowBytes), i2)
		g.JMP(LabelRef("second"))
		g.Label("nextFirst")
		g.CMPQ(t1, last)
		g.JGE(LabelRef("done"))
		for k, s := range head {
			v := s.get()
			g.addTo(v, terms[0].Offset(k*g.bytes).Idx(t1, 1))
			s.put(v)
		}
		g.ADDQ(U32(uint32(rowTerms)), t1)
		g.ADDQ(Imm(rowBytes), i1)
		g.JMP(LabelRef("first"))
		g.Label("done")
		sp.store()
	})
	g.end()
}
