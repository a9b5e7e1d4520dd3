package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tileVectors is the width of a tile of C in vectors.
const tileVectors = 2

// tileShape is the register tile of one vector width: rows x tileVectors vectors of C stay in registers. 14 x 2 takes 28 of
// 32 registers, 6 x 2 takes 12 of 16; the rest hold two vectors of B and a broadcast element of A.
type tileShape struct {
	isa
	rows   int
	unroll int // steps of k per iteration
}

var shapes = []tileShape{{avx512, 14, 1}, {avx2, 6, 2}}

// aStride is the number of elements between two steps of k in a packed panel of A: rows rounded up to whole groups of
// the transposing packs, so that they need no partial stores.
func (s tileShape) aStride() int { return (s.rows + 7) / 8 * 8 }

func tiles(g *gen) {
	for _, s := range shapes {
		for _, e := range []elem{f32, f64} {
			for rows := 1; rows <= s.rows; rows++ {
				t := newTile(g, s, e, rows, fmt.Sprintf("tile%s%sx%d", e.name, s.name, rows), e)
				t.multiply(t.fmaStep())
				t.store()
			}
		}
		t := newTile(g, s, f32, s.rows, "tileF32toF64"+s.name, f64)
		t.multiply(t.fmaStep())
		t.addWide()
	}
}

// tile writes one function that computes rows x nr elements of C from packed panels: A holds aStride elements per step of k,
// B holds nr.
type tile struct {
	*gen
	shape      tileShape
	e          elem
	acc        [][tileVectors]reg.VecVirtual
	k, a, b, c reg.GPVirtual
	ldc        reg.GPVirtual // in bytes
}

// newTile starts a function whose C has elements of type out, and clears the accumulators.
func newTile(g *gen, s tileShape, e elem, rows int, name string, out elem) tile {
	g.Function(name)
	g.Attributes(attr.NOSPLIT)
	if out == e {
		g.SignatureExpr(fmt.Sprintf("func(k int, a, b, c *%s, ldc int, add bool)", e.typ))
		g.Doc(fmt.Sprintf("%s sets (add: adds to) %d rows of C the product of a packed panel of A and one of B over k steps.", name, rows))
	} else {
		g.SignatureExpr(fmt.Sprintf("func(k int, a, b *%s, c *%s, ldc int)", e.typ, out.typ))
		g.Doc(fmt.Sprintf("%s adds to %d rows of C the product of a packed panel of A and one of B over k steps.", name, rows))
	}
	g.Pragma("noescape")
	t := tile{gen: g, shape: s, e: e, k: g.param("k"), a: g.param("a"), b: g.param("b"), c: g.param("c"), ldc: g.scaled("ldc", out)}
	line := g.GP64()
	g.MOVQ(t.c, line)
	for r := range rows { // C is needed in a few microseconds: fetch it now
		t.acc = append(t.acc, [tileVectors]reg.VecVirtual{})
		for v := range t.acc[r] {
			t.acc[r][v] = g.vec(s.isa)
			g.zero(s.isa, t.acc[r][v])
		}
		width := tileVectors * s.bytes * out.size / e.size
		for d := 0; d < width; d += 64 {
			g.PREFETCHT0(Mem{Base: line, Disp: d})
		}
		g.PREFETCHT0(Mem{Base: line, Disp: width - 1})
		if r < rows-1 {
			g.ADDQ(t.ldc, line)
		}
	}
	return t
}

// fmaStep prepares the chains of fused multiply-adds and returns their step: step u of an iteration.
func (t tile) fmaStep() func(u int) {
	g, s, e := t.gen, t.shape, t.e
	bv := [tileVectors]reg.VecVirtual{g.vec(s.isa), g.vec(s.isa)}
	av := [2]reg.VecVirtual{g.vec(s.isa), g.vec(s.isa)}
	return func(u int) {
		for v := range bv {
			g.VMOVUPS(t.memB(u, v), bv[v])
		}
		for r := range t.acc {
			g.broadcast(e, t.memA(u, r), av[r%2])
			for v := range bv {
				g.fma(e, av[r%2], bv[v], t.acc[r][v])
			}
		}
	}
}

