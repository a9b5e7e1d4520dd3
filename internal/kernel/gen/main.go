// Command gen writes the assembly of package kernel with avo. It is a module of its own, so that avo never enters the
// module graph of the program; run it with go generate in this directory.
package main

//go:generate go run . -out ..

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
)

// files names every pair of files (NAME_amd64.s and its stubs NAME_amd64.go) with the function that fills it.
var files = []struct {
	name string
	fill func(*gen)
}{
	{"asm_cpu", cpu},
	{"asm_tile", tiles},
	{"asm_bf16", tilesBF16},
	{"asm_pack", packs},
	{"asm_skinny", skinnies},
	{"asm_vector", vectors},
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

func write(dir, name string, fill func(*gen)) error {
	g := &gen{Context: build.NewContext(), constants: map[string]Mem{}}
	g.ConstraintExpr("!noasm")
	fill(g)
	file, err := g.Result()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := pass.Concat(pass.Compile, pass.FunctionPass(encode)).Execute(file); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	cfg := printer.Config{Name: "internal/kernel/gen", Pkg: "kernel"}
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
