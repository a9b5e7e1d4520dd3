package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The kernels of the codebook types. Codewords are packed levels: 8 of 2 bits, or 4 of 3 bits.

// levelKind is a way of packing levels.
type levelKind struct {
	name        string
	elems, bits int
	top         float32
}

var (
	pairs   = levelKind{"2", 8, 2, 2}
	triples = levelKind{"3", 4, 3, 7}
)

// signs splits a plane into magnitudes and sign bytes.
func signs(g *gen) {
	g.begin("signs", "func(magnitudes *float32, signs *uint8, x, w *float32, n int, parity bool)",
		"is takeSigns over n rows: signs gets a row of bytes per 8 rows.")
	g.lanes(func() {
		out, bytes := g.plane("magnitudes"), g.bytePlane("signs")
		x, w, n := g.plane("x"), g.plane("w"), g.rows("n")
		zero := g.zero()
		g.each("group", 0, n, func(i reg.GPVirtual) {
			bits, odd := g.zero(), g.zero()
			for k := range 8 {
				m := Mem{Base: x, Index: i, Scale: 1, Disp: k * rowBytes}
				v := g.load(m)
				negative := g.ones(g.compare(less, v, zero))
				g.xorTo(odd, negative)
				g.orTo(bits, g.bitAnd(negative, g.int(1<<k)))
				g.VMOVUPS(g.abs(v, g.int(0x7fffffff)), Mem{Base: out, Index: i, Scale: 1, Disp: k * rowBytes})
			}
			parity := g.GP8()
			g.Load(g.Param("parity"), parity)
			g.TESTB(parity, parity)
			g.JE(LabelRef("store"))
			least, cost := g.int(1), g.vec()
			for k := range 8 {
				v := g.load(Mem{Base: x, Index: i, Scale: 1, Disp: k * rowBytes})
				c := g.mul(g.mul(v, Mem{Base: w, Index: i, Scale: 1, Disp: k * rowBytes}), v)
				if k == 0 {
					g.set(cost, c)
					continue
				}
				m := g.compare(less, c, cost)
				g.choose(m, c, cost)
				g.choose(m, g.int(1<<k), least)
			}
			least = g.bitAnd(least, odd) // the bit to flip, 0 in lanes of even parity
			g.xorTo(bits, least)
			for k := range 8 {
				flip := g.ones(g.intEqual(least, g.int(1<<k)))
				m := Mem{Base: out, Index: i, Scale: 1, Disp: k * rowBytes}
				v := g.load(m)
				g.xorTo(v, g.bitAnd(flip, g.int(0x80000000)))
				g.VMOVUPS(v, m)
			}
			g.Label("store")
			g.storeBytes(bits, Mem{Base: bytes})
			g.ADDQ(Imm(16), bytes)
			g.ADDQ(U32(7*rowBytes), i) // each adds the eighth
		})
	})
	g.end()
}

// roots prepares what the searches need of the weights.
func roots(g *gen) {
	g.begin("roots", "func(v, wx, w, x *float32, n int)", "sets v to sqrt(w) and wx to w·x over n rows.")
	g.lanes(func() {
		v, wx, w, x, n := g.plane("v"), g.plane("wx"), g.plane("w"), g.plane("x"), g.rows("n")
		g.each("row", 0, n, func(i reg.GPVirtual) {
			wt := g.load(at(w, i))
			g.VMOVUPS(g.sqrt(wt), at(v, i))
			g.VMOVUPS(g.mul(wt, at(x, i)), at(wx, i))
		})
	})
	g.end()
}

// rowMax takes the maximum of a plane's rows.
func rowMax(g *gen) {
	g.begin("rowMax", "func(peak, x *float32, n int)", "sets peak to the largest of n rows.")
	g.lanes(func() {
		x, n := g.plane("x"), g.rows("n")
		peak := g.load(Mem{Base: x})
		g.each("row", 0, n, func(i reg.GPVirtual) { g.VMAXPS(peak, g.load(at(x, i)), peak) })
		g.VMOVUPS(peak, Mem{Base: g.plane("peak")})
	})
	g.end()
}

// rowPeak takes the largest magnitude of a plane's rows.
func rowPeak(g *gen) {
	g.begin("rowPeak", "func(peak, x *float32, n int)", "sets peak to the largest magnitude in n rows.")
	g.lanes(func() {
		x, n := g.plane("x"), g.rows("n")
		peak, magnitude := g.zero(), g.int(0x7fffffff)
		g.each("row", 0, n, func(i reg.GPVirtual) { g.VMAXPS(peak, g.abs(g.load(at(x, i)), magnitude), peak) })
		g.VMOVUPS(peak, Mem{Base: g.plane("peak")})
	})
	g.end()
}

// squareAdd is the weight of the types that do without importance.
func squareAdd(g *gen) {
	g.begin("squareAdd", "func(dst, x, add *float32, n int)", "sets dst to add + x² over n rows.")
	g.lanes(func() {
		dst, x, n := g.plane("dst"), g.plane("x"), g.rows("n")
		add := g.load(Mem{Base: g.plane("add")})
		g.each("row", 0, n, func(i reg.GPVirtual) {
			v := g.load(at(x, i))
			g.VMOVUPS(g.add(add, g.mul(v, v)), at(dst, i))
		})
	})
	g.end()
}

