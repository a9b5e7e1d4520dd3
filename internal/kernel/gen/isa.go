package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// gen is an avo context with the few helpers that the kernels share.
type gen struct {
	*build.Context
	constants map[string]Mem // read-only data of this file by name
}

// constant returns the read-only data of the given name, which fill appends at the first use.
func (g *gen) constant(name string, fill func()) Mem {
	if m, ok := g.constants[name]; ok {
		return m
	}
	m := g.StaticGlobal(name)
	g.DataAttributes(attr.RODATA | attr.NOPTR)
	fill()
	g.constants[name] = m
	return m
}

// isa is a vector width.
type isa struct {
	name  string
	bytes int // of a vector register
}

var (
	avx2   = isa{"AVX2", 32}
	avx512 = isa{"AVX512", 64}
)

// elem is an element type of a matrix product.
type elem struct {
	name string // as in function names
	typ  string // in Go
	size int
}

var (
	f32 = elem{"F32", "float32", 4}
	f64 = elem{"F64", "float64", 8}
)

func (g *gen) vec(s isa) reg.VecVirtual {
	if s.bytes == 64 {
		return g.ZMM()
	}
	return g.YMM()
}

// zero clears a vector register.
func (g *gen) zero(s isa, v reg.Register) {
	if s.bytes == 64 {
		g.VPXORD(v, v, v)
	} else {
		g.VXORPS(v, v, v)
	}
}

// fma appends dst += a*b.
func (g *gen) fma(e elem, a, b, dst Op) {
	if e.size == 8 {
		g.VFMADD231PD(a, b, dst)
	} else {
		g.VFMADD231PS(a, b, dst)
	}
}

// add appends dst = a+b.
func (g *gen) add(e elem, a, b, dst Op) {
	if e.size == 8 {
		g.VADDPD(a, b, dst)
	} else {
		g.VADDPS(a, b, dst)
	}
}

// broadcast fills a vector with one element of memory.
func (g *gen) broadcast(e elem, m, dst Op) {
	if e.size == 8 {
		g.VBROADCASTSD(m, dst)
	} else {
		g.VBROADCASTSS(m, dst)
	}
}

// param loads an argument into a fresh general register.
func (g *gen) param(name string) reg.GPVirtual {
	r := g.GP64()
	g.Load(g.Param(name), r)
	return r
}

// scaled loads an argument that counts elements and turns it into bytes.
func (g *gen) scaled(name string, e elem) reg.GPVirtual {
	r := g.param(name)
	g.SHLQ(Imm(map[int]uint64{4: 2, 8: 3}[e.size]), r)
	return r
}

// ret ends a function that has used wide vectors.
func (g *gen) ret() {
	g.VZEROUPPER()
	g.RET()
}
