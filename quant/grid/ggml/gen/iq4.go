package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The 16 values of IQ4_NL and IQ4_XS, and the middles between them: a value on a middle belongs to the upper neighbour.
var (
	iq4Values  = []float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	iq4Middles = []float32{-115.5, -93.5, -74, -57, -42, -28.5, -16, -4.5, 7, 19, 31.5, 45.5, 61, 79, 101}
)

// table places float32 numbers in read-only data.
func (g *gen) table(name string, values []float32) Mem {
	if m, ok := g.constants[name]; ok {
		return m
	}
	m := g.StaticGlobal(name)
	g.DataAttributes(rodata)
	for i, v := range values {
		g.AddDatum(4*i, F32(v))
	}
	g.constants[name] = m
	return m
}

// iq4Lookup finds the nearest of the 16 values.
type iq4Lookup struct {
	g *gen
	// AVX-512: values are sorted into 32 intervals of width 8, none of which holds two middles.
	eighth, low, high          reg.VecVirtual
	middle, below, above, code [2]reg.VecVirtual
	one                        reg.VecVirtual
}

func (g *gen) iq4Lookup(codes bool) *iq4Lookup {
	l := &iq4Lookup{g: g}
	if !g.wide() {
		return l
	}
	l.eighth, l.low, l.high = g.float(0.125), g.float(-128), g.float(127)
	// Interval i holds 8·i … 8·i+8; negative ones follow, as their low five bits say.
	var middle, below, above, code []float32
	for i := range 32 {
		from := float32(8 * i)
		if i >= 16 {
			from -= 256
		}
		c := 0
		for c < 15 && iq4Middles[c] < from {
			c++
		}
		m := float32(1e9)
		if c < 15 && iq4Middles[c] < from+8 {
			m = iq4Middles[c]
		}
		middle, below, code = append(middle, m), append(below, iq4Values[c]), append(code, float32(c))
		above = append(above, iq4Values[min(c+1, 15)])
	}
	pick := func(name string, v []float32) (t [2]reg.VecVirtual) {
		m := g.table(name, v)
		return [2]reg.VecVirtual{g.load(m), g.load(m.Offset(64))}
	}
	l.middle = pick("iq4Middle", middle)
	if codes {
		l.code, l.one = pick("iq4Code", code), g.float(1)
	} else {
		l.below, l.above = pick("iq4Below", below), pick("iq4Above", above)
	}
	return l
}

// pick looks 32 entries up by the low five bits of index.
func (l *iq4Lookup) pick(t [2]reg.VecVirtual, index reg.VecVirtual) reg.VecVirtual {
	r := l.g.copy(index)
	l.g.VPERMI2PS(t[1], t[0], r)
	return r
}

// interval returns v, limited, with the interval it lies in.
func (l *iq4Lookup) interval(v reg.VecVirtual) (limited, index reg.VecVirtual) {
	g := l.g
	limited = g.larger(l.low, g.smaller(l.high, v))
	index = g.vec()
	g.VCVTPS2DQ_RD_SAE(g.mul(limited, l.eighth), index)
	return limited, index
}

// value is the value nearest to v.
func (l *iq4Lookup) value(v reg.VecVirtual) reg.VecVirtual {
	g := l.g
	if !g.wide() {
		top, index := l.tree(v)
		r := g.vec()
		g.VPERMPS(g.table("iq4Values", iq4Values), index, r)
		upper := g.vec()
		g.VPERMPS(g.table("iq4Values", iq4Values).Offset(32), index, upper)
		g.choose(top, upper, r)
		return r
	}
	limited, index := l.interval(v)
	r := l.pick(l.below, index)
	g.choose(g.compare(greaterEqual, limited, l.pick(l.middle, index)), l.pick(l.above, index), r)
	return r
}

// nearest is the code of the value nearest to v, as integer lanes.
func (l *iq4Lookup) nearest(v reg.VecVirtual) reg.VecVirtual {
	g := l.g
	if !g.wide() {
		_, index := l.tree(v)
		return index
	}
	limited, index := l.interval(v)
	r := l.pick(l.code, index)
	g.choose(g.compare(greaterEqual, limited, l.pick(l.middle, index)), g.add(r, l.one), r)
	return g.toInt(r)
}