// levels packs the levels of a sub-block at a candidate scale.
func levels(kind levelKind) func(*gen) {
	return func(g *gen) {
		g.begin("levels"+kind.name, "func(words *uint32, scale, x, peak *float32, n int, numerator float32)",
			fmt.Sprintf("rounds n rows at inverse scale numerator/peak to levels and packs %d rows to a row of words; "+
				"scale gets the scale.", kind.elems))
		g.lanes(func() {
			words, x, n := g.plane("words"), g.plane("x"), g.rows("n")
			f := g.XMM()
			g.Load(g.Param("numerator"), f)
			id := g.div(g.broadcast(f), g.load(Mem{Base: g.plane("peak")}))
			one := g.float(1)
			g.VMOVUPS(g.div(one, id), Mem{Base: g.plane("scale")})
			half, top, zero := g.float(0.5), g.float(kind.top), g.zero()
			g.each("group", 0, n, func(i reg.GPVirtual) {
				word := g.zero()
				for k := range kind.elems {
					v := g.mul(id, Mem{Base: x, Index: i, Scale: 1, Disp: k * rowBytes})
					l := g.toInt(g.roundCode(g.mul(half, g.sub(v, one)), zero, top))
					g.VPSLLD(Imm(uint64(kind.bits*k)), l, l)
					g.orTo(word, l)
				}
				g.VMOVUPS(word, Mem{Base: words})
				g.ADDQ(Imm(rowBytes), words)
				g.ADDQ(U32(uint32((kind.elems-1)*rowBytes)), i)
			})
		})
		g.end()
	}
}

// oddTable holds q = 2·level + 1 for the levels of a kind, repeated to fill 64 bytes.
func (g *gen) oddTable(kind levelKind) Mem {
	name := "odd" + kind.name
	m, ok := g.constants[name]
	if !ok {
		m = g.StaticGlobal(name)
		g.DataAttributes(rodata)
		for i := range 16 {
			g.AddDatum(4*i, F32(float32(2*(i%(1<<kind.bits))+1)))
		}
		g.constants[name] = m
	}
	return m
}

// look picks table entries by the low bits of index: a table of 4 repeats every 128 bits, one of 8 every 256.
func (g *gen) look(kind levelKind, table, index Op) reg.VecVirtual {
	r := g.vec()
	if kind.bits == 2 {
		g.VPERMILPS(index, table, r)
	} else {
		g.VPERMPS(table, index, r)
	}
	return r
}

// wordFit adds up what the refit of a scale needs.
func wordFit(kind levelKind) func(*gen) {
	return func(g *gen) {
		g.begin("wordFit"+kind.name, "func(a, b, w, wx *float32, words *uint32, n int)",
			"sets a to Σ w·x·q and b to Σ w·q² over the n rows that the words stand for, q = 2·level + 1.")
		g.lanes(func() {
			w, wx, words, n := g.plane("w"), g.plane("wx"), g.plane("words"), g.rows("n")
			table := g.load(g.oddTable(kind))
			a, b := g.zero(), g.zero()
			g.each("group", 0, n, func(i reg.GPVirtual) {
				word := g.load(Mem{Base: words})
				g.ADDQ(Imm(rowBytes), words)
				for k := range kind.elems {
					q := g.look(kind, table, word)
					g.addTo(a, g.mul(q, Mem{Base: wx, Index: i, Scale: 1, Disp: k * rowBytes}))
					g.addTo(b, g.mul(g.mul(q, Mem{Base: w, Index: i, Scale: 1, Disp: k * rowBytes}), q))
					if k < kind.elems-1 {
						g.VPSRLD(Imm(uint64(kind.bits)), word, word)
					}
				}
				g.ADDQ(U32(uint32((kind.elems-1)*rowBytes)), i)
			})
			g.VMOVUPS(a, Mem{Base: g.plane("a")})
			g.VMOVUPS(b, Mem{Base: g.plane("b")})
		})
		g.end()
	}
}

// better keeps the better of two candidates per lane.
func better(g *gen) {
	g.begin("better", "func(scale, best *float32, bestWords, bestLevels *uint32, a, b *float32, words, levels *uint32, groups int)",
		"replaces scale, best and the words of lanes where b > 0 and a² > best·b.")
	g.lanes(func() {
		zero := g.zero()
		a, b := g.load(Mem{Base: g.plane("a")}), g.load(Mem{Base: g.plane("b")})
		bestAt, scaleAt := g.plane("best"), g.plane("scale")
		best, scale := g.load(Mem{Base: bestAt}), g.load(Mem{Base: scaleAt})
		m := g.both(g.compare(greater, b, zero), g.compare(greater, g.mul(a, a), g.mul(best, b)))
		g.jumpIfNone(m, "none")
		g.choose(m, g.div(a, b), scale)
		g.choose(m, g.mul(scale, a), best)
		g.VMOVUPS(best, Mem{Base: bestAt})
		g.VMOVUPS(scale, Mem{Base: scaleAt})
		n := g.rows("groups")
		for _, name := range [][2]string{{"bestWords", "words"}, {"bestLevels", "levels"}} {
			dst, src := g.plane(name[0]), g.plane(name[1])
			g.each(name[1], 0, n, func(i reg.GPVirtual) {
				v := g.load(at(dst, i))
				g.choose(m, at(src, i), v)
				g.VMOVUPS(v, at(dst, i))
			})
		}
		g.Label("none")
	})
	g.end()
}
