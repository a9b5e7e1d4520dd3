package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// kind is the element type of a matrix as it lies in memory, before widening to an elem.
type kind struct {
	name string
	size int
	elem
}

var (
	fromF32  = kind{"F32", 4, f32}
	fromBF16 = kind{"BF16", 2, f32}
	fromF16  = kind{"F16", 2, f32}
	fromF64  = kind{"F64", 8, f64}
)

func packs(g *gen) {
	for _, s := range []isa{avx512, avx2} {
		for _, k := range []kind{fromF32, fromBF16, fromF16, fromF64} {
			transpose(g, s, k)
		}
		copyPanels(g, s, fromF32, 1)
		for _, k := range []kind{fromF32, fromBF16, fromF16, fromF64} {
			copyPanels(g, s, k, 2)
		}
	}
}

// transpose packs up to one vector of matrix rows that run along k: dst holds one vector per step of k. It gathers 128-bit
// pieces of every row into the lane they belong to while loading, so that only shuffles within lanes remain; those work on
// 32-bit units (64-bit for float64), which are pairs of k for 16-bit kinds and are split and widened on the way out.
func transpose(g *gen, s isa, k kind) {
	name := fmt.Sprintf("transpose%s%s", k.name, s.name)
	g.Function(name)
	g.Attributes(attr.NOSPLIT)
	g.SignatureExpr(fmt.Sprintf("func(dst *%s, step int, src *byte, stride int, rows int, chunks int)", k.typ))
	g.Doc(fmt.Sprintf("%s packs rows (clamped to the last one) of %d bytes per chunk; step and stride are in bytes.", name, s.bytes))
	g.Pragma("noescape")

	unit := max(k.size, 4)  // bytes moved by a shuffle
	group := s.bytes / unit // rows
	perLane := 16 / unit    // units of a row in a 128-bit piece
	pieces := s.bytes / 16  // lanes of a register, and pieces of a row per chunk
	ptrs := g.AllocLocal(8 * group)
	rowPointers(g, ptrs, group)
	dst, step, chunks := g.param("dst"), g.param("step"), g.param("chunks")
	masks := laneMasks(g, s)
	w := newWidener(g, s, k)
	off := g.GP64()
	g.XORQ(off, off)
	g.Label("chunk")
	z := make([][]reg.VecVirtual, pieces) // z[p][j]: piece p of rows j, j+perLane, …, one per lane
	for p := range z {
		for range perLane {
			z[p] = append(z[p], g.vec(s))
		}
	}
	for r := range group { // all pieces of a row at once: rows may map to the same cache set
		row := g.GP64()
		g.MOVQ(ptrs.Offset(8*r), row)
		for p := range z {
			m := Mem{Base: row, Index: off, Scale: 1, Disp: 16 * p}
			insertLane(g, s, m, r/perLane, z[p][r%perLane], masks)
		}
	}
	for p := range z {
		for _, out := range transposeLanes(g, s, z[p]) {
			for _, v := range w.widen(out) {
				g.VMOVUPS(v, Mem{Base: dst})
				g.ADDQ(step, dst)
			}
		}
	}
	g.ADDQ(Imm(uint64(s.bytes)), off)
	g.DECQ(chunks)
	g.JNE(LabelRef("chunk"))
	g.ret()
}

// rowPointers stores the addresses of group rows, repeating the last valid one.
func rowPointers(g *gen, ptrs Mem, group int) {
	src, stride, rows := g.param("src"), g.param("stride"), g.param("rows")
	for r := range group {
		g.MOVQ(src, ptrs.Offset(8*r))
		if r < group-1 {
			next := g.GP64()
			g.LEAQ(Mem{Base: src, Index: stride, Scale: 1}, next)
			g.CMPQ(rows, Imm(uint64(r+1)))
			g.CMOVQGT(next, src)
		}
	}
}

// laneMasks returns mask registers that select lane 1, 2 and 3 of a 512-bit register.
func laneMasks(g *gen, s isa) []reg.OpmaskVirtual {
	var masks []reg.OpmaskVirtual
	for lane := 1; lane < 4 && s.bytes == 64; lane++ {
		m, t := g.K(), g.GP32()
		g.MOVL(U32(0xf<<(4*lane)), t)
		g.KMOVW(t, m)
		masks = append(masks, m)
	}
	return masks
}

// insertLane loads 16 bytes into one lane of v; lane 0 clears the others.
func insertLane(g *gen, s isa, m Mem, lane int, v reg.VecVirtual, masks []reg.OpmaskVirtual) {
	switch {
	case lane == 0:
		g.VMOVUPS(m, v.AsX())
	case s.bytes == 64:
		g.VBROADCASTF32X4(m, masks[lane-1], v)
	default:
		g.VINSERTF128(Imm(uint64(lane)), m, v, v)
	}
}

// transposeLanes transposes the 4x4 (or 2x2 for float64) matrix that each lane of z holds.
func transposeLanes(g *gen, s isa, z []reg.VecVirtual) []reg.VecVirtual {
	pair := func(lo, hi func(...Op), a, b reg.VecVirtual) (reg.VecVirtual, reg.VecVirtual) {
		l, h := g.vec(s), g.vec(s)
		lo(b, a, l)
		hi(b, a, h)
		return l, h
	}
	if len(z) == 2 {
		a, b := pair(g.VUNPCKLPD, g.VUNPCKHPD, z[0], z[1])
		return []reg.VecVirtual{a, b}
	}
	a, b := pair(g.VUNPCKLPS, g.VUNPCKHPS, z[0], z[1])
	c, d := pair(g.VUNPCKLPS, g.VUNPCKHPS, z[2], z[3])
	k0, k1 := pair(g.VUNPCKLPD, g.VUNPCKHPD, a, c)
	k2, k3 := pair(g.VUNPCKLPD, g.VUNPCKHPD, b, d)
	return []reg.VecVirtual{k0, k1, k2, k3}
}

