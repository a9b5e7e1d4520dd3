package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// float returns a vector with v in every lane.
func (g *gen) float(v float32) reg.VecVirtual { return g.int(math.Float32bits(v)) }

// int returns a vector with the 32 bits v in every lane.
func (g *gen) int(v uint32) reg.VecVirtual {
	name := fmt.Sprintf("const%08x", v)
	m, ok := g.constants[name]
	if !ok {
		m = g.StaticGlobal(name)
		g.DataAttributes(rodata)
		g.AddDatum(0, U32(v))
		g.constants[name] = m
	}
	return g.broadcast(m)
}

func (g *gen) broadcast(m Op) reg.VecVirtual {
	r := g.vec()
	g.VBROADCASTSS(m, r)
	return r
}

func (g *gen) zero() reg.VecVirtual {
	r := g.vec()
	g.clear(r)
	return r
}

// clear is VXORPS in both sets: avo knows that it does not read r, and does not know it of VPXORD.
func (g *gen) clear(r reg.Register) { g.VXORPS(r, r, r) }

func (g *gen) load(m Op) reg.VecVirtual {
	r := g.vec()
	g.VMOVUPS(m, r)
	return r
}

func (g *gen) copy(a Op) reg.VecVirtual {
	r := g.vec()
	g.VMOVAPS(a, r)
	return r
}

func (g *gen) set(dst reg.Register, a Op) { g.VMOVAPS(a, dst) }

func (g *gen) add(a, b Op) reg.VecVirtual { r := g.vec(); g.VADDPS(b, a, r); return r }
func (g *gen) sub(a, b Op) reg.VecVirtual { r := g.vec(); g.VSUBPS(b, a, r); return r }
func (g *gen) mul(a, b Op) reg.VecVirtual { r := g.vec(); g.VMULPS(b, a, r); return r }
func (g *gen) div(a, b Op) reg.VecVirtual { r := g.vec(); g.VDIVPS(b, a, r); return r }
func (g *gen) sqrt(a Op) reg.VecVirtual   { r := g.vec(); g.VSQRTPS(a, r); return r }

// addTo is acc += a.
func (g *gen) addTo(acc reg.Register, a Op) { g.VADDPS(a, acc, acc) }

// smaller is a < b ? a : b, so b when either is NaN or both are zero.
func (g *gen) smaller(a, b Op) reg.VecVirtual { r := g.vec(); g.VMINPS(b, a, r); return r }

// larger is a > b ? a : b.
func (g *gen) larger(a, b Op) reg.VecVirtual { r := g.vec(); g.VMAXPS(b, a, r); return r }

// round rounds to the nearest integer, ties to even.
func (g *gen) round(a Op) reg.VecVirtual {
	r := g.vec()
	if g.wide() {
		g.VRNDSCALEPS(Imm(roundToNearest), a, r)
	} else {
		g.VROUNDPS(Imm(roundToNearest), a, r)
	}
	return r
}

// roundTo rounds and limits to lo … hi, lo < 0 ≤ hi; only for values that the portable rn takes without wrapping.
func (g *gen) roundTo(a, lo, hi Op) reg.VecVirtual {
	r := g.round(a)
	g.limitBelow(r, lo)
	g.limitAbove(r, hi)
	return r
}

// roundCode is roundTo for 0 … hi.
func (g *gen) roundCode(a, zero, hi Op) reg.VecVirtual {
	r := g.round(a)
	g.notNegative(r, zero)
	g.limitAbove(r, hi)
	return r
}

// limitAbove is v = min(v, hi) for hi ≥ 0 and no NaN. Numbers compare as their bits do as integers, all negative ones below;
// the units for that are idle where the ones for comparing numbers are busy multiplying.
func (g *gen) limitAbove(v reg.Register, hi Op) { g.VPMINSD(hi, v, v) }

// limitBelow is v = max(v, lo) for lo < 0: as unsigned integers, numbers below lo are the only larger ones.
func (g *gen) limitBelow(v reg.Register, lo Op) { g.VPMINUD(lo, v, v) }

// notNegative is v = max(v, 0).
func (g *gen) notNegative(v reg.Register, zero Op) { g.VPMAXSD(zero, v, v) }

func (g *gen) bitAnd(a, b Op) reg.VecVirtual {
	r := g.vec()
	if g.wide() {
		g.VPANDD(b, a, r)
	} else {
		g.VPAND(b, a, r)
	}
	return r
}

func (g *gen) abs(a, mask Op) reg.VecVirtual { return g.bitAnd(a, mask) }

// negate flips the sign bit.
func (g *gen) negate(a Op) reg.VecVirtual {
	r := g.vec()
	if g.wide() {
		g.VPXORD(g.int(0x80000000), a, r)
	} else {
		g.VXORPS(g.int(0x80000000), a, r)
	}
	return r
}

func (g *gen) intMin(a, b Op) reg.VecVirtual { r := g.vec(); g.VPMINSD(b, a, r); return r }
func (g *gen) intMax(a, b Op) reg.VecVirtual { r := g.vec(); g.VPMAXSD(b, a, r); return r }
func (g *gen) intAdd(a, b Op) reg.VecVirtual { r := g.vec(); g.VPADDD(b, a, r); return r }
func (g *gen) toFloat(a Op) reg.VecVirtual   { r := g.vec(); g.VCVTDQ2PS(a, r); return r }
func (g *gen) toInt(a Op) reg.VecVirtual     { r := g.vec(); g.VCVTTPS2DQ(a, r); return r }

// rounder holds the constants of the exact rn of the portable code, which wraps far outside. AVX2 has no registers to
// spare for them and loads them at every use.
type rounder struct{ magic, mantissa, bias reg.VecVirtual }

func (g *gen) rounder() rounder {
	if !g.wide() {
		return rounder{}
	}
	return rounder{g.float(12582912), g.int(0x7fffff), g.int(0x400000)}
}

// rn rounds to integers exactly as the portable rn.
func (g *gen) rn(r rounder, a Op) reg.VecVirtual {
	pick := func(held reg.VecVirtual, bits uint32) reg.VecVirtual {
		if held == nil {
			return g.int(bits)
		}
		return held
	}
	t := g.bitAnd(g.add(a, pick(r.magic, 0x4b400000)), pick(r.mantissa, 0x7fffff))
	g.VPSUBD(pick(r.bias, 0x400000), t, t)
	return t
}

func (g *gen) orTo(dst reg.Register, a Op) {
	if g.wide() {
		g.VPORD(a, dst, dst)
	} else {
		g.VPOR(a, dst, dst)
	}
}

func (g *gen) xorTo(dst reg.Register, a Op) {
	if g.wide() {
		g.VPXORD(a, dst, dst)
	} else {
		g.VPXOR(a, dst, dst)
	}
}

// infinity is a vector of the largest float32.
func (g *gen) infinity() reg.VecVirtual { return g.int(0x7f800000) }

// storeBytes stores the low bytes of integer lanes.
func (g *gen) storeBytes(v reg.VecVirtual, m Mem) {
	if g.wide() {
		g.VPMOVDB(v, m)
		return
	}
	high, low := g.XMM(), g.XMM()
	g.VEXTRACTI128(Imm(1), v, high)
	g.VPACKUSDW(high, v.AsX(), low)
	g.VPACKUSWB(low, low, low)
	g.VMOVQ(low, m)
}

// loadBytes widens bytes to integer lanes.
func (g *gen) loadBytes(m Mem) reg.VecVirtual {
	r := g.vec()
	g.VPMOVZXBD(m, r)
	return r
}
