package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// sym is searchSym on a plane.
func sym(g *gen) {
	g.begin("sym", "func(codes *uint8, x, w *float32, n int, levels float32, scale *float32)",
		"is searchSym with weights in every lane.")
	g.lanes(func() {
		x, w, n := g.plane("x"), g.plane("w"), g.rows("n")
		zero := g.zero()
		peak, empty := peaks(g, "peak", x, n)
		f := g.XMM()
		g.Load(g.Param("levels"), f)
		levels := g.broadcast(f)
		low := g.sub(zero, levels)
		high := g.sub(levels, g.float(1))
		code := func(inv reg.VecVirtual, v Op) reg.VecVirtual { return g.roundClamp(g.mul(inv, v), low, high) }
		sums := func(label string, inv reg.VecVirtual) (a, b reg.VecVirtual) {
			a, b = g.zero(), g.zero()
			g.each(label, 0, n, func(i reg.GPVirtual) {
				v, wt := g.load(at(x, i)), g.load(at(w, i))
				l := code(inv, v)
				g.addTo(a, g.mul(g.mul(wt, v), l))
				g.addTo(b, g.mul(g.mul(wt, l), l))
			})
			return a, b
		}
		inv := g.div(low, peak)
		a, b := sums("first", inv)
		scale := g.keep(g.compare(notEqual, b, zero), g.div(a, b))
		best, bestInv := g.mul(scale, a), g.copy(inv)

		k := g.float(-9)
		k32 := g.GP32()
		g.MOVL(U32(19), k32)
		g.Label("candidate")
		g.CMPL(k32, Imm(10)) // k = 0 was the first
		g.JE(LabelRef("next"))
		c := g.sub(zero, g.add(levels, g.mul(g.float(0.1), k)))
		inv = g.div(c, peak)
		a, b = sums("sums", inv)
		better := g.both(g.compare(greater, b, zero), g.compare(greater, g.mul(a, a), g.mul(best, b)))
		g.choose(better, g.div(a, b), scale)
		g.choose(better, g.mul(scale, a), best)
		g.choose(better, inv, bestInv)
		g.Label("next")
		g.addTo(k, g.float(1))
		g.DECL(k32)
		g.JNE(LabelRef("candidate"))

		codes := g.bytePlane("codes")
		g.each("codes", 0, n, func(i reg.GPVirtual) {
			l := g.add(code(bestInv, at(x, i)), levels)
			g.choose(empty, zero, l)
			g.storeBytes(g.toInt(l), Mem{Base: codes})
			g.ADDQ(Imm(16), codes)
		})
		g.choose(empty, zero, scale)
		g.VMOVUPS(scale, Mem{Base: g.plane("scale")})
	})
	g.end()
}

// peaks is extreme on a plane: the first element of largest magnitude. Lanes whose magnitudes stay below searchEps are
// empty; their peak becomes 1.
func peaks(g *gen, label string, x, n reg.Register) (peak reg.VecVirtual, empty mask) {
	peak = g.zero()
	amax := g.zero()
	magnitude := g.int(0x7fffffff)
	g.each(label, 0, n, func(i reg.GPVirtual) {
		v := g.load(at(x, i))
		a := g.abs(v, magnitude)
		m := g.compare(greater, a, amax)
		g.choose(m, a, amax)
		g.choose(m, v, peak)
	})
	empty = g.compare(less, amax, g.float(1e-15))
	g.choose(empty, g.float(1), peak)
	return peak, empty
}

// sym3Ways is how many sub-blocks the sym3 kernel takes at once. A sweep is one long chain of dependent operations;
// several chains keep the processor busy.
const sym3Ways = 4