// widener turns a vector of 32-bit units into vectors of float32, one per step of k.
type widener struct {
	g *gen
	s isa
	k kind
	// high selects the upper half of a unit (bf16), split sorts the halves of each lane (f16), order the lanes of split.
	high, split, order reg.VecVirtual
}

func newWidener(g *gen, s isa, k kind) widener {
	w := widener{g: g, s: s, k: k}
	switch k.name {
	case "BF16":
		w.high = g.vec(s)
		g.VBROADCASTSS(g.constant("high_half", func() { g.AppendDatum(U32(0xffff0000)) }), w.high)
	case "F16":
		w.split = g.vec(s)
		if s.bytes == 64 {
			g.VBROADCASTI32X4(splitHalves(g), w.split)
			w.order = g.vec(s)
			g.VMOVUPS(evenOddLanes(g), w.order)
		} else {
			g.VBROADCASTI128(splitHalves(g), w.split)
		}
	}
	return w
}

// splitHalves is the byte shuffle that moves the lower halves of four units to the front.
func splitHalves(g *gen) Mem {
	return g.constant("split_halves", func() {
		g.AppendDatum(U64(0x0d0c090805040100))
		g.AppendDatum(U64(0x0f0e0b0a07060302))
	})
}

// evenOddLanes permutes 64-bit words: even ones first.
func evenOddLanes(g *gen) Mem {
	return g.constant("even_odd_words", func() {
		for _, i := range []uint64{0, 2, 4, 6, 1, 3, 5, 7} {
			g.AppendDatum(U64(i))
		}
	})
}

func (w widener) widen(v reg.VecVirtual) []reg.VecVirtual {
	g, even, odd := w.g, w.g.vec(w.s), w.g.vec(w.s)
	switch w.k.name {
	case "BF16":
		g.VPSLLD(Imm(16), v, even)
		if w.s.bytes == 64 {
			g.VPANDD(w.high, v, odd)
		} else {
			g.VPAND(w.high, v, odd)
		}
	case "F16":
		t := g.vec(w.s)
		g.VPSHUFB(w.split, v, t)
		if w.s.bytes == 64 {
			g.VPERMQ(t, w.order, t)
			g.VCVTPH2PS(t.AsY(), even)
			g.VEXTRACTI64X4(Imm(1), t, t.AsY())
			g.VCVTPH2PS(t.AsY(), odd)
		} else {
			g.VPERMQ(Imm(0xd8), t, t)
			g.VCVTPH2PS(t.AsX(), even)
			g.VEXTRACTI128(Imm(1), t, t.AsX())
			g.VCVTPH2PS(t.AsX(), odd)
		}
	default:
		return []reg.VecVirtual{v}
	}
	return []reg.VecVirtual{even, odd}
}

// copyPanels packs matrix rows that run across k: every row gives each of several panels the given number of vectors. It takes a
// whole stretch of a row at a time, because the next row is usually on another page.
func copyPanels(g *gen, s isa, k kind, vectors int) {
	name := fmt.Sprintf("copy%s%sv%d", k.name, s.name, vectors)
	g.Function(name)
	g.Attributes(attr.NOSPLIT)
	g.SignatureExpr(fmt.Sprintf("func(dst *%s, dstPanel int, src *byte, srcRow, srcPanel int, panels, k int)", k.typ))
	g.Doc(fmt.Sprintf("%s packs k rows into panels of %d bytes per row; distances are in bytes.", name, vectors*s.bytes))
	g.Pragma("noescape")

	dst, dstPanel, src := g.param("dst"), g.param("dstPanel"), g.param("src")
	srcRow, srcPanel, panels, rows := g.param("srcRow"), g.param("srcPanel"), g.param("panels"), g.param("k")
	g.Label("row")
	d, p, left := g.GP64(), g.GP64(), g.GP64()
	g.MOVQ(dst, d)
	g.MOVQ(src, p)
	g.MOVQ(panels, left)
	g.Label("panel")
	for v := range vectors {
		r := g.vec(s)
		loadWide(g, s, k, Mem{Base: p, Disp: v * s.bytes * k.size / k.elem.size}, r)
		g.VMOVUPS(r, Mem{Base: d, Disp: v * s.bytes})
	}
	g.ADDQ(srcPanel, p)
	g.ADDQ(dstPanel, d)
	g.DECQ(left)
	g.JNE(LabelRef("panel"))
	g.ADDQ(Imm(uint64(vectors*s.bytes)), dst)
	g.ADDQ(srcRow, src)
	g.DECQ(rows)
	g.JNE(LabelRef("row"))
	g.ret()
}

// loadWide loads one vector of consecutive elements, widened.
func loadWide(g *gen, s isa, k kind, m Mem, v reg.VecVirtual) {
	switch k.name {
	case "BF16":
		g.VPMOVZXWD(m, v)
		g.VPSLLD(Imm(16), v, v)
	case "F16":
		g.VCVTPH2PS(m, v)
	default:
		g.VMOVUPS(m, v)
	}
}
