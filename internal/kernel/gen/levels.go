package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// levels are the steps that error feedback takes once per weight and candidate.
func levels(g *gen) {
	vectorFunc(g, "roundLevelsAVX2", "func(y *float32, codes *uint8, x, scale, zero *float32, top float32, n int)",
		"rounds x to whole multiples of scale, and stores them in y and, behind zero, in codes.")
	y, codes, x := g.param("y"), g.param("codes"), g.param("x")
	scale, zero, top, n := g.param("scale"), g.param("zero"), g.splatParam("top"), g.param("n")
	sign, magic := g.YMM(), g.YMM()
	g.VMOVUPS(g.splatBits("sign", 1<<31), sign)
	g.VMOVUPS(g.splat("magic", 0x1.8p23), magic)
	g.loop(n, 16, []stream{{y, 64}, {codes, 16}, {x, 64}, {scale, 64}, {zero, 64}}, func() {
		var words []reg.VecVirtual
		pair(func(d int) {
			s, z, v, end := g.YMM(), g.YMM(), g.YMM(), g.YMM()
			g.VMOVUPS(Mem{Base: scale, Disp: d}, s)
			g.VMOVUPS(Mem{Base: zero, Disp: d}, z)
			g.VMOVUPS(Mem{Base: x, Disp: d}, v)
			g.VDIVPS(s, v, v)
			g.VXORPS(sign, z, end)
			g.VMAXPS(end, v, v)
			g.VSUBPS(z, top, end)
			g.VMINPS(end, v, v)
			g.VADDPS(magic, v, v)
			g.VSUBPS(magic, v, v)
			g.VMULPS(v, s, s)
			g.VMOVUPS(s, Mem{Base: y, Disp: d})
			g.VADDPS(z, v, v)
			g.VCVTTPS2DQ(v, v)
			words = append(words, v)
		})
		g.VPACKUSDW(words[1], words[0], words[0]) // both halves of the one beside those of the other …
		g.VPERMQ(Imm(0xd8), words[0], words[0])   // … and in order
		high := g.XMM()
		g.VEXTRACTI128(Imm(1), words[0], high)
		g.VPACKUSWB(high, words[0].AsX(), high)
		g.VMOVDQU(high, Mem{Base: codes})
	})

	vectorFunc(g, "feedbackErrorsAVX2", "func(e, loss, x, y *float32, inv float32, n int)", "sets e = (y-x)*inv and adds e² to loss.")
	e, loss, x, y := g.param("e"), g.param("loss"), g.param("x"), g.param("y")
	inv, n := g.splatParam("inv"), g.param("n")
	g.loop(n, 16, []stream{{e, 64}, {loss, 64}, {x, 64}, {y, 64}}, func() {
		pair(func(d int) {
			v := g.YMM()
			g.VMOVUPS(Mem{Base: y, Disp: d}, v)
			g.VSUBPS(Mem{Base: x, Disp: d}, v, v)
			g.VMULPS(inv, v, v)
			g.VMOVUPS(v, Mem{Base: e, Disp: d})
			g.VMULPS(v, v, v)
			g.VADDPS(Mem{Base: loss, Disp: d}, v, v)
			g.VMOVUPS(v, Mem{Base: loss, Disp: d})
		})
	})
}
