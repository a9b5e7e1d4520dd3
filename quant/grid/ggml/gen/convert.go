package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// convertLoop runs body for every 16 elements; src and dst advance.
func convertLoop(g *gen, srcSize, dstSize int, body func(src, dst reg.GPVirtual)) {
	dst, src, n := g.param("dst"), g.param("src"), g.param("runs")
	g.Label("run")
	body(src, dst)
	g.ADDQ(Imm(uint64(16*srcSize)), src)
	g.ADDQ(Imm(uint64(16*dstSize)), dst)
	g.DECQ(n)
	g.JNE(LabelRef("run"))
	g.end()
}

// convertFrom16 widens F16 or BF16.
func convertFrom16(name string) func(*gen) {
	return func(g *gen) {
		g.begin("from"+name, "func(dst *float32, src *byte, runs int)", "widens runs of 16 "+name+" numbers.")
		convertLoop(g, 2, 4, func(src, dst reg.GPVirtual) {
			for i := range 64 / g.bytes {
				v, m := g.vec(), Mem{Base: src, Disp: i * g.bytes / 2}
				if name == "F16" {
					g.VCVTPH2PS(m, v)
				} else {
					g.VPMOVZXWD(m, v)
					g.VPSLLD(Imm(16), v, v)
				}
				g.VMOVUPS(v, Mem{Base: dst, Disp: i * g.bytes})
			}
		})
	}
}

// convertTo16 rounds finite numbers to F16 or BF16, ties to even.
func convertTo16(name string) func(*gen) {
	return func(g *gen) {
		g.begin("to"+name, "func(dst *byte, src *float32, runs int)", "rounds runs of 16 finite numbers to "+name+".")
		half, one := g.int(0x7fff), g.int(1)
		convertLoop(g, 4, 2, func(src, dst reg.GPVirtual) {
			var v []reg.VecVirtual
			for i := range 64 / g.bytes {
				v = append(v, g.load(Mem{Base: src, Disp: i * g.bytes}))
				if name == "F16" {
					h := g.YMM()
					if g.wide() {
						g.VCVTPS2PH(Imm(0), v[i], h)
						g.VMOVDQU(h, Mem{Base: dst})
					} else {
						g.VCVTPS2PH(Imm(0), v[i], h.AsX())
						g.VMOVDQU(h.AsX(), Mem{Base: dst, Disp: 16 * i})
					}
					continue
				}
				odd := g.vec() // adding 0x7fff, and 1 where the result would else be odd
				g.VPSRLD(Imm(16), v[i], odd)
				v[i] = g.intAdd(g.intAdd(v[i], half), g.bitAnd(odd, one))
				g.VPSRLD(Imm(16), v[i], v[i])
			}
			switch {
			case name == "F16":
			case g.wide():
				g.VPMOVDW(v[0], Mem{Base: dst})
			default:
				h := g.YMM()
				g.VPACKUSDW(v[1], v[0], h)
				g.VPERMQ(Imm(0xd8), h, h)
				g.VMOVDQU(h, Mem{Base: dst})
			}
		})
	}
}
