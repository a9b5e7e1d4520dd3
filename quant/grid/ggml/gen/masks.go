package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

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

// ones turns a mask into a vector of all ones and zeros.
func (g *gen) ones(m mask) reg.VecVirtual {
	if !g.wide() {
		return m.(reg.VecVirtual)
	}
	r := g.vec()
	g.VPMOVM2D(m, r)
	return r
}

// slot is a vector that lives on the stack: AVX2 has 16 registers and avo does not spill.
type slot struct {
	g *gen
	m Mem
}

// slots reserves n vectors on the stack.
func (g *gen) slots(n int) []slot {
	local := g.local(n * g.bytes)
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

// held is a vector that outlives a loop: a register with AVX-512, a slot with AVX2.
type held struct {
	slot
	v reg.VecVirtual
}

func (g *gen) held(s slot) held { return held{s, g.vec()} }

func (h held) get() reg.VecVirtual {
	if h.g.wide() {
		return h.v
	}
	return h.slot.get()
}

func (h held) put(v reg.Register) {
	if h.g.wide() {
		h.g.set(h.v, v)
		return
	}
	h.slot.put(v)
}

func (h held) choose(m mask, a reg.Register) {
	if h.g.wide() {
		h.g.choose(m, a, h.v)
		return
	}
	h.slot.choose(m, a)
}

// heldMask is a mask that outlives a loop: a mask register with AVX-512, of which there are seven, or a slot.
type heldMask struct {
	g *gen
	k mask // nil: in the slot
	s slot
}

func (g *gen) hold(s slot, m mask) heldMask {
	if g.wide() {
		return heldMask{g: g, k: m, s: s}
	}
	return g.spill(s, m)
}

// spill is hold in a slot.
func (g *gen) spill(s slot, m mask) heldMask {
	h := heldMask{g: g, s: s}
	h.put(m)
	return h
}

func (h heldMask) put(m mask) {
	if h.g.wide() {
		h.g.KMOVW(m, h.s.m)
	} else {
		h.s.put(m)
	}
}

func (h heldMask) get() mask {
	switch {
	case h.k != nil:
		return h.k
	case h.g.wide():
		m := h.g.K()
		h.g.KMOVW(h.s.m, m)
		return m
	}
	return h.s.get()
}

func (h heldMask) include(m mask) {
	v := h.get()
	h.g.include(v, m)
	if h.k == nil {
		h.put(v)
	}
}
