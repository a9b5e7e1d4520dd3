package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/reg"
)

// cpu writes the two instructions that tell what the machine can do.
func cpu(g *gen) {
	g.Function("cpuid")
	g.Attributes(attr.NOSPLIT)
	g.SignatureExpr("func(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32)")
	g.Doc("cpuid runs CPUID.")
	g.Load(g.Param("leaf"), reg.EAX)
	g.Load(g.Param("subleaf"), reg.ECX)
	g.CPUID()
	g.Store(reg.EAX, g.Return("eax"))
	g.Store(reg.EBX, g.Return("ebx"))
	g.Store(reg.ECX, g.Return("ecx"))
	g.Store(reg.EDX, g.Return("edx"))
	g.RET()

	g.Function("xgetbv")
	g.Attributes(attr.NOSPLIT)
	g.SignatureExpr("func() (eax uint32)")
	g.Doc("xgetbv returns the lower half of XCR0: the register states that the operating system saves.")
	g.XORL(reg.ECX, reg.ECX)
	g.XGETBV()
	g.Store(reg.EAX, g.Return("eax"))
	g.RET()
}
