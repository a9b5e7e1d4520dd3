package main

import (
	"sort"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// part is some bits of the codes from weight `from` on, moved left by shift.
type part struct {
	from, shift int
	mask        uint32
}

// parts lists what the bytes of a block from each offset on hold, for runs of `width` weights: layouts read backwards.
func (l *blockLayout) parts(width int) map[int][]part {
	all := map[int][]part{}
	for i := 0; i < l.elems; i += width {
		at, shift := l.low.of(i)
		all[at] = append(all[at], part{i, shift, 1<<l.low.bits - 1})
		if l.high.bits > 0 {
			at, shift := l.high.of(i)
			all[at] = append(all[at], part{i, shift - l.low.bits, (1<<l.high.bits - 1) << l.low.bits})
		}
	}
	return all
}

// pack stores codes; one version serves both instruction sets.
func pack(l blockLayout) func(*gen) {
	return func(g *gen) {
		if g.wide() {
			return
		}
		g.begin("pack"+l.name, "func(dst *byte, codes *uint8, blocks int)",
			"stores the codes of blocks of "+l.name+", one byte each, and leaves the scales alone.")
		width, vec := 32, g.YMM
		if _, shift := l.low.of(16); shift != 0 { // nibbles of 16 and 16 weights
			width, vec = 16, g.XMM
		}
		dst, codes, n := g.param("dst"), g.param("codes"), g.param("blocks")
		all := l.parts(width)
		var offsets []int
		masks := map[uint32]reg.VecVirtual{}
		for at, parts := range all {
			offsets = append(offsets, at)
			for _, p := range parts {
				masks[p.mask] = nil
			}
		}
		sort.Ints(offsets)
		for _, m := range []uint32{1, 3, 4, 15, 16, 48} { // in a fixed order: maps have none
			if _, used := masks[m]; used {
				masks[m] = g.int(m * 0x01010101)
			}
		}
		g.Label("block")
		for _, at := range offsets {
			out := vec()
			for k, p := range all[at] {
				v := vec()
				if k == 0 {
					v = out
				}
				g.VMOVDQU(Mem{Base: codes, Disp: p.from}, v)
				g.VPAND(asWide(masks[p.mask], v), v, v)
				switch {
				case p.shift > 0:
					g.VPSLLW(Imm(uint64(p.shift)), v, v)
				case p.shift < 0:
					g.VPSRLW(Imm(uint64(-p.shift)), v, v)
				}
				if k > 0 {
					g.VPOR(v, out, out)
				}
			}
			g.VMOVDQU(out, Mem{Base: dst, Disp: at})
		}
		g.ADDQ(U32(uint32(l.size)), dst)
		g.ADDQ(U32(uint32(l.elems)), codes)
		g.DECQ(n)
		g.JNE(LabelRef("block"))
		g.end()
	}
}

// asWide is a register at the width of another.
func asWide(r reg.VecVirtual, like reg.VecVirtual) Op {
	if like.Size() == 16 {
		return r.AsX()
	}
	return r
}

// packers are for the super-blocks that search kernels encode.
func packers() (all []func(*gen)) {
	for _, l := range layouts {
		switch l.name {
		case "Q2K", "Q3K", "Q4K", "Q5K", "Q6K", "IQ4XS":
			all = append(all, pack(l))
		}
	}
	return all
}
