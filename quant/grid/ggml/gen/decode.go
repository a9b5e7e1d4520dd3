package main

import (
	"fmt"
	"sort"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// field says where the bits of weights lie: those of the weight i at lowest bit `shift` of byte at + i mod the lanes, for
// the first weight i of a vector. Weights that follow each other lie in bytes that follow each other.
type field struct {
	bits int
	of   func(i int) (at, shift int)
}

// blockLayout describes a block type whose weights are step·value − minimum, a step for every `per` weights.
type blockLayout struct {
	name             string
	elems, size, per int
	low, high        field // of the code; high may be empty
	fifth            int   // offset of 32 bits, one per weight, above low; 0: none
	inWords          bool  // low: weights follow each other in words of 32 bits, bit field by bit field
	bias             int   // a code stands for the number code − bias
	values           []float32
	head             func(d *decoder)
}

// decoder is the state of a decode kernel.
type decoder struct {
	*gen
	blockLayout
	dst, src      reg.GPVirtual
	steps, minima Mem                    // of sub-blocks, on the stack
	step, minimum reg.VecVirtual         // instead of them: of the whole block
	added         reg.VecVirtual         // a minimum that is added
	loaded        map[int]reg.VecVirtual // bytes at an offset of the block, widened to integers
	lowMask       reg.VecVirtual
	highMask      reg.VecVirtual
	offset        reg.VecVirtual // bias
	table         []reg.VecVirtual
	hasMinima     bool
}

func (l *blockLayout) bits() int {
	n := l.low.bits + l.high.bits
	if l.fifth > 0 {
		n++
	}
	return n
}

// decode decodes blocks, all of whose loads stay inside the block.
func decode(l blockLayout) func(*gen) {
	return func(g *gen) {
		g.begin("decode"+l.name, "func(dst *float32, src *byte, blocks int)", "decodes blocks of "+l.name+".")
		d := &decoder{gen: g, blockLayout: l, loaded: map[int]reg.VecVirtual{}}
		if l.per < l.elems {
			d.steps, d.minima = g.local(64), g.local(64)
		}
		d.dst, d.src = g.param("dst"), g.param("src")
		n := g.param("blocks")
		d.prepare()
		g.Label("block")
		d.head(d)
		for _, i := range d.order() {
			d.run(i)
		}
		g.ADDQ(U32(uint32(l.size)), d.src)
		g.ADDQ(U32(uint32(4*l.elems)), d.dst)
		g.DECQ(n)
		g.JNE(LabelRef("block"))
		g.end()
	}
}

// width is the number of weights in a vector.
func (d *decoder) width() int { return d.gen.bytes / 4 }

// order lists the vectors of a block such that those that share bytes follow each other.
func (d *decoder) order() (first []int) {
	for i := 0; i < d.elems; i += d.width() {
		first = append(first, i)
	}
	if d.low.of != nil {
		at := func(k int) int { at, _ := d.low.of(first[k]); return at }
		sort.SliceStable(first, func(a, b int) bool { return at(a) < at(b) })
	}
	return first
}

// tabled reports whether values come out of a table: with AVX-512 one permutation masks, converts and subtracts the bias.
func (d *decoder) tabled() bool { return d.values != nil || d.wide() && d.bits() <= 5 }

// prepare loads constants.
func (d *decoder) prepare() {
	switch {
	case d.low.bits == 8:
		return
	case d.high.bits > 0:
		d.highMask = d.int(uint32(1<<d.high.bits-1) << d.low.bits)
	case d.fifth > 0:
		d.highMask = d.int(1 << d.low.bits)
	}
	if d.tabled() {
		d.loadTable()
		return
	}
	d.lowMask = d.int(uint32(1<<d.low.bits - 1))
	if d.wide() {
		d.lowMask = d.int(uint32(1<<d.bits() - 1))
	}
	if d.bias != 0 {
		d.offset = d.int(uint32(d.bias))
	}
}

// loadTable holds the values in registers, repeated so that bits above the code change nothing.
func (d *decoder) loadTable() {
	values := make([]float32, max(16, 1<<d.bits()))
	for i := range values {
		c := i & (1<<d.bits() - 1)
		if d.values != nil {
			values[i] = d.values[c]
		} else {
			values[i] = float32(c - d.bias)
		}
	}
	m := d.gen.table("decode"+d.name, values)
	for i := 0; i < len(values); i += d.width() {
		d.table = append(d.table, d.load(m.Offset(4*i)))
	}
}

// run decodes a vector, from weight i on.
func (d *decoder) run(i int) {
	v := d.value(i)
	j := i / d.per * 4
	switch {
	case d.step != nil:
		v = d.mul(d.step, v)
	case d.wide():
		d.VMULPS_BCST(d.steps.Offset(j), v, v)
	default:
		v = d.mul(d.broadcast(d.steps.Offset(j)), v)
	}
	switch {
	case d.added != nil:
		v = d.add(v, d.added)
	case !d.hasMinima:
	case d.wide():
		d.VSUBPS_BCST(d.minima.Offset(j), v, v)
	default:
		v = d.sub(v, d.broadcast(d.minima.Offset(j)))
	}
	d.VMOVUPS(v, Mem{Base: d.dst, Disp: 4 * i})
}

// value returns the numbers that codes i … stand for, in a register of its own.
func (d *decoder) value(i int) reg.VecVirtual {
	if d.low.bits == 8 {
		at, _ := d.low.of(i)
		v := d.vec()
		d.VPMOVSXBD(Mem{Base: d.src, Disp: at}, v)
		return d.toFloat(v)
	}
	c := d.lowBits(i)
	high := d.highBits(i)
	switch {
	case !d.tabled():
		return d.number(c, high)
	case high != nil:
		d.VPTERNLOGD(Imm(0xd8), d.highMask, high, c) // mask ? high : c
	}
	return d.look(c)
}

// number converts masked codes.
func (d *decoder) number(c, high reg.VecVirtual) reg.VecVirtual {
	switch {
	case d.wide() && high != nil:
		d.VPTERNLOGD(Imm(0xd8), d.highMask, high, c)
		c = d.bitAnd(c, d.lowMask)
	case high != nil:
		c = d.bitAnd(c, d.lowMask)
		d.orTo(c, d.bitAnd(high, d.highMask))
	default:
		c = d.bitAnd(c, d.lowMask)
	}
	if d.bias != 0 {
		d.VPSUBD(d.offset, c, c)
	}
	return d.toFloat(c)
}

// look looks codes up; the bits above them may be anything.
func (d *decoder) look(c reg.VecVirtual) reg.VecVirtual {
	r := d.vec()
	switch {
	case d.wide() && len(d.table) == 1:
		d.VPERMPS(d.table[0], c, r)
	case d.wide():
		d.VPERMI2PS(d.table[1], d.table[0], c)
		return c
	default:
		upper, top := d.vec(), d.vec()
		d.VPERMPS(d.table[0], c, r)
		d.VPERMPS(d.table[1], c, upper)
		d.VPSLLD(Imm(28), c, top)
		d.VBLENDVPS(top, upper, r, r)
	}
	return r
}

// lowBits returns the low bits of codes i …, in a fresh register, with other bits above.
func (d *decoder) lowBits(i int) reg.VecVirtual {
	if d.inWords {
		at := i * d.low.bits / 32 * 4
		v := d.vec()
		d.VPBROADCASTD(Mem{Base: d.src, Disp: d.size - d.elems*d.low.bits/8 + at}, v)
		d.VPSRLVD(d.ramp(i*d.low.bits%32, d.low.bits), v, v)
		return v
	}
	at, shift := d.low.of(i)
	return d.shifted(d.widened(at), shift)
}

// highBits returns what lies above, moved to its place; nil when there is nothing.
func (d *decoder) highBits(i int) reg.VecVirtual {
	switch {
	case d.high.bits > 0:
		at, shift := d.high.of(i)
		return d.shifted(d.widened(at), shift-d.low.bits)
	case d.fifth > 0:
		v := d.loaded[-1]
		if v == nil {
			v = d.vec()
			d.VPBROADCASTD(Mem{Base: d.src, Disp: d.fifth}, v)
			d.loaded[-1] = v
		}
		r := d.vec()
		if d.wide() {
			d.VPRORVD(d.ramp(i+32-d.low.bits, 1), v, r)
		} else {
			d.VPSRLVD(d.ramp(i, 1), v, r)
			d.VPSLLD(Imm(uint64(d.low.bits)), r, r)
		}
		return r
	}
	return nil
}

// ramp is the vector first, first + step, …
func (d *decoder) ramp(first, step int) Mem {
	values := make([]uint32, d.width())
	for l := range values {
		values[l] = uint32(first + l*step)
	}
	return d.table32(fmt.Sprintf("ramp%dby%dx%d", first, step, len(values)), values)
}

// widened returns bytes of the block as integers, loaded once.
func (d *decoder) widened(at int) reg.VecVirtual {
	v := d.loaded[at]
	if v == nil {
		v = d.loadBytes(Mem{Base: d.src, Disp: at})
		d.loaded[at] = v
	}
	return v
}

// shifted is v moved right by n bits, or left where n is negative, in a fresh register.
func (d *decoder) shifted(v reg.VecVirtual, n int) reg.VecVirtual {
	r := d.vec()
	switch {
	case n > 0:
		d.VPSRLD(Imm(uint64(n)), v, r)
	case n < 0:
		d.VPSLLD(Imm(uint64(-n)), v, r)
	default:
		d.VMOVAPS(v, r)
	}
	return r
}

// scaleCodes turns unpacked codes into weights.
func scaleCodes(g *gen) {
	g.begin("scaleCodes", "func(dst *float32, codes *uint8, step *float32, runs int)",
		"sets dst to step·code for runs of 16 signed bytes with a step each.")
	dst, codes, step, n := g.param("dst"), g.param("codes"), g.param("step"), g.param("runs")
	g.Label("run")
	s := g.broadcast(Mem{Base: step})
	for i := range 64 / g.bytes {
		v := g.vec()
		g.VPMOVSXBD(Mem{Base: codes, Disp: i * g.bytes / 4}, v)
		g.VMOVUPS(g.mul(s, g.toFloat(v)), Mem{Base: dst, Disp: i * g.bytes})
	}
	g.ADDQ(Imm(64), dst)
	g.ADDQ(Imm(16), codes)
	g.ADDQ(Imm(4), step)
	g.DECQ(n)
	g.JNE(LabelRef("run"))
	g.end()
}
