package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// gen is an avo context for one vector width, with arithmetic in terms of lanes. Operands read as in mathematics: sub(a, b)
// is a - b.
type gen struct {
	*build.Context
	bytes     int // of a vector: 64 (AVX-512) or 32 (AVX2)
	constants map[string]Mem
	half      reg.GPVirtual // byte offset of the lanes in work within a row of a plane
}

// rodata marks constants.
const rodata = attr.RODATA | attr.NOPTR

// rowBytes is the size of a row of a plane: 16 float32.
const rowBytes = 64

// Comparison predicates, quiet, as the C operators: false (notEqual: true) when an operand is NaN.
const (
	equal          = 0x00
	less           = 0x11
	lessEqual      = 0x12
	notEqual       = 0x04
	notGreater     = 0x1a // true for NaN
	greater        = 0x1e
	greaterEqual   = 0x1d
	roundToNearest = 0x08
)

func (g *gen) wide() bool { return g.bytes == 64 }

// begin opens a function: name gets the instruction set as a suffix.
func (g *gen) begin(name, signature, doc string) {
	name += map[bool]string{true: "AVX512", false: "AVX2"}[g.wide()]
	g.Function(name)
	g.SignatureExpr(signature)
	g.Doc(name + " " + doc)
	g.Pragma("noescape")
}

func (g *gen) end() {
	g.VZEROUPPER()
	g.RET()
}

func (g *gen) vec() reg.VecVirtual {
	if g.wide() {
		return g.ZMM()
	}
	return g.YMM()
}

// param loads an argument into a fresh general register.
func (g *gen) param(name string) reg.GPVirtual {
	r := g.GP64()
	g.Load(g.Param(name), r)
	return r
}

// lanes runs body for the lanes of a row: once, or for either half. Pointers that the body takes from plane point to its
// lanes.
func (g *gen) lanes(body func()) {
	if g.wide() {
		body()
		return
	}
	g.half = g.GP64()
	g.XORQ(g.half, g.half)
	g.Label("half")
	body()
	g.ADDQ(Imm(32), g.half)
	g.CMPQ(g.half, Imm(64))
	g.JL(LabelRef("half"))
}

// plane loads a pointer argument to rows of float32 and moves it to the lanes in work.
func (g *gen) plane(name string) reg.GPVirtual {
	p := g.param(name)
	if !g.wide() {
		g.ADDQ(g.half, p)
	}
	return p
}

// bytePlane is plane for rows of 16 bytes.
func (g *gen) bytePlane(name string) reg.GPVirtual {
	p := g.param(name)
	if !g.wide() {
		quarter := g.GP64()
		g.MOVQ(g.half, quarter)
		g.SHRQ(Imm(2), quarter)
		g.ADDQ(quarter, p)
	}
	return p
}

// rows loads a count of rows as bytes of a plane.
func (g *gen) rows(name string) reg.GPVirtual {
	n := g.param(name)
	g.SHLQ(Imm(6), n)
	return n
}

// each runs body with a byte offset that goes from `from` to end in steps of a row.
func (g *gen) each(label string, from int, end reg.Register, body func(i reg.GPVirtual)) {
	i := g.GP64()
	g.MOVQ(U32(uint32(from)), i)
	g.Label(label)
	body(i)
	g.ADDQ(Imm(rowBytes), i)
	g.CMPQ(i, end)
	g.JL(LabelRef(label))
}

// at addresses the row at byte offset i of a plane.
func at(p, i reg.Register) Mem { return Mem{Base: p, Index: i, Scale: 1} }

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

func (g *gen) clear(r reg.Register) {
	if g.wide() {
		g.VPXORD(r, r, r)
	} else {
		g.VXORPS(r, r, r)
	}
}

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

// roundClamp rounds and limits to lo … hi; only for values that the portable rn takes without wrapping.
func (g *gen) roundClamp(a, lo, hi Op) reg.VecVirtual {
	return g.smaller(hi, g.larger(lo, g.round(a)))
}

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

