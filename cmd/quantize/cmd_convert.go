package main

import (
	"bytes"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/gguf"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/quant"
	"github.com/llmquant/quantize/quant/grid/mixture"
)

func convertCommand(c *console) *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "directory or .gguf file to create"},
		&cli.StringFlag{Name: "format", Usage: "safetensors, gguf, or a layout of `quantize list formats`"},
		&cli.StringFlag{Name: "dtype", Usage: "bf16, f16 or f32 for dense tensors (default: as they are)"},
		&cli.StringFlag{Name: "type", Usage: "ggml type or mixture for --format gguf (default: the source's own floats)"},
		&cli.BoolFlag{Name: "pure", Usage: "the base type for every matrix, no mixture"},
		&cli.BoolFlag{Name: "allow-requantize", Usage: "round tensors that are quantized already a second time"},
		&cli.StringSliceFlag{Name: "tensor", Usage: "'PATTERN=TYPE' for --format gguf; repeatable"},
		&cli.StringSliceFlag{Name: "keep", Usage: "leave matching tensors in F16, for --format gguf; repeatable"},
		&cli.StringFlag{Name: "imatrix", Usage: "importance matrix for --type"},
		&cli.StringFlag{Name: "max-shard-size", Value: "5GB", Usage: "largest weight file"},
		&cli.BoolFlag{Name: "strict", Usage: "fallbacks are errors"},
		&cli.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "replace an existing output"},
		&cli.StringFlag{Name: "nan", Value: "error", Usage: "error or zero: what to do with non-finite weights"},
		&cli.BoolFlag{Name: "dry-run", Usage: "print the plan and write nothing"},
	}
	flags = append(append(flags, resourceFlags()...), outputFlags(c)...)
	return &cli.Command{
		Name: "convert", Usage: "change layout or container, exactly wherever the numbers allow it", ArgsUsage: "SRC",
		Flags: flags, Action: func(ctx *cli.Context) error { return c.convert(ctx) },
	}
}

// dtypes are the dense element types of --dtype.
var dtypes = map[string]tensor.DType{"": tensor.Invalid, "bf16": tensor.BF16, "f16": tensor.F16, "f32": tensor.F32}

func (c *console) convert(ctx *cli.Context) error {
	path, err := oneArgument(ctx, "SRC")
	if err != nil {
		return err
	}
	d, ok := dtypes[ctx.String("dtype")]
	if !ok {
		return usagef("--dtype %q is not possible; bf16, f16 or f32", ctx.String("dtype"))
	}
	o, err := c.jobOptions(ctx)
	if err != nil {
		return err
	}
	format := ctx.String("format")
	if format == "" && strings.HasSuffix(o.Out, ".gguf") {
		format = "gguf"
	}
	if format == "gguf" {
		return c.convertToGGUF(ctx, path, d, o)
	}
	if ctx.IsSet("type") {
		return usagef("--type is for --format gguf")
	}
	layout := format
	switch known := append([]string{"safetensors", "gguf"}, layoutNames()...); {
	case format == "":
		return &usageError{text: "--format is missing", hint: "known: " + strings.Join(known, ", ")}
	case format == "safetensors":
		layout = ""
	case !slices.Contains(known, format):
		return unknownf("format", format, known)
	}
	src, err := formats.Open(ctx.Context, path)
	if err != nil {
		return err
	}
	defer src.Close()
	dense, err := denseForConvert(src)
	if err != nil {
		return err
	}
	recipe := quant.NewConvert(dense, layout, d)
	if ctx.Bool("dry-run") {
		plan, err := quant.MakePlan(ctx.Context, dense, recipe, o)
		if err != nil {
			return err
		}
		return c.printPlan(plan, &recipe)
	}
	c.resumable = true
	rep, err := quant.Run(ctx.Context, dense, recipe, o)
	if err != nil {
		return err
	}
	c.endProgress()
	return c.printReport(rep, o.Out)
}

// layoutNames lists the layouts that can be written.
func layoutNames() (names []string) {
	for _, l := range packing.Layouts() {
		if l.Pack != nil {
			names = append(names, l.Name)
		}
	}
	return names
}

// convertToGGUF writes a GGUF: of the source's own floats, of --dtype, or of any --type.
func (c *console) convertToGGUF(ctx *cli.Context, path string, d tensor.DType, o quant.Options) error {
	if !strings.HasSuffix(o.Out, ".gguf") && !ctx.Bool("dry-run") {
		return usagef("--out %q: the name of a GGUF file ends in .gguf", o.Out)
	}
	if d != tensor.Invalid && ctx.IsSet("type") {
		return usagef("--dtype and --type exclude each other")
	}
	if !ctx.IsSet("max-shard-size") {
		o.MaxShard = 0
	}
	src, err := formats.Open(ctx.Context, path)
	if err != nil {
		return err
	}
	defer src.Close()
	r := quant.GGUFRecipe{AllowRequantize: ctx.Bool("allow-requantize")}
	_, isGGUF := formats.GGUF(src)
	switch {
	case ctx.IsSet("type"):
		if r, err = ggufRecipe(ctx); err != nil {
			return err
		}
	case d != tensor.Invalid || !isGGUF:
		t, _ := gguf.TypeOf(d)
		if d == tensor.Invalid {
			t = gguf.AutoType(src)
		}
		r.Mixture.File, _ = mixture.ParseFileType(t.String())
		r.Plain = !isGGUF
	default:
		r.Mixture.Copy = true
	}
	if file := ctx.String("imatrix"); file != "" {
		if r.Imatrix, err = gguf.OpenImatrix(file); err != nil {
			return err
		}
		r.ImatrixPath = file
	}
	if src.Meta().Quant != nil && !isGGUF { // codes of another layout: their values are what a GGUF can hold
		if src, err = formats.Dense(src); err != nil {
			return err
		}
	}
	if ctx.Bool("dry-run") {
		p, err := quant.PlanGGUF(ctx.Context, src, r, o)
		if err != nil {
			return err
		}
		return c.printGGUFPlan(p)
	}
	c.resumable = true
	rep, err := quant.RunGGUF(ctx.Context, src, r, o)
	if err != nil {
		return err
	}
	c.endProgress()
	return c.printReport(rep, o.Out)
}

// denseForConvert opens the dense view of a source. A GGUF file becomes a complete checkpoint: config, tokenizer and
// the original element types are reconstructed.
func denseForConvert(src formats.Checkpoint) (formats.Checkpoint, error) {
	f, ok := formats.GGUF(src)
	if !ok {
		return formats.Dense(src)
	}
	m, err := f.ToHF()
	if err != nil {
		return nil, err
	}
	h := &restored{Source: m.Tensors, stored: src, meta: *src.Meta()}
	h.meta.Quant, h.meta.Config, h.meta.Side = nil, m.Config, nil
	names := make([]string, 0, len(m.Files))
	for name := range m.Files {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		text := m.Files[name]
		h.meta.Side = append(h.meta.Side, formats.SideFile{Name: name, Size: int64(len(text)),
			Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }})
	}
	return h, nil
}

// restored is a GGUF file as the checkpoint it was made from.
type restored struct {
	tensor.Source
	stored formats.Checkpoint
	meta   formats.Meta
}

// Meta describes the checkpoint.
func (r *restored) Meta() *formats.Meta { return &r.meta }

// Close closes the file.
func (r *restored) Close() error { return r.stored.Close() }
