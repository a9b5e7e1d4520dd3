package main

import (
	"github.com/urfave/cli/v2"

	"github.com/llmquant/quantize/quant"
	"github.com/llmquant/quantize/quant/gptq"
)

// gptqFlags are those that only --method gptq has.
func gptqFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "effort", Value: "normal", Usage: "gptq: plain (error feedback alone), normal (also refined, and towards the full-precision model) or best (refined longer)"},
		&cli.StringFlag{Name: "act-order", Usage: "gptq: order of rounding; group (whole groups, the default), natural, static (columns, scales fixed before) or " +
			"g_idx (groups formed in that order: for engines that still load desc_act)"},
		&cli.StringFlag{Name: "hessian-dtype", Usage: "gptq: f64 or f32 sums and factors of second moments; f32 takes less memory for very wide layers"},
	}
}

// actOrders are what --act-order accepts.
var actOrders = map[string]gptq.Order{"group": gptq.GroupAware, "natural": gptq.Natural, "static": gptq.ActOrder, "g_idx": gptq.Indexed}

// efforts are what --effort accepts.
var efforts = map[string]func() quant.GPTQ{
	"plain":  func() quant.GPTQ { return quant.GPTQ{Options: gptq.Plain(), Search: true, NoShift: true} },
	"normal": func() quant.GPTQ { return quant.GPTQ{Options: gptq.Normal(), Search: true} },
	"best":   func() quant.GPTQ { return quant.GPTQ{Options: gptq.Best(), Search: true} },
}

// gptqRounder reads the flags of --method gptq.
func gptqRounder(ctx *cli.Context) (quant.GPTQ, error) {
	name := ctx.String("effort")
	effort, ok := efforts[name]
	if !ok {
		return quant.GPTQ{}, usagef("--effort %q is not possible; plain, normal or best", name)
	}
	r := effort()
	if v := ctx.String("act-order"); v != "" {
		if r.Options.Order, ok = actOrders[v]; !ok {
			return r, usagef("--act-order %q is not possible; group, natural, static or g_idx", v)
		}
	}
	switch v := ctx.String("hessian-dtype"); v {
	case "", "f64":
	case "f32":
		r.Narrow = true
	default:
		return r, usagef("--hessian-dtype %q is not possible; f64 or f32", v)
	}
	return r, nil
}

// refuseGPTQFlags fails when flags of --method gptq come with another method.
func refuseGPTQFlags(ctx *cli.Context) error {
	for _, f := range gptqFlags() {
		if name := f.Names()[0]; ctx.IsSet(name) && ctx.String("method") != gptqName {
			return usagef("--%s means nothing to --method %s", name, ctx.String("method"))
		}
	}
	return nil
}

// withGPTQFlags rebuilds what the flags change in a GPTQ recipe.
func withGPTQFlags(ctx *cli.Context, r quant.Recipe) (quant.Recipe, error) {
	rounder, err := gptqRounder(ctx)
	if err != nil {
		return r, err
	}
	set, ok := r.Allocation.(quant.Uniform)
	if !ok {
		return r, nil
	}
	r = quant.NewGPTQ(set.Scheme, r.Layout, rounder.Options, r.Transforms...)
	r.Rounder = rounder
	r.Config["effort"] = ctx.String("effort")
	if rounder.Narrow {
		r.Config["hessian_dtype"] = "f32"
	}
	return r, nil
}
