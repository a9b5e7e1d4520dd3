package main

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/quant"
	"github.com/llmquant/quantize/quant/exl2"
)

// exl2Method is the method that mixes bit widths to meet a target.
const exl2Method = "exl2"

func exl2Flags() []cli.Flag {
	return []cli.Flag{
		&cli.Float64Flag{Name: "bpw", Value: 4, Usage: "EXL2: target bits per weight of the decoder's linears"},
		&cli.IntFlag{Name: "head-bits", Value: exl2.DefaultHeadBits, Usage: "EXL2: bits of the output head (2, 3, 4, 5, 6, 8), 16: dense"},
		&cli.StringFlag{Name: "measurement", Usage: "EXL2: measurement of this model, to use if the file exists (ExLlamaV2's measurement.json, too), else to make and keep there; it serves any --bpw"},
		&cli.StringFlag{Name: "choice", Usage: "EXL2: widths of every linear, to use as they are if the file exists (nothing is measured then), else to write there; edit it, or make one by hand: {\"modules\": {\"model.layers.0.self_attn.q_proj\": \"5/4 10/90 g64\", ...}}, widths / percent of the inputs / group sizes, or \"dense\""},
	}
}

// exl2Run is one run of the method.
type exl2Run struct {
	*console
	ctx    *cli.Context
	o      quant.Options
	src    formats.Checkpoint
	model  *arch.Model
	dryRun bool
	bf16   bool

	transforms []quant.Transform // after the measurement, which is of the model as it is
}

// exl2Job measures, unless a measurement or a choice is at hand, chooses the bit widths, and quantizes.
func (c *console) exl2Job(ctx *cli.Context, path string, o quant.Options) error {
	r := &exl2Run{console: c, ctx: ctx, o: o, dryRun: ctx.Bool("dry-run")}
	if err := r.checkFlags(); err != nil {
		return err
	}
	var err error
	if r.src, err = openSource(ctx.Context, path); err != nil {
		return err
	}
	defer r.src.Close()
	if err := quant.RefuseQuantized(r.src); err != nil {
		return err
	}
	if r.model, err = arch.Resolve(r.src.Meta().Config, r.src); err != nil {
		return err
	}
	m, err := methodByName(exl2Method)
	if err != nil {
		return err
	}
	if r.o.Calib, err = loadCalibration(ctx.Context, calibFrom(ctx, m), path, r.model); err != nil {
		return err
	}
	c.resumable = !r.dryRun
	choice, err := r.choice()
	if err != nil {
		return err
	}
	return r.quantize(choice)
}

// checkFlags refuses what cannot end well, before hours of measuring.
func (r *exl2Run) checkFlags() error {
	for _, f := range []string{"bits", "group-size", "sym", "asym", "tensor", "keep", "format"} {
		if r.ctx.IsSet(f) && !(f == "format" && r.ctx.String(f) == exl2Method) {
			return usagef("--%s means nothing to --method exl2; --bpw, --head-bits and --choice choose", f)
		}
	}
	if b := r.ctx.Float64("bpw"); !(b > 0) || math.IsInf(b, 0) {
		return usagef("--bpw %v is not possible", b)
	}
	var err error
	if r.transforms, err = transformFlags(r.ctx); err != nil {
		return err
	}
	if r.bf16, err = calibDType(r.ctx); err != nil {
		return err
	}
	if bits := r.ctx.Int("head-bits"); bits != 16 {
		if _, err := exl2.HeadCandidate(bits); err != nil {
			return usagef("--head-bits: %v", err)
		}
	}
	if r.dryRun || r.o.Force || !exists(r.o.Out) || exists(r.o.Out+".partial") { // a publication may want finishing
		return nil
	}
	return &safeio.Error{Op: "create", Path: r.o.Out, Off: -1, Err: safeio.ErrExists}
}