// mask is a set of lanes: a mask register, or a vector of all ones and zeros.
type mask = reg.Register

func (g *gen) newMask() mask {
	if g.wide() {
		return g.K()
	}
	return g.YMM()
}

// compare is a predicate b, lane by lane.
func (g *gen) compare(predicate uint8, a, b Op) mask {
	m := g.newMask()
	g.VCMPPS(Imm(uint64(predicate)), b, a, m)
	return m
}

func (g *gen) intEqual(a, b Op) mask {
	m := g.newMask()
	g.VPCMPEQD(b, a, m)
	return m
}

func (g *gen) intGreater(a, b Op) mask {
	m := g.newMask()
	g.VPCMPGTD(b, a, m)
	return m
}

func (g *gen) noLanes() mask {
	m := g.newMask()
	if g.wide() {
		g.KXORW(m, m, m)
	} else {
		g.VXORPS(m, m, m)
	}
	return m
}

func (g *gen) both(a, b mask) mask {
	m := g.newMask()
	if g.wide() {
		g.KANDW(b, a, m)
	} else {
		g.VPAND(b, a, m)
	}
	return m
}

// without is a and not b.
func (g *gen) without(a, b mask) mask {
	m := g.newMask()
	if g.wide() {
		g.KANDNW(a, b, m)
	} else {
		g.VPANDN(a, b, m)
	}
	return m
}

// include is m |= a.
func (g *gen) include(m, a mask) {
	if g.wide() {
		g.KORW(a, m, m)
	} else {
		g.VPOR(a, m, m)
	}
}

// choose is dst = m ? a : dst.
func (g *gen) choose(m mask, a Op, dst reg.Register) {
	if g.wide() {
		g.VMOVAPS(a, m, dst)
	} else {
		g.VBLENDVPS(m, a, dst, dst)
	}
}

// keep is a where m, else 0.
func (g *gen) keep(m mask, a Op) reg.VecVirtual {
	r := g.vec()
	if g.wide() {
		g.VMOVAPS_Z(a, m, r)
	} else {
		g.VPAND(a, m, r)
	}
	return r
}

// jumpIfNone branches when no lane is set.
func (g *gen) jumpIfNone(m mask, label string) {
	if g.wide() {
		g.KORTESTW(m, m)
	} else {
		g.VPTEST(m, m)
	}
	g.JE(LabelRef(label))
}

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

// slot is a vector that lives on the stack: AVX2 has 16 registers and avo does not spill.
type slot struct {
	g *gen
	m Mem
}

// slots reserves n vectors on the stack.
func (g *gen) slots(n int) []slot {
	local := g.AllocLocal(n * g.bytes)
	all := make([]slot, n)
	for i := range all {
		all[i] = slot{g, local.Offset(i * g.bytes)}
	}
	return all
}

func (s slot) get() reg.VecVirtual { return s.g.load(s.m) }
func (s slot) put(v reg.Register)  { s.g.VMOVUPS(v, s.m) }
func (s slot) choose(m mask, a reg.Register) {
	v := s.get()
	s.g.choose(m, a, v)
	s.put(v)
}

// heldMask is a mask that outlives a loop: a mask register with AVX-512, a slot with AVX2.
type heldMask struct {
	g *gen
	k mask
	s slot
}

func (g *gen) hold(s slot, m mask) heldMask {
	h := heldMask{g: g, s: s}
	if g.wide() {
		h.k = m
	} else {
		s.put(m)
	}
	return h
}

func (h heldMask) get() mask {
	if h.g.wide() {
		return h.k
	}
	return h.s.get()
}

func (h heldMask) include(m mask) {
	if h.g.wide() {
		h.g.include(h.k, m)
		return
	}
	v := h.s.get()
	h.g.include(v, m)
	h.s.put(v)
}

// ones turns a mask into a vector of all ones and zeros.
func (g *gen) ones(m mask) reg.VecVirtual {
	if !g.wide() {
		return m.(reg.VecVirtual)
	}
	r := g.vec()
	g.VPMOVM2D(m, r)
	return r
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
