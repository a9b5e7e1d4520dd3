package main

import (
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// What GNU as 2.40 makes of the same instructions. The numbers are registers in Go's order of operands.
func TestEncoding(t *testing.T) {
	for want, ids := range map[string][3]uint32{
		"62f27e4852c0": {0, 0, 0}, "62f26e4852cc": {4, 2, 1}, "62927e4852c7": {31, 0, 0}, "62f2064052c0": {0, 31, 0},
		"62627e4852f8": {0, 0, 31}, "62427e4052c0": {8, 16, 24}, "6292264852fd": {29, 11, 7}, "6232264052e3": {19, 27, 12},
	} {
		prefix, rest := evexDotBF16(ids[0], ids[1], ids[2])
		code := binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint32(nil, prefix), rest)
		if got := hex.EncodeToString(code); got != want {
			t.Errorf("%v: got %s, want %s", ids, got, want)
		}
	}
}

func TestEncodePass(t *testing.T) {
	fn := ir.NewFunction("f")
	known := &ir.Instruction{Opcode: "VADDPS", Operands: []operand.Op{reg.Z1, reg.Z2, reg.Z3}}
	dot := &ir.Instruction{Opcode: dotBF16, Operands: []operand.Op{reg.Z4, reg.Z2, reg.Z1}}
	fn.AddInstruction(known)
	fn.AddInstruction(dot)
	if err := encode(fn); err != nil {
		t.Fatal(err)
	}
	if known.Opcode != "VADDPS" || dot.Opcode != "LONG" || dot.Operands[0].Asm() != "$0x486ef262; WORD $0xcc52 // VDPBF16PS Z4, Z2, Z1" {
		t.Errorf("got %s, and %s %s", known.Opcode, dot.Opcode, dot.Operands[0].Asm())
	}
	fn.AddInstruction(&ir.Instruction{Opcode: dotBF16, Operands: []operand.Op{reg.Y4, reg.Y2, reg.Y1}})
	if err := encode(fn); err == nil {
		t.Error("no error for registers of 256 bits")
	}
}
