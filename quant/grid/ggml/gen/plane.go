package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// transpose turns 16 runs of n float32 into a plane of n rows. Both widths use squares of 8×8.
func transpose(g *gen) {
	g.begin("transpose", "func(dst, src *float32, stride, n int)",
		"makes a plane of n rows (a multiple of 8) from 16 runs that lie stride floats apart.")
	dst, src, stride, n := g.param("dst"), g.param("src"), g.param("stride"), g.param("n")
	g.SHLQ(Imm(2), stride)
	three := g.GP64()
	g.LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, three)
	end := g.GP64()
	g.MOVQ(dst, end)
	g.SHLQ(Imm(6), n)
	g.ADDQ(n, end)
	g.Label("columns")
	for half := range 2 {
		base := g.GP64()
		if half == 0 {
			g.MOVQ(src, base)
		} else {
			g.LEAQ(Mem{Base: src, Index: stride, Scale: 8}, base)
		}
		second := g.GP64()
		g.LEAQ(Mem{Base: base, Index: stride, Scale: 4}, second)
		rows := make([]reg.VecVirtual, 8)
		for r := range rows {
			p := base
			if r >= 4 {
				p = second
			}
			m := Mem{Base: p}
			switch r % 4 {
			case 1:
				m.Index, m.Scale = stride, 1
			case 2:
				m.Index, m.Scale = stride, 2
			case 3:
				m.Index, m.Scale = three, 1
			}
			rows[r] = g.YMM()
			g.VMOVUPS(m, rows[r])
		}
		for c, v := range square8(g, rows) {
			g.VMOVUPS(v, Mem{Base: dst, Disp: rowBytes*c + 32*half})
		}
	}
	g.ADDQ(Imm(32), src)
	g.ADDQ(U32(8*rowBytes), dst)
	g.CMPQ(dst, end)
	g.JL(LabelRef("columns"))
	g.end()
}

// square8 transposes an 8×8 square of 32-bit elements.
func square8(g *gen, r []reg.VecVirtual) []reg.VecVirtual {
	pairs := make([]reg.VecVirtual, 8)
	for i := 0; i < 8; i += 2 {
		pairs[i], pairs[i+1] = g.YMM(), g.YMM()
		g.VUNPCKLPS(r[i+1], r[i], pairs[i])
		g.VUNPCKHPS(r[i+1], r[i], pairs[i+1])
	}
	quads := make([]reg.VecVirtual, 8)
	for h := 0; h < 8; h += 4 { // rows h … h+3: columns 0 … 3 of either 128-bit lane
		for k := range 2 {
			quads[h+2*k], quads[h+2*k+1] = g.YMM(), g.YMM()
			g.VUNPCKLPD(pairs[h+2+k], pairs[h+k], quads[h+2*k])
			g.VUNPCKHPD(pairs[h+2+k], pairs[h+k], quads[h+2*k+1])
		}
	}
	out := make([]reg.VecVirtual, 8)
	for c := range 4 {
		out[c], out[c+4] = g.YMM(), g.YMM()
		g.VPERM2F128(Imm(0x20), quads[4+c], quads[c], out[c])
		g.VPERM2F128(Imm(0x31), quads[4+c], quads[c], out[c+4])
	}
	return out
}

// transposeBytes turns a plane of n rows of 16 bytes into 16 runs.
func transposeBytes(g *gen) {
	g.begin("transposeBytes", "func(dst *uint8, stride int, src *uint8, n int)",
		"makes 16 runs of n bytes (a multiple of 16), stride bytes apart, from rows of 16 bytes.")
	dst, stride, src, n := g.param("dst"), g.param("stride"), g.param("src"), g.param("n")
	end := g.GP64()
	g.MOVQ(dst, end)
	g.ADDQ(n, end)
	g.Label("columns")
	p := g.GP64()
	g.MOVQ(dst, p)
	for half := range 2 { // lanes 0 … 7, then 8 … 15
		rows := make([]reg.VecVirtual, 8)
		for r := range rows {
			low, high := g.XMM(), g.XMM()
			g.VMOVQ(Mem{Base: src, Disp: 16*r + 8*half}, low)
			g.VMOVQ(Mem{Base: src, Disp: 16*(r+8) + 8*half}, high)
			rows[r] = g.XMM()
			g.VPUNPCKLBW(high, low, rows[r])
		}
		for range 3 { // interleaving i with i+4 leaves a lane with its 16 rows in order in each register
			next := make([]reg.VecVirtual, 8)
			for i := range 4 {
				next[2*i], next[2*i+1] = g.XMM(), g.XMM()
				g.VPUNPCKLBW(rows[i+4], rows[i], next[2*i])
				g.VPUNPCKHBW(rows[i+4], rows[i], next[2*i+1])
			}
			rows = next
		}
		for _, v := range rows {
			g.VMOVDQU(v, Mem{Base: p})
			g.ADDQ(stride, p)
		}
	}
	g.ADDQ(U32(256), src)
	g.ADDQ(Imm(16), dst)
	g.CMPQ(dst, end)
	g.JL(LabelRef("columns"))
	g.end()
}

