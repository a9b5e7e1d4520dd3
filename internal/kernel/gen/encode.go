package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// dotBF16 is an instruction that neither avo nor Go's assembler knows: to every float32 of the destination it adds the
// products of the two pairs of bfloat16 numbers at the same place in the sources.
const dotBF16 = "VDPBF16PS"

// dot appends dst += a·b for vectors of pairs. The instruction goes through register allocation like any other and is
// turned into bytes by encode.
func (g *gen) dot(a, b, dst reg.VecVirtual) {
	g.Instruction(&ir.Instruction{
		Opcode:   dotBF16,
		Operands: []Op{a, b, dst},
		Inputs:   []Op{a, b, dst},
		Outputs:  []Op{dst},
		ISA:      []string{"AVX512_BF16"},
	})
}

// encode is a pass that runs after Compile and writes instructions which the assembler does not know as data.
func encode(fn *ir.Function) error {
	for _, i := range fn.Instructions() {
		if i.Opcode != dotBF16 {
			continue
		}
		var ids [3]uint32
		for n, op := range i.Operands {
			r, ok := op.(reg.VecPhysical)
			if !ok || r.Size() != 64 {
				return fmt.Errorf("%s: operand %s of %s is not a 512-bit register", fn.Name, op.Asm(), i.Opcode)
			}
			ids[n] = uint32(r.PhysicalIndex())
		}
		prefix, rest := evexDotBF16(ids[0], ids[1], ids[2])
		text := fmt.Sprintf("$0x%08x; WORD $0x%04x // %s %s, %s, %s", prefix, rest, i.Opcode, i.Operands[0].Asm(), i.Operands[1].Asm(), i.Operands[2].Asm())
		i.Opcode, i.Operands = "LONG", []Op{directive(text)}
	}
	return nil
}

// evexDotBF16 encodes VDPBF16PS on registers in Go's order of operands, EVEX.512.F3.0F38.W0 52 /r: the four bytes of the
// prefix, then opcode and ModRM. The prefix holds the upper bits of register numbers inverted.
func evexDotBF16(src2, src1, dst uint32) (prefix uint32, rest uint16) {
	const (
		map0F38  = 2
		repeated = 2 // the F3 prefix
		length   = 2 // 512 bits
		opcode   = 0x52
		direct   = 3 // ModRM names registers alone
	)
	bit := func(v uint32, n int) uint32 { return v >> n & 1 }
	p0 := (1-bit(dst, 3))<<7 | (1-bit(src2, 4))<<6 | (1-bit(src2, 3))<<5 | (1-bit(dst, 4))<<4 | map0F38
	p1 := (^src1&15)<<3 | 1<<2 | repeated
	p2 := uint32(length)<<5 | (1-bit(src1, 4))<<3
	modRM := direct<<6 | (dst&7)<<3 | src2&7
	return 0x62 | p0<<8 | p1<<16 | p2<<24, uint16(opcode | modRM<<8)
}

// directive is the text of operands that avo has no type for.
type directive string

func (d directive) Asm() string { return string(d) }
