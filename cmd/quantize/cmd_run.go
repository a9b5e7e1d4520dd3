package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmquant/quantize/calib"
	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/quant"
)

// runCommand is the main job: `quantize MODEL --method M -o OUT`.
func runCommand(c *console) *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "model", Usage: "the checkpoint, if not given as an argument"},
		&cli.StringFlag{Name: "method", Usage: "see `quantize list methods`"},
		&cli.StringFlag{Name: "format", Usage: "see `quantize list formats` (default: the method's own)"},
		&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "directory (or .gguf file) to create"},
		&cli.StringSliceFlag{Name: "calib", Usage: "calibration text: parquet, jsonl, json, txt (.gz, .zst), a directory, or default; repeatable"},
		&cli.IntFlag{Name: "bits", Usage: "2, 3, 4 or 8"},
		&cli.IntFlag{Name: "group-size", Usage: "input columns per scale, -1: one per row"},
		&cli.BoolFlag{Name: "sym", Usage: "symmetric grid"},
		&cli.BoolFlag{Name: "asym", Usage: "asymmetric grid"},
		&cli.StringFlag{Name: "calib-dtype", Value: "f32", Usage: "what calibration multiplies: f32, or bf16, which is twice as fast where the processor has bfloat16 products"},
		&cli.StringSliceFlag{Name: "transform", Usage: "awq or smooth: rewrite weights without changing the function before rounding; repeatable"},
		&cli.StringSliceFlag{Name: "tensor", Usage: "'PATTERN=SPEC': number format of matching tensors, first match wins; repeatable"},
		&cli.StringSliceFlag{Name: "keep", Usage: "leave matching tensors as they are; repeatable"},
		&cli.StringFlag{Name: "max-shard-size", Value: "5GB", Usage: "largest weight file"},
		&cli.StringFlag{Name: "nan", Value: "error", Usage: "error or zero: what to do with non-finite weights"},
		&cli.BoolFlag{Name: "dry-run", Usage: "print the plan and write nothing"},
		&cli.BoolFlag{Name: "strict", Usage: "fallbacks are errors"},
		&cli.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "replace an existing output"},
		&cli.Int64Flag{Name: "seed", Usage: "key of the counter-based generator, for methods that draw numbers"},
	}
	flags = append(flags, ggufFlags()...)
	flags = append(flags, exl2Flags()...)
	flags = append(flags, gptqFlags()...)
	flags = append(flags, calibFlags()...)
	flags = append(flags, resourceFlags()...)
	return &cli.Command{
		Name: jobCommand, Hidden: true, Usage: "quantize a checkpoint", ArgsUsage: "[MODEL]",
		Flags:  append(flags, outputFlags(c)...),
		Action: func(ctx *cli.Context) error { return c.mainJob(ctx) },
	}
}

func (c *console) mainJob(ctx *cli.Context) error {
	path, err := modelArgument(ctx)
	if err != nil {
		return err
	}
	o, err := c.jobOptions(ctx)
	if err != nil {
		return err
	}
	if err := refuseGPTQFlags(ctx); err != nil {
		return err
	}
	if ctx.String("method") == kquantName || ctx.String("method") == gptqName && (ctx.String("format") == "gguf" || strings.HasSuffix(o.Out, ".gguf")) {
		return c.kquant(ctx, path, o)
	}
	if ctx.String("method") == exl2Method {
		return c.exl2Job(ctx, path, o)
	}
	m, recipe, err := buildRecipe(ctx)
	if err != nil {
		return err
	}
	src, err := openSource(ctx.Context, path)
	if err != nil {
		return err
	}
	defer src.Close()
	if err := quant.RefuseQuantized(src); err != nil {
		return err
	}
	model, err := arch.Resolve(src.Meta().Config, src)
	if err != nil {
		return err
	}
	if recipe.Needs() != 0 {
		if o.Calib, err = loadCalibration(ctx.Context, calibFrom(ctx, m), path, model); err != nil {
			return err
		}
	} else if ctx.IsSet("calib") {
		c.note("--calib is not used: %s needs no calibration", m.name)
	}
	plan, err := quant.MakePlan(ctx.Context, src, recipe, o)
	if err != nil {
		return err
	}
	if ctx.Bool("dry-run") {
		return c.printPlan(plan, &recipe)
	}
	c.resumable = true
	boundMemory(plan.Memory)
	rep, err := quant.Run(ctx.Context, src, recipe, o)
	if err != nil {
		return err
	}
	c.endProgress()
	return c.printReport(rep, o.Out)
}

