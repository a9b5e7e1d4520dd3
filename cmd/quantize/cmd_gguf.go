package main

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/gguf"
	"github.com/llmquant/quantize/quant"
	"github.com/llmquant/quantize/quant/gptq"
	"github.com/llmquant/quantize/quant/grid/mixture"
)

// kquantName is the method that rounds to ggml blocks; gptqName can do so as well.
const kquantName, gptqName = "kquant", "gptq"

// ggufFlags are the flags of the main job that only GGUF output has.
func ggufFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "type", Value: "Q4_K_M", Usage: "ggml type or mixture for GGUF output, e.g. Q4_K_M, IQ4_XS, Q8_0"},
		&cli.StringFlag{Name: "imatrix", Usage: "importance matrix, GGUF or legacy .dat"},
		&cli.BoolFlag{Name: "pure", Usage: "the base type for every matrix, no mixture"},
		&cli.BoolFlag{Name: "allow-requantize", Usage: "round tensors that are quantized already a second time"},
	}
}

// kquant is the main job for GGUF output.
func (c *console) kquant(ctx *cli.Context, path string, o quant.Options) error {
	r, err := ggufRecipe(ctx)
	if err != nil {
		return err
	}
	if !ctx.IsSet("max-shard-size") {
		o.MaxShard = 0 // a GGUF is one file unless asked otherwise
	}
	if o.Out != "" && !strings.HasSuffix(o.Out, ".gguf") {
		return usagef("--out %q: the name of a GGUF file ends in .gguf", o.Out)
	}
	src, err := formats.Open(ctx.Context, path)
	if err != nil {
		return err
	}
	defer src.Close()
	if len(r.Transforms) > 0 || r.Rounder != nil {
		err = c.blockCalibration(ctx, src, path, &o)
	} else {
		err = c.importance(ctx, src, path, &r, o)
	}
	if err != nil {
		return err
	}
	if ctx.Bool("dry-run") {
		if o.Out == "" {
			o.Out = "model.gguf"
		}
		p, err := quant.PlanGGUF(ctx.Context, src, r, o)
		if err != nil {
			return err
		}
		return c.printGGUFPlan(p)
	}
	c.resumable = true
	if p, err := quant.PlanGGUF(ctx.Context, src, r, o); err != nil {
		return err
	} else {
		boundMemory(p.Memory)
	}
	rep, err := quant.RunGGUF(ctx.Context, src, r, o)
	if err != nil {
		return err
	}
	c.endProgress()
	return c.printReport(rep, o.Out)
}

// ggufRecipe reads the type and the overrides.
func ggufRecipe(ctx *cli.Context) (quant.GGUFRecipe, error) {
	r := quant.GGUFRecipe{AllowRequantize: ctx.Bool("allow-requantize")}
	file, ok := mixture.ParseFileType(ctx.String("type"))
	if !ok {
		var known []string
		for _, f := range mixture.FileTypes() {
			known = append(known, f.Name)
		}
		return r, unknownf("type", ctx.String("type"), known)
	}
	r.Mixture = mixture.Options{File: file, Pure: ctx.Bool("pure")}
	for _, f := range []string{"bits", "group-size", "sym", "asym"} {
		if ctx.IsSet(f) {
			return r, usagef("--%s means nothing to GGUF types; give --type", f)
		}
	}
	var err error
	if r.Mixture.Overrides, err = ggufRules(ctx); err != nil {
		return r, err
	}
	if ctx.String("method") == gptqName {
		rounder, err := gptqRounder(ctx)
		if err != nil {
			return r, err
		}
		if rounder.Options.Order == gptq.Indexed {
			return r, usagef("--act-order g_idx needs --format gptq or gptq_v2: GGUF has no place for it")
		}
		r.Rounder = rounder
	}
	if r.Transforms, err = transformFlags(ctx); err != nil {
		return r, err
	}
	if r.BF16, err = calibDType(ctx); err == nil && r.BF16 && r.Rounder == nil && len(r.Transforms) == 0 {
		err = usagef("--calib-dtype means nothing to --method %s without --transform", kquantName)
	}
	return r, err
}

// blockCalibration loads the windows that transforms and error feedback need.
func (c *console) blockCalibration(ctx *cli.Context, src formats.Checkpoint, path string, o *quant.Options) error {
	if ctx.String("imatrix") != "" {
		return usagef("--imatrix is not used with --transform or --method gptq: they gather their own statistics; give --calib")
	}
	if src.Meta().Kind != "hf" {
		return usagef("--transform and --method gptq start from a Hugging Face directory; `quantize convert` makes one from a GGUF file")
	}
	model, err := arch.Resolve(src.Meta().Config, src)
	if err != nil {
		return err
	}
	m, err := methodByName(gptqName)
	if err != nil {
		return err
	}
	o.Calib, err = loadCalibration(ctx.Context, calibFrom(ctx, m), path, model)
	return err
}

