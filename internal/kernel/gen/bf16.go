package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Tiles of bfloat16 products. An element of a panel is a word: the numbers of two successive k, the first one in the lower
// half. To the packing code and to the addition of blocks it is no different from a float32.
var (
	pairs      = elem{"BF16", "float32", 4}      // by the instruction made for it
	splitPairs = elem{"SplitBF16", "float32", 4} // by two fused multiply-adds
)

func tilesBF16(g *gen) {
	for _, v := range []struct {
		tileShape
		e     elem
		chain func(t tile)
	}{
		{shapes[0], pairs, tile.multiplyPairs},
		{shapes[0], splitPairs, tile.multiplySplit},
		{shapes[1], splitPairs, tile.multiplySplit},
	} {
		v.unroll = 1
		for rows := 1; rows <= v.rows; rows++ {
			t := newTile(g, v.tileShape, v.e, rows, fmt.Sprintf("tile%s%sx%d", v.e.name, v.name, rows), v.e)
			v.chain(t)
			t.store()
		}
		t := newTile(g, v.tileShape, v.e, v.rows, fmt.Sprintf("tile%stoF64%s", v.e.name, v.name), f64)
		v.chain(t)
		t.addWide()
	}
}

// multiplyPairs runs the chains by VDPBF16PS, which flushes denormal numbers whatever MXCSR says.
func (t tile) multiplyPairs() {
	g, s := t.gen, t.shape
	bv := [tileVectors]reg.VecVirtual{g.vec(s.isa), g.vec(s.isa)}
	av := [2]reg.VecVirtual{g.vec(s.isa), g.vec(s.isa)}
	t.multiply(func(u int) {
		for v := range bv {
			g.VMOVUPS(t.memB(u, v), bv[v])
		}
		for r := range t.acc {
			g.broadcast(t.e, t.memA(u, r), av[r%2])
			for v := range bv {
				g.dot(av[r%2], bv[v], t.acc[r][v])
			}
		}
	})
}

// multiplySplit runs the same chains by fused multiply-adds: the upper halves of all words of a step, then the lower ones,
// so that one register per vector of B is enough. Denormal numbers are flushed only here: C is added as it is.
func (t tile) multiplySplit() {
	g := t.gen
	high := g.vec(t.shape.isa)
	g.VBROADCASTSS(g.constant("high_half", func() { g.AppendDatum(U32(0xffff0000)) }), high)
	saved := g.flushDenormals()
	bv := [tileVectors]reg.VecVirtual{g.vec(t.shape.isa), g.vec(t.shape.isa)}
	av := g.vec(t.shape.isa)
	t.multiply(func(u int) {
		for _, half := range []func(m Mem, dst reg.VecVirtual, broadcast bool){
			func(m Mem, dst reg.VecVirtual, broadcast bool) { t.upperHalf(m, high, dst, broadcast) },
			t.lowerHalf,
		} {
			for v := range bv {
				half(t.memB(u, v), bv[v], false)
			}
			for r := range t.acc {
				half(t.memA(u, r), av, true)
				for v := range bv {
					g.fma(t.e, av, bv[v], t.acc[r][v])
				}
			}
		}
	})
	g.LDMXCSR(saved)
}

// upperHalf loads the upper numbers of a vector of words, or of one word for all.
func (t tile) upperHalf(m Mem, mask, dst reg.VecVirtual, broadcast bool) {
	g := t.gen
	switch {
	case t.shape.bytes == 64 && broadcast:
		g.VPANDD_BCST(m, mask, dst)
	case t.shape.bytes == 64:
		g.VPANDD(m, mask, dst)
	case broadcast:
		g.VBROADCASTSS(m, dst)
		g.VPAND(mask, dst, dst)
	default:
		g.VPAND(m, mask, dst)
	}
}

// lowerHalf loads the lower numbers likewise.
func (t tile) lowerHalf(m Mem, dst reg.VecVirtual, broadcast bool) {
	g := t.gen
	switch {
	case t.shape.bytes == 64 && broadcast:
		g.VPSLLD_BCST(Imm(16), m, dst)
		return
	case t.shape.bytes == 64:
		g.VPSLLD(Imm(16), m, dst)
		return
	case broadcast:
		g.VBROADCASTSS(m, dst)
	default:
		g.VMOVUPS(m, dst)
	}
	g.VPSLLD(Imm(16), dst, dst)
}

// flushDenormals makes arithmetic take denormal numbers as zero and return none, and returns where the old MXCSR lies.
func (g *gen) flushDenormals() (saved Mem) {
	const flush, zeros = 1 << 15, 1 << 6 // FTZ, DAZ
	frame := g.AllocLocal(8)
	saved, changed := frame, frame.Offset(4)
	g.STMXCSR(saved)
	r := g.GP32()
	g.MOVL(saved, r)
	g.ORL(U32(flush|zeros), r)
	g.MOVL(r, changed)
	g.LDMXCSR(changed)
	return saved
}

// roundBF16 rounds 8 float32 to bfloat16, to nearest with ties to even, in the lower halves of 32-bit units.
func (g *gen) roundBF16(src Mem) reg.VecVirtual {
	v, top, r, nan := g.YMM(), g.YMM(), g.YMM(), g.YMM()
	g.VMOVUPS(src, v)
	g.VPSRLD(Imm(16), v, top)
	g.VPAND(g.splatBits("one_bits", 1), top, r)
	g.VPADDD(g.splatBits("bf16_half", 0x7fff), r, r)
	g.VPADDD(v, r, r)
	g.VPSRLD(Imm(16), r, r)
	g.VPOR(g.splatBits("bf16_quiet", 0x40), top, top)
	g.VCMPPS(Imm(3), v, v, nan) // unordered
	g.VBLENDVPS(nan, top, r, r)
	return r
}

func narrowings(g *gen) {
	vectorFunc(g, "narrowBF16AVX2", "func(dst *uint16, src *float32, n int)", "rounds src to nearest, ties to even.")
	dst, src, n := g.param("dst"), g.param("src"), g.param("n")
	g.loop(n, 16, []stream{{dst, 32}, {src, 64}}, func() {
		var out []reg.VecVirtual
		pair(func(d int) { out = append(out, g.roundBF16(Mem{Base: src, Disp: d})) })
		g.VPACKUSDW(out[1], out[0], out[0])
		g.VPERMQ(Imm(0xd8), out[0], out[0])
		g.VMOVUPS(out[0], Mem{Base: dst})
	})

	vectorFunc(g, "pairBF16AVX2", "func(dst *uint16, low, high *float32, n int)", "rounds low and high likewise into the halves of words.")
	dst, n = g.param("dst"), g.param("n")
	low, high := g.param("low"), g.param("high")
	g.loop(n, 16, []stream{{dst, 64}, {low, 64}, {high, 64}}, func() {
		pair(func(d int) {
			lo, hi := g.roundBF16(Mem{Base: low, Disp: d}), g.roundBF16(Mem{Base: high, Disp: d})
			g.VPSLLD(Imm(16), hi, hi)
			g.VPOR(hi, lo, lo)
			g.VMOVUPS(lo, Mem{Base: dst, Disp: d})
		})
	})
}
