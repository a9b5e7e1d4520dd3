package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The elementwise kernels use AVX2 alone: they are bound by memory or take no time beside the products. They work on a
// multiple of 16 elements, the number of accumulators of a sum; Go does the rest.

func vectors(g *gen) {
	elementwise(g)
	updates(g)
	reductions(g)
	conversions(g)
}

// vectorFunc starts a function over n elements of the given arrays and returns its registers.
func vectorFunc(g *gen, name, signature, doc string) {
	g.Function(name)
	g.Attributes(attr.NOSPLIT)
	g.SignatureExpr(signature)
	g.Doc(name + " " + doc)
	g.Pragma("noescape")
}

// stream is an array that a loop walks along.
type stream struct {
	reg.GPVirtual
	step int // bytes per iteration
}

// loop repeats body until count units are done. It advances the streams.
func (g *gen) loop(count reg.GPVirtual, unit int, streams []stream, body func()) {
	g.Label("loop")
	body()
	for _, s := range streams {
		g.ADDQ(Imm(uint64(s.step)), s.GPVirtual)
	}
	g.SUBQ(Imm(uint64(unit)), count)
	g.JNE(LabelRef("loop"))
	g.ret()
}

// pair visits the two vectors of 16 float32.
func pair(visit func(disp int)) {
	visit(0)
	visit(32)
}

// splatParam broadcasts a float32 argument.
func (g *gen) splatParam(name string) reg.VecVirtual {
	v := g.YMM()
	addr, err := g.Param(name).Resolve()
	if err != nil {
		panic(err) // a bug of the generator
	}
	g.VBROADCASTSS(addr.Addr, v)
	return v
}

func elementwise(g *gen) {
	vectorFunc(g, "expAVX2", "func(dst, x *float32, n int)", "sets dst = e^x.")
	dst, x, n := g.param("dst"), g.param("x"), g.param("n")
	g.loop(n, 16, []stream{{dst, 64}, {x, 64}}, func() {
		pair(func(d int) {
			v := g.YMM()
			g.VMOVUPS(Mem{Base: x, Disp: d}, v)
			g.exp(v)
			g.VMOVUPS(v, Mem{Base: dst, Disp: d})
		})
	})

	vectorFunc(g, "expSumAVX2", "func(acc *[16]float32, x *float32, top float32, n int)", "replaces x by e^(x-top) and adds it to acc.")
	acc, x, top, n := g.param("acc"), g.param("x"), g.splatParam("top"), g.param("n")
	sums := g.accumulators(acc, 2)
	g.Label("loop")
	pair(func(d int) {
		v := g.YMM()
		g.VMOVUPS(Mem{Base: x, Disp: d}, v)
		g.VSUBPS(top, v, v)
		g.exp(v)
		g.VMOVUPS(v, Mem{Base: x, Disp: d})
		g.VADDPS(v, sums[d/32], sums[d/32])
	})
	g.ADDQ(Imm(64), x)
	g.SUBQ(Imm(16), n)
	g.JNE(LabelRef("loop"))
	g.saveAccumulators(acc, sums)

	vectorFunc(g, "siluMulAVX2", "func(dst, gate, up *float32, n int)", "sets dst = gate/(1+e^-gate)*up.")
	dst, gate, up, n := g.param("dst"), g.param("gate"), g.param("up"), g.param("n")
	g.loop(n, 16, []stream{{dst, 64}, {gate, 64}, {up, 64}}, func() {
		pair(func(d int) {
			v, e := g.YMM(), g.YMM()
			g.VMOVUPS(Mem{Base: gate, Disp: d}, v)
			g.VXORPS(g.splatBits("sign", 1<<31), v, e)
			g.exp(e)
			g.VADDPS(g.splat("one", 1), e, e)
			g.VDIVPS(e, v, v)
			g.VMULPS(Mem{Base: up, Disp: d}, v, v)
			g.VMOVUPS(v, Mem{Base: dst, Disp: d})
		})
	})

	vectorFunc(g, "scaleAVX2", "func(x *float32, s float32, n int)", "multiplies x by s.")
	x, s, n := g.param("x"), g.splatParam("s"), g.param("n")
	g.loop(n, 16, []stream{{x, 64}}, func() {
		pair(func(d int) {
			v := g.YMM()
			g.VMULPS(Mem{Base: x, Disp: d}, s, v)
			g.VMOVUPS(v, Mem{Base: x, Disp: d})
		})
	})

	vectorFunc(g, "addScaledAVX2", "func(dst, x *float32, s float32, n int)", "adds s*x to dst.")
	dst, x, s, n = g.param("dst"), g.param("x"), g.splatParam("s"), g.param("n")
	g.loop(n, 16, []stream{{dst, 64}, {x, 64}}, func() {
		pair(func(d int) {
			v := g.YMM()
			g.VMOVUPS(Mem{Base: dst, Disp: d}, v)
			g.VFMADD231PS(Mem{Base: x, Disp: d}, s, v)
			g.VMOVUPS(v, Mem{Base: dst, Disp: d})
		})
	})

	vectorFunc(g, "scaleMulAVX2", "func(dst, x, weight *float32, s float32, n int)", "sets dst = x*s*weight.")
	dst, x, w, s, n := g.param("dst"), g.param("x"), g.param("weight"), g.splatParam("s"), g.param("n")
	g.loop(n, 16, []stream{{dst, 64}, {x, 64}, {w, 64}}, func() {
		pair(func(d int) {
			v := g.YMM()
			g.VMULPS(Mem{Base: x, Disp: d}, s, v)
			g.VMULPS(Mem{Base: w, Disp: d}, v, v)
			g.VMOVUPS(v, Mem{Base: dst, Disp: d})
		})
	})
}

