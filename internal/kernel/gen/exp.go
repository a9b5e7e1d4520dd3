package main

import (
	"math"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// expTerms are the coefficients of exp32 in the Go package, highest power first; they must agree bit for bit.
var expTerms = []float32{0x1.6a2434p-10, 0x1.1239e2p-7, 0x1.5558f2p-5, 0x1.555492p-3, 0x1.fffffcp-2, 1, 1}

// splat is a read-only vector of eight equal float32.
func (g *gen) splat(name string, v float32) Mem { return g.splatBits(name, math.Float32bits(v)) }

func (g *gen) splatBits(name string, v uint32) Mem {
	return g.constant(name, func() {
		for range 8 {
			g.AppendDatum(U32(v))
		}
	})
}

// exp replaces x by e^x, step for step as exp32 does.
func (g *gen) exp(x reg.VecVirtual) {
	magic := g.splat("exp_magic", 0x1.8p23)
	low, high := g.YMM(), g.YMM()
	g.VMOVUPS(g.splat("exp_low", -105), low)
	g.VMAXPS(x, low, x) // a NaN is the second source and survives
	g.VMOVUPS(g.splat("exp_high", 89), high)
	g.VMINPS(x, high, x)

	t, n := g.YMM(), g.YMM()
	g.VMOVUPS(g.splat("exp_log2e", math.Log2E), t)
	g.VFMADD213PS(magic, x, t)
	g.VSUBPS(magic, t, n)
	g.VFMADD231PS(g.splat("exp_ln2_high", -0x1.62e4p-1), n, x)
	g.VFMADD231PS(g.splat("exp_ln2_low", -0x1.7f7d1cp-20), n, x)

	y := g.YMM()
	g.VMOVUPS(g.splat("exp_c6", expTerms[0]), y)
	for i, c := range expTerms[1:] {
		g.VFMADD213PS(g.splat([]string{"exp_c5", "exp_c4", "exp_c3", "exp_c2", "one", "one"}[i], c), x, y)
	}

	k, half := g.YMM(), g.YMM() // y·2^half·2^(k-half)
	g.VPSUBD(magic, t, k)
	g.VPSRAD(Imm(1), k, half)
	g.VPSUBD(half, k, k)
	for _, e := range []reg.VecVirtual{half, k} {
		g.VPADDD(g.splatBits("exp_bias", 127), e, e)
		g.VPSLLD(Imm(23), e, e)
		g.VMULPS(e, y, y)
	}
	g.VMOVAPS(y, x)
}