// modelArgument returns MODEL, given as an argument or as --model.
func modelArgument(ctx *cli.Context) (string, error) {
	flag, first := ctx.String("model"), ctx.Args().First()
	if _, err := os.Lstat(first); first != "" && err != nil && !ctx.IsSet("method") {
		if near := nearest(first, commandNames()); near != "" { // a mistyped verb ends up here
			return "", unknownf("command", first, commandNames())
		}
	}
	switch n := ctx.Args().Len(); {
	case n == 0 && flag != "":
		return flag, nil
	case n == 1 && flag == "":
		return ctx.Args().First(), nil
	case n == 0:
		return "", usagef("MODEL is missing")
	case n == 1:
		return "", usagef("MODEL is given twice: %q and --model %q", ctx.Args().First(), flag)
	}
	return "", usagef("one MODEL is expected, found %v", ctx.Args().Slice())
}

// jobOptions reads the flags that are not the recipe's.
func (c *console) jobOptions(ctx *cli.Context) (quant.Options, error) {
	o := quant.Options{
		Out: ctx.String("out"), Threads: ctx.Int("threads"), Strict: ctx.Bool("strict"), Force: ctx.Bool("force"),
		Version: thisBuild().Version, Events: c.event,
	}
	var err error
	if err = checkDevice(ctx); err != nil {
		return o, err
	}
	switch nan := ctx.String("nan"); nan {
	case "error", "zero":
		o.NaNZero = nan == "zero"
	default:
		return o, usagef("--nan %q is not possible; error or zero", nan)
	}
	if o.Out == "" && !ctx.Bool("dry-run") {
		return o, usagef("--out is missing")
	}
	if o.Threads < 0 {
		return o, usagef("--threads %d is not possible", o.Threads)
	}
	if o.MaxShard, err = parseSize("max-shard-size", ctx.String("max-shard-size")); err != nil {
		return o, err
	}
	o.Memory, err = memoryLimit(ctx)
	return o, err
}

// calibration is what the flags say about calibration data.
type calibration struct {
	paths                     []string
	column, template          string
	samples, seqLen           int
	samplesGiven, seqLenGiven bool
}

func calibFrom(ctx *cli.Context, m method) calibration {
	cal := calibration{
		paths: ctx.StringSlice("calib"), column: ctx.String("calib-column"), template: ctx.String("chat-template"),
		samples: m.samples, seqLen: m.seqLen, samplesGiven: ctx.IsSet("samples"), seqLenGiven: ctx.IsSet("seq-len"),
	}
	if cal.samplesGiven {
		cal.samples = ctx.Int("samples")
	}
	if cal.seqLenGiven {
		cal.seqLen = ctx.Int("seq-len")
	}
	if len(cal.paths) == 0 {
		cal.paths = []string{calib.DefaultName}
	}
	return cal
}

// loadCalibration reads the windows a method calibrates on.
func loadCalibration(ctx context.Context, cal calibration, modelDir string, model *arch.Model) (*calib.Set, error) {
	if cal.samples < 1 || cal.seqLen < 2 {
		return nil, usagef("%d windows of %d tokens are not possible", cal.samples, cal.seqLen)
	}
	if cal.seqLen > model.MaxPos {
		if cal.seqLenGiven {
			return nil, usagef("--seq-len %d is longer than the model's context of %d", cal.seqLen, model.MaxPos)
		}
		cal.seqLen = model.MaxPos
	}
	text := &lazyTokenizer{path: modelDir}
	set, err := calib.Load(ctx, cal.paths, calib.Options{Column: cal.column, Samples: cal.samples, SeqLen: cal.seqLen, Template: cal.template, ModelDir: modelDir, ModelFiles: chatFiles(modelDir)}, text, model.Vocab)
	return set, text.check(err)
}

// note prints a remark that is no error.
func (c *console) note(format string, args ...any) {
	if !c.quiet && !c.json {
		fmt.Fprintf(c.err, "note: "+format+"\n", args...)
	}
}

// openSource opens a checkpoint to be quantized. A GGUF file of plain floats is shown in Hugging Face names, with its
// config and tokenizer reconstructed; what is quantized already is left for the plan to refuse.
func openSource(ctx context.Context, path string) (formats.Checkpoint, error) {
	src, err := formats.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	if _, ok := formats.GGUF(src); ok && src.Meta().Quant == nil {
		return denseForConvert(src)
	}
	return src, nil
}

// boundMemory makes the garbage collector keep to what the plan printed. The estimate is of live data; garbage may fill
// the margin but not pile up beyond it.
func boundMemory(planned int64) { debug.SetMemoryLimit(planned - programBytes) }

// programBytes is about what the program itself takes beside the memory that the collector manages.
const programBytes = 20 << 20