// updates writes the kernel that adds several scaled vectors to one, which stays in registers.
func updates(g *gen) {
	vectorFunc(g, "addScaledRowsAVX2", "func(dst, x *float32, stride int, s *float32, count, n int)",
		"adds s[i]*x[i] to dst for count vectors x[i] of n elements, in order. The stride is in bytes.")
	dst, x, stride, s, count, n := g.param("dst"), g.param("x"), g.param("stride"), g.param("s"), g.param("count"), g.param("n")
	block := func(name string, vectors int) {
		acc := make([]reg.VecVirtual, vectors)
		for i := range acc {
			acc[i] = g.YMM()
			g.VMOVUPS(Mem{Base: dst, Disp: 32 * i}, acc[i])
		}
		p, f, left, b := g.GP64(), g.GP64(), g.GP64(), g.YMM()
		g.MOVQ(x, p)
		g.MOVQ(s, f)
		g.MOVQ(count, left)
		g.Label(name)
		g.VBROADCASTSS(Mem{Base: f}, b)
		for i := range acc {
			g.VFMADD231PS(Mem{Base: p, Disp: 32 * i}, b, acc[i])
		}
		g.ADDQ(stride, p)
		g.ADDQ(Imm(4), f)
		g.DECQ(left)
		g.JNE(LabelRef(name))
		for i := range acc {
			g.VMOVUPS(acc[i], Mem{Base: dst, Disp: 32 * i})
		}
		g.ADDQ(U32(32*vectors), dst)
		g.ADDQ(U32(32*vectors), x)
	}
	g.SUBQ(Imm(64), n)
	g.JL(LabelRef("rest"))
	g.Label("wide")
	block("wideSum", 8)
	g.SUBQ(Imm(64), n)
	g.JGE(LabelRef("wide"))
	g.Label("rest")
	g.ADDQ(Imm(64), n)
	g.JLE(LabelRef("done"))
	g.Label("narrow")
	block("narrowSum", 2)
	g.SUBQ(Imm(16), n)
	g.JNE(LabelRef("narrow"))
	g.Label("done")
	g.ret()
}

// accumulators loads vectors of sums.
func (g *gen) accumulators(acc reg.GPVirtual, vectors int) []reg.VecVirtual {
	sums := make([]reg.VecVirtual, vectors)
	for i := range sums {
		sums[i] = g.YMM()
		g.VMOVUPS(Mem{Base: acc, Disp: 32 * i}, sums[i])
	}
	return sums
}

// saveAccumulators stores them and returns from the function.
func (g *gen) saveAccumulators(acc reg.GPVirtual, sums []reg.VecVirtual) {
	for i, s := range sums {
		g.VMOVUPS(s, Mem{Base: acc, Disp: 32 * i})
	}
	g.ret()
}