// sym3 is searchSym3 on planes of 16 rows.
func sym3(g *gen) {
	g.begin("sym3", "func(codes *uint8, x, scale *float32)", "is searchSym3 in every lane of four sub-blocks of 16 rows.")
	const rows = 16
	ways := sym3Ways
	if !g.wide() {
		ways = 2 // registers
	}
	local := g.AllocLocal(sym3Ways * rows * rowBytes) // codes as float32
	sums := g.slots(2 * sym3Ways)
	none := g.slots(sym3Ways)
	g.lanes(func() {
		n := g.GP64()
		g.MOVQ(U32(rows*rowBytes), n)
		empty := make([]heldMask, sym3Ways)
		for way := range sym3Ways {
			x := g.plane("x")
			g.ADDQ(U32(uint32(way*rows*rowBytes)), x)
			empty[way] = sym3Start(g, fmt.Sprint(way), x, n, local.Offset(way*rows*rowBytes), sums[2*way:], none[way])
		}
		for first := 0; first < sym3Ways; first += ways {
			sym3Sweeps(g, first, ways, n, local, sums)
		}
		zero, four := g.zero(), g.float(4)
		for way := range sym3Ways {
			codes := g.bytePlane("codes")
			g.ADDQ(U32(uint32(way*rows*16)), codes)
			m := empty[way].get()
			g.each(fmt.Sprint("codes", way), 0, n, func(i reg.GPVirtual) {
				l := g.add(four, local.Offset(way*rows*rowBytes).Idx(i, 1))
				g.choose(m, zero, l)
				g.storeBytes(g.toInt(l), Mem{Base: codes})
				g.ADDQ(Imm(16), codes)
			})
			a, b := sums[2*way].get(), sums[2*way+1].get()
			scale := g.keep(g.without(g.compare(greater, b, zero), m), g.div(a, b))
			g.VMOVUPS(scale, Mem{Base: g.plane("scale"), Disp: way * rowBytes})
		}
	})
	g.end()
}

// sym3Start rounds at the full range and sums up.
func sym3Start(g *gen, label string, x, n reg.Register, local Mem, sums []slot, keep slot) (empty heldMask) {
	peak, none := peaks(g, "peak"+label, x, n)
	empty = g.hold(keep, none)
	low, high := g.float(-4), g.float(3)
	inv := g.div(low, peak)
	a, b := g.zero(), g.zero()
	g.each("first"+label, 0, n, func(i reg.GPVirtual) {
		v := g.load(at(x, i))
		l := g.roundClamp(g.mul(inv, v), low, high)
		g.VMOVUPS(l, local.Idx(i, 1))
		w := g.mul(v, v)
		g.addTo(a, g.mul(g.mul(w, v), l))
		g.addTo(b, g.mul(g.mul(w, l), l))
	})
	sums[0].put(a)
	sums[1].put(b)
	return empty
}

// sym3Sweeps improves the codes of some sub-blocks, one element of each after the other.
func sym3Sweeps(g *gen, first, ways int, n reg.Register, local Mem, sums []slot) {
	label := fmt.Sprint(first)
	x := g.plane("x")
	g.ADDQ(U32(uint32(first*16*rowBytes)), x)
	local = local.Offset(first * 16 * rowBytes)
	sums = sums[2*first:]
	a, b := make([]reg.VecVirtual, ways), make([]reg.VecVirtual, ways)
	for w := range ways {
		a[w], b[w] = sums[2*w].get(), sums[2*w+1].get()
	}
	zero := g.zero()
	round := g.rounder()
	sweeps := g.GP32()
	g.MOVL(U32(5), sweeps)
	g.Label("sweep" + label)
	changed := g.noLanes()
	g.each("improve"+label, 0, n, func(i reg.GPVirtual) {
		for w := range ways {
			row := w * 16 * rowBytes
			v, old := g.load(Mem{Base: x, Index: i, Scale: 1, Disp: row}), g.load(local.Offset(row).Idx(i, 1))
			w2 := g.mul(v, v)
			wx := g.mul(w2, v)
			restA := g.sub(a[w], g.mul(wx, old))
			restB := g.sub(b[w], g.mul(g.mul(w2, old), old))
			q := g.rn(round, g.div(g.mul(v, restB), restA))
			next := g.toFloat(g.intMin(g.intMax(q, g.int(0xfffffffc)), g.int(3)))
			ok := g.both(g.compare(greater, restA, zero), g.compare(notEqual, next, old))
			newA := g.add(restA, g.mul(wx, next))
			newB := g.add(restB, g.mul(g.mul(w2, next), next))
			ok = g.both(ok, g.compare(greater, newB, zero))
			ok = g.both(ok, g.compare(greater, g.mul(g.mul(newA, newA), b[w]), g.mul(g.mul(a[w], a[w]), newB)))
			g.choose(ok, newA, a[w])
			g.choose(ok, newB, b[w])
			g.choose(ok, next, old)
			g.VMOVUPS(old, local.Offset(row).Idx(i, 1))
			g.include(changed, ok)
		}
	})
	g.jumpIfNone(changed, "settled"+label)
	g.DECL(sweeps)
	g.JNE(LabelRef("sweep" + label))
	g.Label("settled" + label)
	for w := range ways {
		sums[2*w].put(a[w])
		sums[2*w+1].put(b[w])
	}
}
