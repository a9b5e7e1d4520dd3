package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/quant"
	"github.com/llmquant/quantize/quant/gptq"
)

// method is one row of what --method accepts: its defaults and how to build its recipe.
type method struct {
	name    string
	doc     string
	bits    int // defaults of the integer grid; 0: the method has none
	group   int
	sym     bool
	formats []string // layouts it can be written in, the default first
	samples int      // usual calibration; 0: the method needs none
	seqLen  int
	recipe  func(s packing.Scheme, format string) (quant.Recipe, error)
}

// methods is the table of methods, in the order of `quantize list methods`.
func methods() []method {
	return []method{
		{"awq", "activation-aware scaling, then searched rounding (calibrated)", 4, 128, false,
			[]string{"awq", "compressed-tensors", "gptq", "gptq_v2"}, 128, 512, awqRecipe},
		{"rtn", "plain rounding, no calibration", 4, 128, false,
			[]string{"awq", "compressed-tensors", "gptq", "gptq_v2"}, 0, 0, rtnRecipe},
		{"gptq", "error feedback through the Hessian, refined (calibrated)", 4, 128, true,
			[]string{"gptq", "gptq_v2", "compressed-tensors", "awq", "gguf"}, 128, 2048, gptqRecipe},
		{exl2Method, "mixed bit widths that meet --bpw, from a measurement of every linear (calibrated)", 0, 0, false,
			[]string{"exl2"}, 128, 2048, nil},
		{kquantName, "ggml block types and mixtures, as llama-quantize writes them; --type chooses", 0, 0, false,
			[]string{"gguf"}, 0, 0, nil},
		{"none", "copies the checkpoint, re-sharded and verified", 0, 0, false,
			[]string{"safetensors"}, 0, 0, copyRecipe},
	}
}

func awqRecipe(s packing.Scheme, format string) (quant.Recipe, error) {
	return quant.NewAWQ(s, format, quant.AWQOptions{}), nil
}

func rtnRecipe(s packing.Scheme, format string) (quant.Recipe, error) {
	return quant.NewRTN(s, format), nil
}

func gptqRecipe(s packing.Scheme, format string) (quant.Recipe, error) {
	return quant.NewGPTQ(s, format, gptq.Normal()), nil
}

func copyRecipe(packing.Scheme, string) (quant.Recipe, error) { return quant.NewCopy(), nil }

func methodByName(name string) (method, error) {
	var names []string
	for _, m := range methods() {
		if m.name == name {
			return m, nil
		}
		names = append(names, m.name)
	}
	if name == "" {
		return method{}, &usageError{text: "--method is missing", hint: "known: " + strings.Join(names, ", ")}
	}
	return method{}, unknownf("method", name, names)
}

// buildRecipe turns the flags of the main job into a recipe.
func buildRecipe(ctx *cli.Context) (method, quant.Recipe, error) {
	m, err := methodByName(ctx.String("method"))
	if err != nil {
		return m, quant.Recipe{}, err
	}
	format := ctx.String("format")
	if format == "" {
		format = m.formats[0]
	}
	if !slices.Contains(m.formats, format) {
		return m, quant.Recipe{}, unknownf("format of --method "+m.name, format, m.formats)
	}
	scheme, err := schemeFlags(ctx, m, format)
	if err != nil {
		return m, quant.Recipe{}, err
	}
	r, err := m.recipe(scheme, format)
	if err != nil {
		return m, r, err
	}
	if m.name == gptqName {
		if r, err = withGPTQFlags(ctx, r); err != nil {
			return m, r, err
		}
	}
	extra, err := transformFlags(ctx)
	if err != nil {
		return m, r, err
	}
	if len(extra) > 0 && m.samples == 0 {
		return m, r, usagef("--transform needs a calibrated method (awq, gptq, exl2, kquant), not %s", m.name)
	}
	r.Transforms = append(extra, r.Transforms...)
	if r.BF16, err = calibDType(ctx); err != nil {
		return m, r, err
	}
	if r.BF16 && r.Needs() == 0 {
		return m, r, usagef("--calib-dtype means nothing to --method %s", m.name)
	}
	rules, err := ruleFlags(ctx)
	if err != nil {
		return m, r, err
	}
	if len(rules) > 0 {
		r.Allocation = quant.Overridden{Base: r.Allocation, Rules: rules, Default: scheme}
	}
	return m, r, nil
}