// ggufRules turns --tensor and --keep into overrides. Patterns match GGUF names, as the plan shows them.
func ggufRules(ctx *cli.Context) ([]mixture.Override, error) {
	var out []mixture.Override
	add := func(pattern, spec string) error {
		if spec == "keep" {
			spec = "F16"
		}
		t, ok := gguf.ParseType(strings.ToUpper(spec))
		if !ok {
			return usagef("--tensor %s=%s: %q is no ggml type", pattern, spec, spec)
		}
		rule := quant.Rule{Pattern: pattern}
		out = append(out, mixture.Override{Type: t, Match: func(name string) bool {
			return rule.Matches(name) || rule.Matches(strings.TrimSuffix(name, ".weight"))
		}})
		return nil
	}
	for _, s := range ctx.StringSlice("tensor") {
		pattern, spec, ok := strings.Cut(s, "=")
		if !ok || pattern == "" {
			return nil, usagef("--tensor %q is not PATTERN=TYPE", s)
		}
		if err := add(pattern, spec); err != nil {
			return nil, err
		}
	}
	for _, k := range ctx.StringSlice("keep") {
		if err := add(k, "keep"); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// importance reads --imatrix, or computes one from --calib.
func (c *console) importance(ctx *cli.Context, src formats.Checkpoint, path string, r *quant.GGUFRecipe, o quant.Options) error {
	file, text := ctx.String("imatrix"), ctx.StringSlice("calib")
	switch {
	case file != "" && len(text) > 0:
		return usagef("--imatrix and --calib exclude each other: one importance matrix is enough")
	case file != "":
		m, err := gguf.OpenImatrix(file)
		if err != nil {
			return err
		}
		r.Imatrix, r.ImatrixPath = m, file
	case len(text) > 0:
		m, err := c.computeImatrix(ctx, src, path, o)
		if err != nil {
			return err
		}
		r.Imatrix, r.ImatrixPath = m, strings.Join(text, ",")
	}
	return nil
}

// computeImatrix loads the calibration windows and runs the model over them.
func (c *console) computeImatrix(ctx *cli.Context, src formats.Checkpoint, path string, o quant.Options) (*gguf.Imatrix, error) {
	dense, err := formats.Dense(src)
	if err != nil {
		return nil, err
	}
	model, err := arch.Resolve(dense.Meta().Config, dense)
	if err != nil {
		return nil, err
	}
	if o.Calib, err = loadCalibration(ctx.Context, calibFrom(ctx, method{samples: 128, seqLen: 512}), path, model); err != nil {
		return nil, err
	}
	m, err := quant.Imatrix(ctx.Context, src, o)
	c.endProgress()
	return m, err
}

func imatrixCommand(c *console) *cli.Command {
	flags := append(calibFlags(), resourceFlags()...)
	flags = append(flags,
		&cli.StringSliceFlag{Name: "calib", Usage: "calibration text; repeatable"},
		&cli.StringSliceFlag{Name: "merge", Usage: "add the sums of another importance matrix of the same model; repeatable"},
		&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "imatrix.gguf, or .dat for the legacy form"},
		&cli.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "replace an existing output"})
	return &cli.Command{
		Name: "imatrix", Usage: "importance matrix, readable by llama.cpp", ArgsUsage: "MODEL",
		Flags: append(flags, outputFlags(c)...), Action: func(ctx *cli.Context) error { return c.imatrix(ctx) },
	}
}

func (c *console) imatrix(ctx *cli.Context) error {
	path, err := oneArgument(ctx, "MODEL")
	if err != nil {
		return err
	}
	out := ctx.String("out")
	if out == "" {
		return usagef("--out is missing")
	}
	if err := checkDevice(ctx); err != nil {
		return err
	}
	src, err := formats.Open(ctx.Context, path)
	if err != nil {
		return err
	}
	defer src.Close()
	memory, err := memoryLimit(ctx)
	if err != nil {
		return err
	}
	m, err := c.computeImatrix(ctx, src, path, quant.Options{Out: out, Threads: ctx.Int("threads"), Memory: memory, Events: c.event})
	if err != nil {
		return err
	}
	for _, other := range ctx.StringSlice("merge") {
		add, err := gguf.OpenImatrix(other)
		if err != nil {
			return err
		}
		if err := m.Merge(add); err != nil {
			return err
		}
	}
	content := m.EncodeLegacy()
	if !strings.HasSuffix(out, ".dat") {
		if content, err = m.EncodeGGUF(); err != nil {
			return err
		}
	}
	if err := writeNew(out, content, ctx.Bool("force")); err != nil {
		return err
	}
	if c.json {
		return c.printJSON(map[string]any{"schema": "quantize-imatrix/1", "out": out, "entries": len(m.Entries), "chunks": m.Chunks})
	}
	c.note("%s: %d entries from %d windows", out, len(m.Entries), m.Chunks)
	return nil
}
