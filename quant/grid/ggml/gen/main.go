// Command gen writes the assembly of package ggml with avo. It is a module of its own, so that avo never enters the module
// graph of the program; run it with go generate in the parent directory.
//
// Every kernel exists for AVX2 and AVX-512 and works on planes: rows of 16 float32, one lane per block (see tile.go of the
// package). AVX2 makes two passes of eight lanes. Lanes never mix, and every operation is the one that the portable code
// performs, in its order; multiplications and additions are never fused.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
	"github.com/mmcloughlin/avo/reg"
)

// files names every pair of files (NAME_amd64.s and its stubs NAME_amd64.go) with the functions that fill it for one
// instruction set.
var files = []struct {
	name string
	fill []func(*gen)
}{
	{"asm_plane", []func(*gen){transpose, transposeBytes, squares, rowSum, square, weights, rootWeights, requant}},
	{"asm_search", []func(*gen){asym("asym", 1), asym("asymQuad", 4), sym, sym3, pos, iq4, iq4Codes}},
	{"asm_block", []func(*gen){blockQ80, blockSym("Q40", 8, 18), blockSym("Q50", 16, 22), blockMin("Q41", 15, 20), blockMin("Q51", 31, 24),
		blockPeaks, blockE2M1, blockDigits, largest, convertFrom16("F16"), convertFrom16("BF16"), convertTo16("F16"), convertTo16("BF16")}},
	{"asm_iq", []func(*gen){signs, roots, rowMax, rowPeak, squareAdd, better, levels(pairs), levels(triples), wordFit(pairs), wordFit(triples),
		nearest(pairs), nearest(triples)}},
	{"asm_iq1", []func(*gen){sortRows, split32, split16}},
	{"asm_decode", decoders()},
	{"asm_pack", append(packers(), signedScales, maxScales)},
}

func main() {
	flags := flag.NewFlagSet("gen", flag.ExitOnError) // avo claims names of the default set
	out := flags.String("out", "..", "directory that receives the files")
	_ = flags.Parse(os.Args[1:]) // exits on error
	for _, f := range files {
		if err := write(*out, f.name, f.fill); err != nil {
			fmt.Fprintln(os.Stderr, "gen:", err)
			os.Exit(1)
		}
	}
}

func write(dir, name string, fill []func(*gen)) error {
	c := build.NewContext()
	c.ConstraintExpr("!noasm")
	constants := map[string]operand.Mem{}
	for _, bytes := range []int{64, 32} {
		for _, f := range fill {
			f(&gen{Context: c, bytes: bytes, constants: constants})
		}
	}
	file, err := c.Result()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := pass.Compile.Execute(file); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := checkAVX2(file); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	cfg := printer.Config{Name: "quant/grid/ggml/gen", Pkg: "ggml"}
	for suffix, p := range map[string]printer.Printer{"_amd64.s": printer.NewGoAsm(cfg), "_amd64.go": printer.NewStubs(cfg)} {
		text, err := p.Print(file)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+suffix), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// checkAVX2 refuses AVX2 functions that use instructions of AVX-512 or its 16 further registers: avo would hand them out.
func checkAVX2(file *ir.File) error {
	for _, f := range file.Functions() {
		if strings.HasSuffix(f.Name, "AVX512") {
			continue
		}
		for _, i := range f.Instructions() {
			for _, isa := range i.ISA {
				if strings.HasPrefix(isa, "AVX512") {
					return fmt.Errorf("%s uses %s of %s", f.Name, i.Opcode, isa)
				}
			}
			for _, r := range i.Registers() {
				if p, ok := r.(reg.Physical); ok && p.Kind() == reg.KindVector && p.PhysicalIndex() >= 16 {
					return fmt.Errorf("%s uses %s: too many vectors live", f.Name, r.Asm())
				}
			}
		}
	}
	return nil
}
