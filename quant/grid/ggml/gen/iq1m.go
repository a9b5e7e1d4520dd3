package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	split16Rows  = 16
	split16Pairs = 4                // of shifts of the two codewords
	split16Sums  = 2 * split16Pairs // a under every pair, then b
)

// split16State is what the parts of the split16 kernel share.
type split16State struct {
	g         *gen
	terms     [3]Mem // by level: what each row adds to the sums at that level
	head, mid []slot // sums before the first and before the second cut
	rowTerms  int    // bytes of the terms of a row
}

// split16 is iq1mSub.split on sorted planes of 16 rows.
func split16(g *gen) {
	g.begin("split16", "func(x, w *float32, order *uint32, scale *float32, first, second, shift *uint32)",
		"finds the best division of 16 sorted rows and the shifts of the two codewords: bit 1 the first's, bit 0 the second's.")
	s := &split16State{g: g, rowTerms: split16Sums * g.bytes}
	for l := range s.terms {
		s.terms[l] = g.local(split16Rows * s.rowTerms)
	}
	keep := g.slots(5 + 2*split16Sums)
	s.head, s.mid = keep[5:5+split16Sums], keep[5+split16Sums:]
	g.lanes(func() {
		s.fill()
		s.search(keep[:5])
	})
	g.end()
}

// fill computes the terms.
func (s *split16State) fill() {
	g := s.g
	x, w, order := g.plane("x"), g.plane("w"), g.plane("order")
	end, to := g.GP64(), g.GP64()
	g.MOVQ(U32(split16Rows*rowBytes), end)
	g.XORQ(to, to)
	g.each("terms", 0, end, func(i reg.GPVirtual) {
		late := g.intGreater(g.load(at(order, i)), g.int(7)) // row of the second codeword
		for l := range s.terms {
			var a, b [2]reg.VecVirtual
			for k := range 2 {
				c := g.float(iq1Levels[k][l])
				wc := g.mul(c, at(w, i))
				a[k], b[k] = g.mul(wc, at(x, i)), g.mul(wc, c)
			}
			for k, t := range [][2]reg.VecVirtual{a, b} {
				plusMinus, minusPlus := g.copy(t[0]), g.copy(t[1])
				g.choose(late, t[1], plusMinus)
				g.choose(late, t[0], minusPlus)
				for p, v := range []reg.VecVirtual{t[0], plusMinus, minusPlus, t[1]} {
					g.VMOVUPS(v, s.terms[l].Offset((k*split16Pairs+p)*g.bytes).Idx(to, 1))
				}
			}
		}
		g.ADDQ(U32(uint32(s.rowTerms)), to)
	})
}

// add moves sums past the row at offset t of the terms.
func (s *split16State) add(sums []slot, level int, t reg.GPVirtual) {
	for k, sum := range sums {
		v := sum.get()
		s.g.addTo(v, s.terms[level].Offset(k*s.g.bytes).Idx(t, 1))
		sum.put(v)
	}
	s.g.ADDQ(U32(uint32(s.rowTerms)), t)
}

// search tries all pairs of cuts. Rows before the first cut, and from there to the second, are added once; the rest must be
// added anew for every second cut, since sums run in order.
func (s *split16State) search(keep []slot) {
	g := s.g
	i1, i2 := g.GP64(), g.GP64()                 // cuts in bytes of a plane
	t1, t2, last := g.GP64(), g.GP64(), g.GP64() // cuts and end in bytes of terms
	sp := newSplit(g, keep, i1, i2)
	for _, sum := range s.head {
		sum.put(g.zero())
	}
	g.XORQ(i1, i1)
	g.XORQ(t1, t1)
	g.MOVQ(U32(uint32(split16Rows*s.rowTerms)), last)
	g.Label("first")
	for k, sum := range s.head {
		s.mid[k].put(sum.get())
	}
	g.MOVQ(i1, i2)
	g.MOVQ(t1, t2)
	g.Label("second")
	sums := s.tail(t2, last)
	for p := range split16Pairs {
		sp.try(fmt.Sprint("pair", p), sums[p], sums[split16Pairs+p], uint32(p))
	}
	g.CMPQ(t2, last)
	g.JGE(LabelRef("nextFirst"))
	s.add(s.mid, 1, t2)
	g.ADDQ(Imm(rowBytes), i2)
	g.JMP(LabelRef("second"))
	g.Label("nextFirst")
	g.CMPQ(t1, last)
	g.JGE(LabelRef("done"))
	s.add(s.head, 0, t1)
	g.ADDQ(Imm(rowBytes), i1)
	g.JMP(LabelRef("first"))
	g.Label("done")
	sp.store()
}

// tail returns the sums when all rows from the second cut on have level 2.
func (s *split16State) tail(from, last reg.GPVirtual) (sums []reg.VecVirtual) {
	g := s.g
	for _, sum := range s.mid {
		sums = append(sums, sum.get())
	}
	t := g.GP64()
	g.MOVQ(from, t)
	g.CMPQ(t, last)
	g.JGE(LabelRef("summed"))
	g.Label("tail")
	for k := range sums {
		g.addTo(sums[k], s.terms[2].Offset(k*g.bytes).Idx(t, 1))
	}
	g.ADDQ(U32(uint32(s.rowTerms)), t)
	g.CMPQ(t, last)
	g.JL(LabelRef("tail"))
	g.Label("summed")
	return sums
}