func reductions(g *gen) {
	// over float32: one step per vector
	for _, r := range []struct {
		name, doc string
		step      func(m Mem, acc reg.VecVirtual)
	}{
		{"maxAVX2", "raises acc to x.", func(m Mem, acc reg.VecVirtual) { g.VMAXPS(m, acc, acc) }},
		{"sumAVX2", "adds x to acc.", func(m Mem, acc reg.VecVirtual) { g.VADDPS(m, acc, acc) }},
		{"sumSqAVX2", "adds x² to acc.", func(m Mem, acc reg.VecVirtual) {
			v := g.YMM()
			g.VMOVUPS(m, v)
			g.VFMADD231PS(v, v, acc)
		}},
	} {
		vectorFunc(g, r.name, "func(acc *[16]float32, x *float32, n int)", r.doc)
		acc, x, n := g.param("acc"), g.param("x"), g.param("n")
		sums := g.accumulators(acc, 2)
		g.Label("loop")
		pair(func(d int) { r.step(Mem{Base: x, Disp: d}, sums[d/32]) })
		g.ADDQ(Imm(64), x)
		g.SUBQ(Imm(16), n)
		g.JNE(LabelRef("loop"))
		g.saveAccumulators(acc, sums)
	}

	// over pairs of float32, in float64: four numbers at a time
	for _, r := range []struct {
		name, doc string
		step      func(a, b, acc reg.VecVirtual)
	}{
		{"dot64AVX2", "adds a*b to acc.", func(a, b, acc reg.VecVirtual) { g.VFMADD231PD(a, b, acc) }},
		{"sqDiffAVX2", "adds (a-b)² to acc.", func(a, b, acc reg.VecVirtual) {
			g.VSUBPD(b, a, a)
			g.VFMADD231PD(a, a, acc)
		}},
	} {
		vectorFunc(g, r.name, "func(acc *[16]float64, a, b *float32, n int)", r.doc)
		acc, a, b, n := g.param("acc"), g.param("a"), g.param("b"), g.param("n")
		sums := g.accumulators(acc, 4)
		g.Label("loop")
		for i, sum := range sums {
			va, vb := g.YMM(), g.YMM()
			g.VCVTPS2PD(Mem{Base: a, Disp: 16 * i}, va)
			g.VCVTPS2PD(Mem{Base: b, Disp: 16 * i}, vb)
			r.step(va, vb, sum)
		}
		g.ADDQ(Imm(64), a)
		g.ADDQ(Imm(64), b)
		g.SUBQ(Imm(16), n)
		g.JNE(LabelRef("loop"))
		g.saveAccumulators(acc, sums)
	}

	// down the columns of a matrix: 16 columns at a time, so that whole cache lines are used
	for _, r := range []struct {
		name, doc string
		step      func(v, acc reg.VecVirtual)
	}{
		{"colAbsSumAVX2", "adds |x| to dst, column by column.", func(v, acc reg.VecVirtual) {
			g.VANDPD(g.constant("abs64", func() {
				for range 4 {
					g.AppendDatum(U64(1<<63 - 1))
				}
			}), v, v)
			g.VADDPD(v, acc, acc)
		}},
		{"colSumSqAVX2", "adds x² to dst, column by column.", func(v, acc reg.VecVirtual) { g.VFMADD231PD(v, v, acc) }},
	} {
		vectorFunc(g, r.name, "func(dst *float64, x *float32, stride, rows, cols int)", fmt.Sprintf("%s The stride is in bytes.", r.doc))
		dst, x, stride, rows, cols := g.param("dst"), g.param("x"), g.param("stride"), g.param("rows"), g.param("cols")
		g.Label("column")
		sums := g.accumulators(dst, 4)
		p, left := g.GP64(), g.GP64()
		g.MOVQ(x, p)
		g.MOVQ(rows, left)
		g.Label("row")
		for i, sum := range sums {
			v := g.YMM()
			g.VCVTPS2PD(Mem{Base: p, Disp: 16 * i}, v)
			r.step(v, sum)
		}
		g.ADDQ(stride, p)
		g.DECQ(left)
		g.JNE(LabelRef("row"))
		for i, sum := range sums {
			g.VMOVUPS(sum, Mem{Base: dst, Disp: 32 * i})
		}
		g.ADDQ(Imm(128), dst)
		g.ADDQ(Imm(64), x)
		g.SUBQ(Imm(16), cols)
		g.JNE(LabelRef("column"))
		g.ret()
	}
}

func conversions(g *gen) {
	for _, k := range []kind{fromF32, fromBF16, fromF16} {
		vectorFunc(g, "widen"+k.name+"AVX2", "func(dst *float32, src *byte, n int)", "widens src exactly. It fetches 512 elements ahead.")
		dst, src, n := g.param("dst"), g.param("src"), g.param("n")
		g.loop(n, 16, []stream{{dst, 64}, {src, 16 * k.size}}, func() {
			g.PREFETCHT1(Mem{Base: src, Disp: 512 * k.size})
			pair(func(d int) {
				v := g.YMM()
				loadWide(g, avx2, k, Mem{Base: src, Disp: d * k.size / 4}, v)
				g.VMOVUPS(v, Mem{Base: dst, Disp: d})
			})
		})
	}

	vectorFunc(g, "narrowF16AVX2", "func(dst *uint16, src *float32, n int)", "rounds src to nearest, ties to even.")
	dst, src, n := g.param("dst"), g.param("src"), g.param("n")
	g.loop(n, 16, []stream{{dst, 32}, {src, 64}}, func() {
		pair(func(d int) {
			v := g.YMM()
			g.VMOVUPS(Mem{Base: src, Disp: d}, v)
			g.VCVTPS2PH(Imm(0), v, Mem{Base: dst, Disp: d / 2})
		})
	})
	narrowings(g)
}
