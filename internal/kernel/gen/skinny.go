package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Layout of the rows of B that a skinny kernel reads; it must agree with skinny.go in the package. The padding spreads
// the rows over the sets of the first-level cache.
const (
	skinnyRows   = 8
	skinnyStride = (512 + 16) * 4 // bytes
)

// skinnies writes kernels for products with few rows of A. Their vectors run along those rows, so that B is read as it lies,
// one broadcast per multiply-add, instead of being transposed for a single use.
func skinnies(g *gen) {
	skinny(g, "AVX512", 16, func() reg.VecVirtual { return g.ZMM() })
	skinny(g, "AVX2", 8, func() reg.VecVirtual { return g.YMM() })
	skinny(g, "AVX2", 4, func() reg.VecVirtual { return g.XMM() })
}

func skinny(g *gen, isaName string, width int, vec func() reg.VecVirtual) {
	name := fmt.Sprintf("skinny%sx%d", isaName, width)
	g.Function(name)
	g.Attributes(attr.NOSPLIT)
	g.SignatureExpr("func(k int, a, b, c *float32, add bool)")
	g.Doc(fmt.Sprintf("%s multiplies a packed panel of %d rows of A with %d rows of B; c holds %d numbers for each row of B.", name, width, skinnyRows, width))
	g.Pragma("noescape")
	k, a, b, c := g.param("k"), g.param("a"), g.param("b"), g.param("c")
	var acc [skinnyRows]reg.VecVirtual
	for r := range acc {
		acc[r] = vec()
		if width == 16 {
			g.VPXORD(acc[r], acc[r], acc[r])
		} else {
			g.VXORPS(acc[r], acc[r], acc[r])
		}
	}
	step := func(u int) {
		av := vec()
		g.VMOVUPS(Mem{Base: a, Disp: 4 * width * u}, av)
		for r := range acc {
			m := Mem{Base: b, Disp: r*skinnyStride + 4*u}
			if width == 16 {
				g.VFMADD231PS_BCST(m, av, acc[r])
			} else {
				bv := vec()
				g.VBROADCASTSS(m, bv)
				g.VFMADD231PS(bv, av, acc[r])
			}
		}
	}
	const unroll = 4
	g.SUBQ(U32(unroll), k)
	g.JL(LabelRef("rest"))
	g.Label("main")
	for u := range unroll {
		step(u)
	}
	g.ADDQ(U32(unroll*4*width), a)
	g.ADDQ(U32(unroll*4), b)
	g.SUBQ(U32(unroll), k)
	g.JGE(LabelRef("main"))
	g.Label("rest")
	g.ADDQ(U32(unroll), k)
	g.JE(LabelRef("done"))
	g.Label("one")
	step(0)
	g.ADDQ(U32(4*width), a)
	g.ADDQ(U32(4), b)
	g.DECQ(k)
	g.JNE(LabelRef("one"))
	g.Label("done")
	flag := g.GP8()
	g.Load(g.Param("add"), flag)
	g.TESTB(flag, flag)
	g.JE(LabelRef("store"))
	for r := range acc {
		g.VADDPS(Mem{Base: c, Disp: 4 * width * r}, acc[r], acc[r])
	}
	g.Label("store")
	for r := range acc {
		g.VMOVUPS(acc[r], Mem{Base: c, Disp: 4 * width * r})
	}
	g.ret()
}