// calibDType reads --calib-dtype.
func calibDType(ctx *cli.Context) (bf16 bool, err error) {
	switch v := ctx.String("calib-dtype"); v {
	case "f32":
		return false, nil
	case "bf16":
		return true, nil
	default:
		return false, usagef("--calib-dtype %q is not possible; f32 or bf16", v)
	}
}

// schemeFlags reads --bits, --group-size, --sym and --asym over the method's defaults.
func schemeFlags(ctx *cli.Context, m method, format string) (packing.Scheme, error) {
	if m.bits == 0 {
		for _, f := range []string{"bits", "group-size", "sym", "asym"} {
			if ctx.IsSet(f) {
				return packing.Scheme{}, usagef("--%s means nothing to --method %s", f, m.name)
			}
		}
		return packing.Scheme{}, nil
	}
	// Servers load GPTQ files only when they are symmetric, so that is their default whatever the method.
	s := packing.Scheme{Grid: "int", Bits: m.bits, GroupSize: m.group, Sym: m.sym || strings.HasPrefix(format, "gptq")}
	if ctx.IsSet("bits") {
		s.Bits = ctx.Int("bits")
	}
	if ctx.IsSet("group-size") {
		s.GroupSize = ctx.Int("group-size")
	}
	switch {
	case ctx.Bool("sym") && ctx.Bool("asym"):
		return s, usagef("--sym and --asym exclude each other")
	case ctx.Bool("sym"):
		s.Sym = true
	case ctx.Bool("asym"):
		s.Sym = false
	}
	if !slices.Contains([]int{2, 3, 4, 8}, s.Bits) {
		return s, usagef("--bits %d is not possible; 2, 3, 4 or 8", s.Bits)
	}
	if s.GroupSize != -1 && (s.GroupSize < 8 || s.GroupSize > 1<<16) {
		return s, usagef("--group-size %d is not possible; for example 32, 64, 128, or -1 for one group per row", s.GroupSize)
	}
	return s, nil
}

// transforms are what --transform accepts.
var transforms = map[string]quant.Transform{"awq": quant.AWQScaling{}, "smooth": quant.Smooth{}}

// transformFlags reads --transform.
func transformFlags(ctx *cli.Context) (list []quant.Transform, err error) {
	for _, name := range ctx.StringSlice("transform") {
		t, ok := transforms[name]
		if !ok {
			return nil, usagef("--transform %q is not possible; awq or smooth", name)
		}
		list = append(list, t)
	}
	return list, nil
}

// ruleFlags reads --tensor and --keep; --tensor rules come first because they are more specific.
func ruleFlags(ctx *cli.Context) ([]quant.Rule, error) {
	var rules []quant.Rule
	for _, t := range ctx.StringSlice("tensor") {
		pattern, spec, ok := strings.Cut(t, "=")
		if !ok || pattern == "" || spec == "" {
			return nil, usagef("--tensor %q is not PATTERN=SPEC", t)
		}
		if _, err := quant.ParseSpec(spec, packing.Scheme{Bits: 4, GroupSize: 128}); err != nil {
			return nil, usagef("--tensor %s: %v", t, err)
		}
		rules = append(rules, quant.Rule{Pattern: pattern, Spec: spec})
	}
	for _, k := range ctx.StringSlice("keep") {
		if k == "" {
			return nil, usagef("--keep needs a pattern")
		}
		rules = append(rules, quant.Rule{Pattern: k, Spec: "keep"})
	}
	return rules, nil
}

// planLine is how a scheme is announced before a run.
func planLine(r *quant.Recipe) string {
	if r.Rounder == nil {
		return r.Method
	}
	return fmt.Sprintf("%s → %s", r.Method, r.Layout)
}