// exists reports whether something has that name.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// quantize plans and runs with a choice.
func (r *exl2Run) quantize(choice *exl2.Choice) error {
	recipe := quant.NewEXL2(choice, r.ctx.Int("head-bits"))
	recipe.EXL2.Rows, recipe.EXL2.Length = r.o.Calib.Windows, r.o.Calib.SeqLen
	for _, f := range r.o.Calib.Files {
		recipe.EXL2.Dataset = f.Name
	}
	recipe.Transforms, recipe.BF16 = r.transforms, r.bf16
	plan, err := quant.MakePlan(r.ctx.Context, r.src, recipe, r.o)
	if err != nil {
		return err
	}
	if r.dryRun {
		return r.printPlan(plan, &recipe)
	}
	boundMemory(plan.Memory)
	rep, err := quant.Run(r.ctx.Context, r.src, recipe, r.o)
	if err != nil {
		return err
	}
	r.endProgress()
	if r.ctx.String("measurement") == "" {
		if err := os.Remove(r.ownMeasurement()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return r.printReport(rep, r.o.Out)
}

// choice reads --choice, or chooses from a measurement and writes it.
func (r *exl2Run) choice() (*exl2.Choice, error) {
	const most = 64 << 20
	file := r.ctx.String("choice")
	if file != "" {
		switch text, err := safeio.ReadFile(file, most); {
		case err == nil:
			return r.givenChoice(file, text)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	m, err := r.measurement()
	if err != nil {
		return nil, err
	}
	choice, err := exl2.Optimize(m.Slots, r.ctx.Float64("bpw"))
	if err != nil || file == "" || r.dryRun {
		return choice, err
	}
	var text bytes.Buffer
	if err := choice.Write(&text); err != nil {
		return nil, err
	}
	return choice, writeNew(file, text.Bytes(), false)
}

// givenChoice checks a choice that somebody made or edited against the model.
func (r *exl2Run) givenChoice(file string, text []byte) (*exl2.Choice, error) {
	choice, err := exl2.ReadChoice(text)
	if err == nil {
		err = choice.Complete(quant.EXL2Slots(r.model))
	}
	if err != nil {
		return nil, &safeio.Error{Op: "read", Path: file, Off: -1, Hint: "mend the file, or remove it to choose anew", Err: err}
	}
	if r.ctx.IsSet("bpw") && !near(choice.Reached, r.ctx.Float64("bpw")) {
		r.note("%s says %.3f bits per weight; --bpw is not used", file, choice.Reached)
	}
	if !near(choice.Reached, choice.Target) {
		choice.Target = choice.Reached // what was aimed at once is no longer true
	}
	return choice, nil
}

// near reports whether a number of bits is within a percent of a target.
func near(bits, target float64) bool { return math.Abs(bits-target) <= 0.01*target }

// ownMeasurement is where a run keeps its measurement until the output is complete, so that it is not made twice.
func (r *exl2Run) ownMeasurement() string { return r.o.Out + ".measurement.json" }

// measurement reads --measurement, or measures and keeps the result.
func (r *exl2Run) measurement() (*exl2.Measurement, error) {
	file, o := r.ctx.String("measurement"), r.o
	own := file == ""
	if own && !r.dryRun {
		file = r.ownMeasurement()
	}
	if exists(file) && !exists(file+".partial") { // else it wants finishing
		switch m, err := r.readMeasurement(file); {
		case err == nil:
			return m, nil
		case !own:
			return nil, err
		}
	}
	if err := quant.CheckEXL2Target(r.model, r.ctx.Float64("bpw")); err != nil {
		return nil, err
	}
	if r.dryRun {
		file = ""
	}
	r.o.Before = quant.MeasurementMemory(r.model, o)
	boundMemory(r.o.Before)
	o.Force = own // --force is about the output; what an earlier run kept beside it was not asked for by anybody
	m, err := quant.MeasureEXL2(r.ctx.Context, r.src, o, file)
	if err == nil && own {
		r.note("--measurement FILE would keep this measurement for other targets")
	}
	return m, err
}

// readMeasurement reads a measurement that is at hand and checks what it was made from.
func (r *exl2Run) readMeasurement(file string) (*exl2.Measurement, error) {
	m, err := quant.ReadMeasurement(file, r.model)
	if err == nil {
		err = r.belongs(m)
	}
	if err == nil || r.ctx.Context.Err() != nil {
		return m, err
	}
	return nil, &safeio.Error{Op: "read", Path: file, Off: -1, Hint: "name another file, or remove it to measure again", Err: err}
}

// belongs checks what a measurement was made from.
func (r *exl2Run) belongs(m *exl2.Measurement) error {
	if m.Model == "" {
		r.note("the measurement does not say what it was made from, as ExLlamaV2's do not; its shapes fit")
		return nil
	}
	origin, err := quant.MeasuredFrom(r.ctx.Context, r.src, r.o.Calib)
	if err != nil {
		return err
	}
	return origin.Check(m)
}
