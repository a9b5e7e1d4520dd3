package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// gen is an avo context for one vector width, with arithmetic in terms of lanes. Operands read as in mathematics: sub(a, b)
// is a - b.
type gen struct {
	*build.Context
	bytes     int // of a vector: 64 (AVX-512) or 32 (AVX2)
	constants map[string]Mem
	half      reg.GPVirtual // byte offset of the lanes in work within a row of a plane
	stack     reg.GPVirtual // start of the local memory, aligned; nil: there is none yet
}

// rodata marks constants.
const rodata = attr.RODATA | attr.NOPTR

// rowBytes is the size of a row of a plane: 16 float32.
const rowBytes = 64

// Comparison predicates, quiet, as the C operators: false (notEqual: true) when an operand is NaN.
const (
	equal          = 0x00
	less           = 0x11
	lessEqual      = 0x12
	notEqual       = 0x04
	notGreater     = 0x1a // true for NaN
	greater        = 0x1e
	greaterEqual   = 0x1d
	roundToNearest = 0x08
)

func (g *gen) wide() bool { return g.bytes == 64 }

// begin opens a function: name gets the instruction set as a suffix.
func (g *gen) begin(name, signature, doc string) {
	name += map[bool]string{true: "AVX512", false: "AVX2"}[g.wide()]
	g.stack = nil
	g.Function(name)
	g.SignatureExpr(signature)
	g.Doc(name + " " + doc)
	g.Pragma("noescape")
}

func (g *gen) end() {
	g.VZEROUPPER()
	g.RET()
}

func (g *gen) vec() reg.VecVirtual {
	if g.wide() {
		return g.ZMM()
	}
	return g.YMM()
}

// param loads an argument into a fresh general register.
func (g *gen) param(name string) reg.GPVirtual {
	r := g.GP64()
	g.Load(g.Param(name), r)
	return r
}

// lanes runs body for the lanes of a row: once, or for either half. Pointers that the body takes from plane point to its
// lanes.
func (g *gen) lanes(body func()) {
	if g.wide() {
		body()
		return
	}
	g.half = g.GP64()
	g.XORQ(g.half, g.half)
	g.Label("half")
	body()
	g.ADDQ(Imm(32), g.half)
	g.CMPQ(g.half, Imm(64))
	g.JL(LabelRef("half"))
}

// plane loads a pointer argument to rows of float32 and moves it to the lanes in work.
func (g *gen) plane(name string) reg.GPVirtual {
	p := g.param(name)
	if !g.wide() {
		g.ADDQ(g.half, p)
	}
	return p
}

// bytePlane is plane for rows of 16 bytes.
func (g *gen) bytePlane(name string) reg.GPVirtual {
	p := g.param(name)
	if !g.wide() {
		quarter := g.GP64()
		g.MOVQ(g.half, quarter)
		g.SHRQ(Imm(2), quarter)
		g.ADDQ(quarter, p)
	}
	return p
}

// rows loads a count of rows as bytes of a plane.
func (g *gen) rows(name string) reg.GPVirtual {
	n := g.param(name)
	g.SHLQ(Imm(6), n)
	return n
}

// each runs body with a byte offset that goes from `from` to end in steps of a row.
func (g *gen) each(label string, from int, end reg.Register, body func(i reg.GPVirtual)) {
	i := g.GP64()
	g.MOVQ(U32(uint32(from)), i)
	g.Label(label)
	body(i)
	g.ADDQ(Imm(rowBytes), i)
	g.CMPQ(i, end)
	g.JL(LabelRef(label))
}

// local reserves memory for the function, aligned to cache lines: the stack is not, and every access to a vector of 64 bytes
// would touch two.
func (g *gen) local(size int) Mem {
	if g.stack == nil {
		below := g.AllocLocal(rowBytes)
		g.stack = g.GP64()
		g.LEAQ(below.Offset(rowBytes), g.stack)
		g.ANDQ(I32(-rowBytes), g.stack)
	}
	at := g.AllocLocal((size + rowBytes - 1) / rowBytes * rowBytes)
	return Mem{Base: g.stack, Disp: at.Disp - rowBytes}
}

// at addresses the row at byte offset i of a plane.
func at(p, i reg.Register) Mem { return Mem{Base: p, Index: i, Scale: 1} }
