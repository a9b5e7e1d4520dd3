package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"math"

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
		&cli.IntFlag{Name: "head-bits", Value: exl2.DefaultHeadBits, Usage: "EXL2: bits of the output head, 16: dense"},
		&cli.StringFlag{Name: "measurement", Usage: "EXL2: measurement to use again, or to write when the file does not exist"},
	}
}

// measurementFile is the form of --measurement: what every candidate of every linear costs and brings.
type measurementFile struct {
	Schema string      `json:"schema"` // "quantize-exl2-measurement/1"
	Slots  []exl2.Slot `json:"slots"`
}

const measurementSchema = "quantize-exl2-measurement/1"

// exl2Job measures, unless a measurement is at hand, chooses the bit widths, and quantizes.
func (c *console) exl2Job(ctx *cli.Context, path string, o quant.Options) error {
	for _, f := range []string{"bits", "group-size", "sym", "asym", "tensor", "keep", "format", "transform"} {
		if ctx.IsSet(f) && !(f == "format" && ctx.String(f) == exl2Method) {
			return usagef("--%s means nothing to --method exl2; --bpw and --head-bits choose", f)
		}
	}
	if b := ctx.Float64("bpw"); !(b > 0) || math.IsInf(b, 0) {
		return usagef("--bpw %v is not possible", b)
	}
	src, err := openSource(ctx.Context, path)
	if err != nil {
		return err
	}
	defer src.Close()
	model, err := arch.Resolve(src.Meta().Config, src)
	if err != nil {
		return err
	}
	m, err := methodByName(exl2Method)
	if err != nil {
		return err
	}
	if o.Calib, err = loadCalibration(ctx.Context, calibFrom(ctx, m), path, model); err != nil {
		return err
	}
	slots, err := c.measurement(ctx, src, o)
	if err != nil {
		return err
	}
	choice, err := exl2.Optimize(slots, ctx.Float64("bpw"))
	if err != nil {
		return err
	}
	recipe := quant.NewEXL2(choice, ctx.Int("head-bits"))
	recipe.EXL2.Rows, recipe.EXL2.Length = o.Calib.Windows, o.Calib.SeqLen
	for _, f := range o.Calib.Files {
		recipe.EXL2.Dataset = f.Name
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

// measurement reads --measurement, or measures and writes it.
func (c *console) measurement(ctx *cli.Context, src formats.Checkpoint, o quant.Options) ([]exl2.Slot, error) {
	const most = 256 << 20
	file := ctx.String("measurement")
	if file != "" {
		text, err := safeio.ReadFile(file, most)
		if err == nil {
			var m measurementFile
			if err := json.Unmarshal(text, &m); err != nil || m.Schema != measurementSchema {
				return nil, &safeio.Error{Op: "read", Path: file, Off: -1, Hint: "delete it to measure again",
					Err: safeio.Corruptf("it is no measurement of this tool")}
			}
			return m.Slots, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	slots, err := quant.MeasureEXL2(ctx.Context, src, o)
	if err != nil || file == "" || ctx.Bool("dry-run") {
		return slots, err
	}
	text, err := json.MarshalIndent(measurementFile{measurementSchema, slots}, "", " ")
	if err != nil {
		return nil, err
	}
	return slots, writeNew(file, append(text, '\n'), false)
}