// squares adds the squares of a plane's rows.
func squares(g *gen) {
	g.begin("squares", "func(sum, x *float32, n int)", "adds Σ x² over the n rows of a plane to sum.")
	g.lanes(func() {
		x, n, sum := g.plane("x"), g.rows("n"), g.plane("sum")
		s := g.load(Mem{Base: sum})
		g.each("row", 0, n, func(i reg.GPVirtual) {
			v := g.load(at(x, i))
			g.addTo(s, g.mul(v, v))
		})
		g.VMOVUPS(s, Mem{Base: sum})
	})
	g.end()
}

// rowSum adds the rows of a plane.
func rowSum(g *gen) {
	g.begin("rowSum", "func(sum, x *float32, n int)", "sets sum to Σ x over the n rows of a plane.")
	g.lanes(func() {
		x, n := g.plane("x"), g.rows("n")
		s := g.zero()
		g.each("row", 0, n, func(i reg.GPVirtual) { g.addTo(s, at(x, i)) })
		g.VMOVUPS(s, Mem{Base: g.plane("sum")})
	})
	g.end()
}

// square squares a plane.
func square(g *gen) {
	g.begin("square", "func(dst, x *float32, n int)", "sets dst to x² over n rows.")
	g.lanes(func() {
		dst, x, n := g.plane("dst"), g.plane("x"), g.rows("n")
		g.each("row", 0, n, func(i reg.GPVirtual) {
			v := g.load(at(x, i))
			g.VMOVUPS(g.mul(v, v), at(dst, i))
		})
	})
	g.end()
}

// weights is importanceWeights on a plane.
func weights(g *gen) {
	g.begin("weights", "func(w, x, im, sigma2 *float32, n int)", "sets w to im·sqrt(sigma2 + x²) over n rows.")
	g.lanes(func() {
		w, x, im, n := g.plane("w"), g.plane("x"), g.plane("im"), g.rows("n")
		sigma := g.load(Mem{Base: g.plane("sigma2")})
		g.each("row", 0, n, func(i reg.GPVirtual) {
			v := g.load(at(x, i))
			g.VMOVUPS(g.mul(g.sqrt(g.add(sigma, g.mul(v, v))), at(im, i)), at(w, i))
		})
	})
	g.end()
}

// rootWeights is weightsRMS on a plane of one sub-block of 32.
func rootWeights(g *gen) {
	g.begin("rootWeights", "func(w, x *float32, n int, scale float32)",
		"sets w to sqrt(scale·Σ x²) + |x| over the n rows; scale is a power of two.")
	g.lanes(func() {
		w, x, n := g.plane("w"), g.plane("x"), g.rows("n")
		s := g.zero()
		g.each("sum", 0, n, func(i reg.GPVirtual) {
			v := g.load(at(x, i))
			g.addTo(s, g.mul(v, v))
		})
		f := g.XMM()
		g.Load(g.Param("scale"), f)
		root := g.sqrt(g.mul(s, g.broadcast(f)))
		magnitude := g.int(0x7fffffff)
		g.each("row", 0, n, func(i reg.GPVirtual) {
			g.VMOVUPS(g.add(root, g.abs(g.load(at(x, i)), magnitude)), at(w, i))
		})
	})
	g.end()
}

// requant rounds a plane with known steps.
func requant(g *gen) {
	g.begin("requant", "func(codes *uint8, x *float32, n int, step, minimum *float32, lo, hi, base int32)",
		"sets codes to clamp(rn((x + minimum)/step), lo, hi) + base over n rows, except in lanes of step 0.")
	g.lanes(func() {
		codes, x, n := g.bytePlane("codes"), g.plane("x"), g.rows("n")
		step, minimum := g.load(Mem{Base: g.plane("step")}), g.load(Mem{Base: g.plane("minimum")})
		var limits [3]reg.VecVirtual
		for i, name := range []string{"lo", "hi", "base"} {
			r, f := g.GP32(), g.XMM()
			g.Load(g.Param(name), r)
			g.VMOVD(r, f)
			limits[i] = g.vec()
			g.VPBROADCASTD(f, limits[i])
		}
		lo, hi, base := limits[0], limits[1], limits[2]
		round := g.rounder()
		live := g.compare(notEqual, step, g.zero())
		g.each("row", 0, n, func(i reg.GPVirtual) {
			q := g.rn(round, g.div(g.add(g.load(at(x, i)), minimum), step))
			q = g.intAdd(g.intMin(g.intMax(q, lo), hi), base)
			c := g.loadBytes(Mem{Base: codes})
			g.choose(live, q, c)
			g.storeBytes(c, Mem{Base: codes})
			g.ADDQ(Imm(16), codes)
		})
	})
	g.end()
}
