package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// nearest finds codewords. It works block by block on eight neighbours at a time, so one version serves both instruction
// sets.
func nearest(kind levelKind) func(*gen) {
	return func(g *gen) {
		if g.wide() {
			return
		}
		g.begin("nearest"+kind.name,
			"func(words, levels *uint32, x, v, scale *float32, groups int, values *float32, stride int, index *int16, start *int32, "+
				"list *uint16)",
			fmt.Sprintf("replaces packed levels that are no codeword by the neighbour of least Σ v·(scale·value − x)², group by "+
				"group of %d rows of x and v, for all 16 lanes. Lane l has the values of its levels at l·stride.", kind.elems))
		costs := g.local(64 * 32) // of all neighbours: lists hold at most 64·8
		n := &nearestState{g: g, kind: kind, costs: costs}
		n.run()
		g.end()
	}
}

type nearestState struct {
	g     *gen
	kind  levelKind
	costs Mem
}

func (s *nearestState) run() {
	g := s.g
	words, levels := g.param("words"), g.param("levels")
	x, v := g.param("x"), g.param("v")
	end := g.rows("groups")
	g.ADDQ(levels, end)
	lane := g.GP64()
	g.Label("group")
	g.XORQ(lane, lane)
	g.Label("lane")
	word := g.GP32()
	g.MOVL(Mem{Base: levels, Index: lane, Scale: 4}, word)
	rank := g.GP64()
	index := g.param("index")
	g.MOVWQSX(Mem{Base: index, Index: word.As64(), Scale: 2}, rank)
	g.TESTQ(rank, rank)
	g.JGE(LabelRef("found"))
	g.NOTQ(rank)
	start := g.param("start")
	at, stop := g.GP64(), g.GP64()
	g.MOVLQSX(Mem{Base: start, Index: rank, Scale: 4}, at)
	g.MOVLQSX(Mem{Base: start, Index: rank, Scale: 4, Disp: 4}, stop)
	list := g.param("list")
	g.LEAQ(Mem{Base: list, Index: at, Scale: 2}, at)
	g.LEAQ(Mem{Base: list, Index: stop, Scale: 2}, stop)
	tables := s.tables(x, v, lane)
	s.search(tables, at, stop, word)
	g.Label("found")
	g.MOVL(word, Mem{Base: words, Index: lane, Scale: 4})
	g.INCQ(lane)
	g.CMPQ(lane, Imm(16))
	g.JL(LabelRef("lane"))
	g.ADDQ(Imm(rowBytes), words)
	g.ADDQ(Imm(rowBytes), levels)
	g.ADDQ(U32(uint32(s.kind.elems*rowBytes)), x)
	g.ADDQ(U32(uint32(s.kind.elems*rowBytes)), v)
	g.CMPQ(levels, end)
	g.JL(LabelRef("group"))
}

// tables returns the cost of every level of every element: (v·δ)·δ, δ = scale·value − x.
func (s *nearestState) tables(x, v, lane reg.Register) []reg.VecVirtual {
	g := s.g
	scales := g.param("scale")
	values, stride := g.param("values"), g.param("stride")
	g.IMULQ(lane, stride)
	table := g.vec()
	if s.kind.bits == 2 {
		g.VBROADCASTF128(Mem{Base: values, Index: stride, Scale: 4}, table)
	} else {
		g.VMOVUPS(Mem{Base: values, Index: stride, Scale: 4}, table)
	}
	steps := g.mul(g.broadcast(Mem{Base: scales, Index: lane, Scale: 4}), table)
	t := make([]reg.VecVirtual, s.kind.elems)
	for i := range t {
		row := func(p reg.Register) Mem { return Mem{Base: p, Index: lane, Scale: 4, Disp: i * rowBytes} }
		d := g.sub(steps, g.broadcast(row(x)))
		t[i] = g.mul(g.mul(g.broadcast(row(v)), d), d)
	}
	return t
}

// search sets word to the entry of least cost in the list from at to stop, the first of equals.
func (s *nearestState) search(tables []reg.VecVirtual, at, stop reg.GPVirtual, word reg.GPVirtual) {
	g := s.g
	least := g.vec()
	g.VMOVUPS(g.infinity(), least)
	cost := g.GP64()
	g.XORQ(cost, cost)
	list, from := g.GP64(), g.GP64()
	g.MOVQ(at, list)
	g.MOVQ(at, from)
	g.Label("neighbours")
	entry := g.YMM()
	g.VPMOVZXWD(Mem{Base: at}, entry)
	var sum reg.VecVirtual
	for i, t := range tables {
		c := g.look(s.kind, t, entry)
		if i == 0 {
			sum = c
		} else {
			g.addTo(sum, c)
		}
		if i < len(tables)-1 {
			g.VPSRLD(Imm(uint64(s.kind.bits)), entry, entry)
		}
	}
	g.VMOVUPS(sum, s.costs.Idx(cost, 1))
	g.VMINPS(least, sum, least)
	g.ADDQ(Imm(32), cost)
	g.ADDQ(Imm(16), at)
	g.CMPQ(at, stop)
	g.JL(LabelRef("neighbours"))

	// The least over the lanes, then the first entry that has it.
	high := g.XMM()
	low := least.AsX()
	g.VEXTRACTF128(Imm(1), least, high)
	g.VMINPS(high, low, low)
	g.VPERMILPS(Imm(0x4e), low, high)
	g.VMINPS(high, low, low)
	g.VPERMILPS(Imm(0xb1), low, high)
	g.VMINPS(high, low, low)
	all := g.broadcast(low)
	hit := g.GP32()
	g.XORQ(cost, cost)
	g.Label("scan")
	m := g.YMM()
	g.VCMPPS(Imm(equal), s.costs.Idx(cost, 1), all, m)
	g.VMOVMSKPS(m, hit)
	g.ADDQ(Imm(32), cost)
	g.ADDQ(Imm(16), list)
	g.TESTL(hit, hit)
	g.JNE(LabelRef("hit"))
	g.CMPQ(list, stop)
	g.JL(LabelRef("scan"))
	g.LEAQ(Mem{Base: from, Disp: 16}, list) // only NaNs: the first entry, as in the portable code
	g.MOVL(U32(1), hit)
	g.Label("hit")
	g.BSFL(hit, hit)
	g.MOVWLZX(Mem{Base: list, Index: hit.As64(), Scale: 2, Disp: -16}, word)
}