// tree compares v with four middles, each chosen by the outcomes before.
func (l *iq4Lookup) tree(v reg.VecVirtual) (top mask, index reg.VecVirtual) {
	g := l.g
	every := func(first, step int) (t []float32) {
		for i := first; i < 15; i += step {
			t = append(t, iq4Middles[i])
		}
		return t
	}
	top = g.compare(greaterEqual, v, g.float(iq4Middles[7]))
	m := g.float(iq4Middles[3])
	g.choose(top, g.float(iq4Middles[11]), m)
	index = g.bitAnd(top.(reg.VecVirtual), g.int(2))
	g.VPSUBD(g.compare(greaterEqual, v, m), index, index) // a true lane is -1
	for _, first := range []int{1, 0} {
		t := every(first, 2<<first)
		r := g.vec()
		if len(t) == 4 {
			g.VBROADCASTF128(g.table("iq4Middles4", t), r)
			g.VPERMILPS(index, r, r)
		} else {
			g.VPERMPS(g.table("iq4Middles8", t), index, r)
		}
		g.VPADDD(index, index, index)
		g.VPSUBD(g.compare(greaterEqual, v, r), index, index)
	}
	return top, index
}

// iq4 is searchIQ4 on a plane.
func iq4(g *gen) {
	g.begin("iq4", "func(x, w *float32, n int, scale *float32)", "is searchIQ4 in every lane.")
	keep := g.slots(2)
	g.lanes(func() {
		x, w, n := g.plane("x"), g.plane("w"), g.rows("n")
		peak, none := peaks(g, "peak", x, n, g.float(searchEps))
		empty := g.hold(keep[0], none)
		keep[1].put(peak)
		look := g.iq4Lookup(false)
		sums := func(label string, inv reg.VecVirtual) (a, b reg.VecVirtual) {
			a, b = g.zero(), g.zero()
			g.each(label, 0, n, func(i reg.GPVirtual) {
				v := g.load(at(x, i))
				q := look.value(g.mul(inv, v))
				wq := g.mul(q, at(w, i))
				g.addTo(a, g.mul(wq, v))
				g.addTo(b, g.mul(wq, q))
			})
			return a, b
		}
		minus, one := g.float(iq4Values[0]), g.float(1)
		a, b := sums("first", g.div(one, g.div(g.negate(peak), minus)))
		zero := g.zero()
		scale := g.keep(g.compare(greater, b, zero), g.div(a, b))
		best := g.mul(scale, a)
		numerator := g.float(iq4Values[0] - 7)
		k := g.GP32()
		g.MOVL(U32(15), k)
		g.Label("candidate")
		a, b = sums("sums", g.div(numerator, keep[1].m))
		better := g.both(g.compare(greater, b, g.zero()), g.compare(greater, g.mul(a, a), g.mul(best, b)))
		g.choose(better, g.div(a, b), scale)
		g.choose(better, g.mul(scale, a), best)
		g.addTo(numerator, g.float(1))
		g.DECL(k)
		g.JNE(LabelRef("candidate"))
		g.choose(empty.get(), g.zero(), scale)
		g.VMOVUPS(scale, Mem{Base: g.plane("scale")})
	})
	g.end()
}

// iq4Codes rounds a plane to codes.
func iq4Codes(g *gen) {
	g.begin("iq4Codes", "func(codes *uint8, x *float32, n int, inverse *float32)", "is codesIQ4 in every lane.")
	g.lanes(func() {
		codes, x, n := g.bytePlane("codes"), g.plane("x"), g.rows("n")
		inv := g.load(Mem{Base: g.plane("inverse")})
		look := g.iq4Lookup(true)
		g.each("row", 0, n, func(i reg.GPVirtual) {
			g.storeBytes(look.nearest(g.mul(inv, at(x, i))), Mem{Base: codes})
			g.ADDQ(Imm(16), codes)
		})
	})
	g.end()
}
