package main

import (
	"fmt"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant"
	"github.com/llmquant/quantize/quant/grid/ggml"
	"github.com/llmquant/quantize/quant/grid/mixture"
)

// table is one of the code's own tables, ready to print.
type table struct {
	name   string
	header []string
	rows   func() [][]string
}

// tables are what `quantize list` can show.
var tables = []table{
	{"methods", []string{"method", "formats", "defaults", "what it does"}, methodRows},
	{"formats", []string{"format", "what it is"}, formatRows},
	{"grids", []string{"grid", "what it is"}, gridRows},
	{"families", []string{"family", "architectures", "what it is"}, familyRows},
	{"engines", []string{"engine", "version", "format", "bits", "groups", "symmetry", "g_idx", "checked", "note"}, engineRows},
	{"devices", []string{"device", "what it is"}, deviceRows},
}

func listCommand(c *console) *cli.Command {
	var names []string
	for _, t := range tables {
		names = append(names, t.name)
	}
	return &cli.Command{
		Name: "list", Usage: "the tables: " + strings.Join(names, ", "), ArgsUsage: strings.Join(names, "|"),
		Flags: []cli.Flag{jsonFlag(c)},
		Action: func(ctx *cli.Context) error {
			what, err := oneArgument(ctx, "what to list ("+strings.Join(names, ", ")+")")
			if err != nil {
				return err
			}
			for _, t := range tables {
				if t.name == what {
					return c.printTable(t)
				}
			}
			return unknownf("table", what, names)
		},
	}
}

// printTable prints aligned columns, or a JSON list of objects with --json.
func (c *console) printTable(t table) error {
	rows := t.rows()
	if c.json {
		list := make([]map[string]string, len(rows))
		for i, r := range rows {
			list[i] = map[string]string{}
			for j, cell := range r {
				list[i][t.header[j]] = cell
			}
		}
		return c.printJSON(list)
	}
	w := tabwriter.NewWriter(c.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(t.header, "\t"))
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	return w.Flush()
}

func methodRows() (rows [][]string) {
	for _, m := range methods() {
		defaults := "-"
		if m.bits > 0 {
			defaults = quant.SchemeName(packing.Scheme{Grid: "int", Bits: m.bits, GroupSize: m.group, Sym: m.sym})
		}
		if m.samples > 0 {
			defaults += fmt.Sprintf(", %d × %d tokens", m.samples, m.seqLen)
		}
		rows = append(rows, []string{m.name, strings.Join(m.formats, " "), defaults, m.doc})
	}
	return rows
}

func formatRows() (rows [][]string) {
	rows = append(rows, []string{"safetensors", "dense bf16, f16 or f32 tensors, as Hugging Face checkpoints hold them"})
	for _, l := range packing.Layouts() {
		doc := l.Doc
		if l.Pack == nil {
			doc += " (read only)"
		}
		rows = append(rows, []string{l.Name, doc})
	}
	return rows
}

func gridRows() [][]string {
	rows := [][]string{
		{"int2, int3, int4, int8", "integers with a scale, and a zero point unless symmetric, per group of input columns or per row"},
		{"bf16, f16, f32", "dense element types"},
	}
	for _, t := range ggml.Types() {
		if t.CanEncode() && t.Elems > 1 {
			rows = append(rows, []string{t.Name, t.Doc})
		}
	}
	for _, f := range mixture.FileTypes() {
		if _, same := ggml.ByName(f.Name); !same {
			rows = append(rows, []string{f.Name, f.Doc})
		}
	}
	return rows
}

func familyRows() (rows [][]string) {
	for _, f := range arch.Families() {
		rows = append(rows, []string{f.Name, strings.Join(f.Architectures, " "), f.Doc})
	}
	return rows
}

func engineRows() (rows [][]string) {
	for _, e := range quant.EngineRules() {
		layout := e.Layout
		if layout == "" {
			layout = "safetensors"
		}
		rows = append(rows, []string{e.Engine, e.Version, layout, numbers(e.Bits), numbers(e.Groups), e.Sym, loads(e.GIdx), e.Checked, e.Note})
	}
	return rows
}

// loads says whether an engine loads groups in activation order.
func loads(gIdx bool) string {
	if gIdx {
		return "loads"
	}
	return "no"
}

func numbers(ns []int) string {
	if len(ns) == 0 {
		return "any"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ns), " ", ","), "[]")
}

func deviceRows() [][]string {
	return [][]string{{"cpu", fmt.Sprintf("%d cores, %s kernels (%s)", runtime.NumCPU(), kernel.Name(), runtime.GOARCH)}}
}