// Bytes between two steps of k in the packed panels.
func (t tile) aStep() int { return t.shape.aStride() * t.e.size }
func (t tile) bStep() int { return tileVectors * t.shape.bytes }

// memA is the element of row r, and memB vector v of a step.
func (t tile) memA(u, r int) Mem { return Mem{Base: t.a, Disp: u*t.aStep() + r*t.e.size} }
func (t tile) memB(u, v int) Mem { return Mem{Base: t.b, Disp: u*t.bStep() + v*t.shape.bytes} }

// multiply runs the chains over all of k.
func (t tile) multiply(step func(u int)) {
	g, k, a, b := t.gen, t.k, t.a, t.b
	aStep, bStep := t.aStep(), t.bStep()
	unroll := t.shape.unroll
	if unroll > 1 {
		g.SUBQ(Imm(uint64(unroll)), k)
		g.JL(LabelRef("rest"))
		g.Label("main")
		for u := range unroll {
			step(u)
		}
		g.ADDQ(Imm(uint64(unroll*aStep)), a)
		g.ADDQ(Imm(uint64(unroll*bStep)), b)
		g.SUBQ(Imm(uint64(unroll)), k)
		g.JGE(LabelRef("main"))
		g.Label("rest")
		g.ADDQ(Imm(uint64(unroll)), k)
	} else {
		g.TESTQ(k, k)
	}
	g.JLE(LabelRef("done"))
	g.Label("one")
	step(0)
	g.ADDQ(Imm(uint64(aStep)), a)
	g.ADDQ(Imm(uint64(bStep)), b)
	g.DECQ(k)
	g.JNE(LabelRef("one"))
	g.Label("done")
}

// store writes the accumulators to C, or adds them.
func (t tile) store() {
	g := t.gen
	flag := g.GP8()
	g.Load(g.Param("add"), flag)
	g.TESTB(flag, flag)
	g.JE(LabelRef("store"))
	from := g.GP64()
	g.MOVQ(t.c, from)
	t.eachVector(from, func(acc reg.VecVirtual, m Mem) { g.add(t.e, m, acc, acc) })
	g.Label("store")
	t.eachVector(t.c, func(acc reg.VecVirtual, m Mem) { g.VMOVUPS(acc, m) })
	g.ret()
}

// addWide adds the float32 accumulators to the float64 matrix C.
func (t tile) addWide() {
	g := t.gen
	t.eachVector(t.c, func(acc reg.VecVirtual, m Mem) {
		lo, hi := g.vec(t.shape.isa), g.vec(t.shape.isa)
		if t.shape.bytes == 64 {
			g.VEXTRACTF64X4(Imm(1), acc, hi.AsY())
			g.VCVTPS2PD(acc.AsY(), lo)
			g.VCVTPS2PD(hi.AsY(), hi)
		} else {
			g.VEXTRACTF128(Imm(1), acc, hi.AsX())
			g.VCVTPS2PD(acc.AsX(), lo)
			g.VCVTPS2PD(hi.AsX(), hi)
		}
		// acc is a vector of half the width of its float64 counterpart
		m.Disp *= 2
		g.VADDPD(m, lo, lo)
		g.VMOVUPS(lo, m)
		m.Disp += t.shape.bytes
		g.VADDPD(m, hi, hi)
		g.VMOVUPS(hi, m)
	})
	g.ret()
}

// eachVector visits the accumulators with their place in the matrix at base, which it advances.
func (t tile) eachVector(base reg.GPVirtual, visit func(acc reg.VecVirtual, m Mem)) {
	for r := range t.acc {
		for v := range t.acc[r] {
			visit(t.acc[r][v], Mem{Base: base, Disp: v * t.shape.bytes})
		}
		if r < len(t.acc)-1 {
			t.gen.ADDQ(t.ldc, base)
		}
	}
}
