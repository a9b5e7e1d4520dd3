package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/gguf"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/quant"
)

// inspection is what `quantize inspect --json` prints.
type inspection struct {
	Schema       string          `json:"schema"` // "quantize-inspect/1"
	Path         string          `json:"path"`
	Kind         string          `json:"kind"`
	Architecture string          `json:"architecture"`
	Quantization string          `json:"quantization"`
	Metadata     map[string]any  `json:"metadata"`
	Tensors      []inspectTensor `json:"tensors"`
	Totals       inspectTotals   `json:"totals"`
}

type inspectTensor struct {
	Name          string  `json:"name"`
	Role          string  `json:"role"`
	DType         string  `json:"dtype,omitempty"`
	Grid          string  `json:"grid,omitempty"`
	Shape         []int64 `json:"shape"`
	Bytes         int64   `json:"bytes"`
	BitsPerWeight float64 `json:"bits_per_weight"`
	File          string  `json:"file"`
	Offset        int64   `json:"offset"`
}

type inspectTotals struct {
	Tensors       int     `json:"tensors"`
	Weights       int64   `json:"weights"`
	TensorBytes   int64   `json:"tensor_bytes"`
	FileBytes     int64   `json:"file_bytes"`
	BitsPerWeight float64 `json:"bits_per_weight"`
}

func inspectCommand(c *console) *cli.Command {
	return &cli.Command{
		Name: "inspect", Usage: "tensors, grids, real bytes, bits per weight, metadata", ArgsUsage: "PATH",
		Flags:  []cli.Flag{jsonFlag(c)},
		Action: func(ctx *cli.Context) error { return c.inspect(ctx) },
	}
}

func (c *console) inspect(ctx *cli.Context) error {
	path, err := oneArgument(ctx, "PATH")
	if err != nil {
		return err
	}
	src, err := formats.Open(ctx.Context, path)
	if err != nil {
		return err
	}
	defer src.Close()
	in, err := inspectCheckpoint(ctx.Context, src)
	if err != nil {
		return err
	}
	in.Path = path
	if c.json {
		return c.printJSON(in)
	}
	return c.printInspection(in)
}

func inspectCheckpoint(ctx context.Context, src formats.Checkpoint) (*inspection, error) {
	meta := src.Meta()
	in := &inspection{Schema: "quantize-inspect/1", Kind: meta.Kind, Metadata: map[string]any{}, Tensors: []inspectTensor{}}
	for _, f := range meta.Files {
		in.Totals.FileBytes += f.Size
	}
	if meta.Quant != nil {
		in.Quantization = meta.Quant.Method
	}
	if f, ok := formats.GGUF(src); ok {
		in.fromGGUF(src, f)
	} else if err := in.fromHF(src); err != nil {
		return nil, err
	}
	for _, t := range in.Tensors {
		n, _ := tensor.Elements(t.Shape)
		in.Totals.Tensors++
		in.Totals.Weights += n
		in.Totals.TensorBytes += t.Bytes
	}
	in.Totals.BitsPerWeight = 8 * float64(in.Totals.TensorBytes) / float64(max(in.Totals.Weights, 1))
	return in, ctx.Err()
}

// fromGGUF lists the tensors of a GGUF file as stored, and its metadata.
func (in *inspection) fromGGUF(src formats.Checkpoint, f *gguf.File) {
	in.Architecture, _ = f.Architecture()
	const longest = 64 // elements of an array worth showing
	for key, v := range f.KV.All() {
		in.Metadata[key] = v.Format(longest)
	}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		file, offset, _, _ := src.Meta().Place(t.Name)
		row := inspectTensor{Name: t.Name, Role: string(quant.GGUFRole(t.Name)), Shape: t.Shape(), Bytes: t.Bytes, File: file, Offset: offset,
			BitsPerWeight: 8 * float64(t.Bytes) / float64(max(t.Elements(), 1))}
		if t.Type.DType() == tensor.Invalid {
			row.Grid = t.Type.String()
		} else {
			row.DType = t.Type.String()
		}
		in.Tensors = append(in.Tensors, row)
	}
}

// fromHF lists the tensors of a directory; the pieces of a quantized linear count as one. A layout or architecture that
// is not known is still shown, tensor by tensor as stored.
func (in *inspection) fromHF(src formats.Checkpoint) error {
	meta := src.Meta()
	if config, err := safeio.ParseJSON(meta.Config); err == nil {
		if names, err := config.Get("architectures").Strings(); err == nil {
			in.Architecture = strings.Join(names, ", ")
		}
		for key, v := range config.Members() {
			in.Metadata[key] = v
		}
	}
	view, err := formats.Dense(src)
	if err != nil {
		view = src
	}
	roles := map[string]string{}
	if m, err := arch.Resolve(view.Meta().Config, view); err == nil {
		for _, d := range quant.Describe(m, view) {
			roles[d.Info.Name] = string(d.Role)
		}
	}
	for _, info := range view.Tensors() {
		in.Tensors = append(in.Tensors, hfRow(src, view, info, roles[info.Name]))
	}
	return nil
}

func hfRow(src, view formats.Checkpoint, info tensor.Info, role string) inspectTensor {
	if role == "" {
		role = string(arch.RoleUnknown)
	}
	row := inspectTensor{Name: info.Name, Role: role, Shape: info.Shape, DType: strings.ToLower(info.DType.String())}
	pieces := []tensor.Info{info}
	module := strings.TrimSuffix(info.Name, ".weight")
	if found, ok := formats.Stored(view, module); ok && module != info.Name {
		row.DType, row.Grid = "", quant.SchemeName(found.Scheme)
		pieces = formats.StoredTensors(view, module)
	}
	for i, p := range pieces {
		n, _ := p.Bytes()
		row.Bytes += n
		if i == 0 {
			row.File, row.Offset, _, _ = src.Meta().Place(p.Name)
		}
	}
	n, _ := info.Elements()
	row.BitsPerWeight = 8 * float64(row.Bytes) / float64(max(n, 1))
	return row
}

func (c *console) printInspection(in *inspection) error {
	w := tabwriter.NewWriter(c.out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "tensor\trole\tshape\tgrid\tbytes\tbits/weight\tfile\toffset\t")
	for _, t := range in.Tensors {
		grid := t.Grid
		if grid == "" {
			grid = t.DType
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%.3f\t%s\t%d\t\n", t.Name, t.Role, shape(t.Shape), grid, t.Bytes, t.BitsPerWeight, t.File, t.Offset)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	how := "not quantized"
	if in.Quantization != "" {
		how = "quantized: " + in.Quantization
	}
	_, err := fmt.Fprintf(c.out, "\n%s (%s, %s), %s\n%d tensors, %d weights, %s of tensors in %s of files, %.3f bits per weight\n", in.Path, in.Kind,
		in.Architecture, how, in.Totals.Tensors, in.Totals.Weights, humanBytes(in.Totals.TensorBytes), humanBytes(in.Totals.FileBytes), in.Totals.BitsPerWeight)
	return err
}
