package main

import (
	"github.com/urfave/cli/v2"

	"github.com/llmquant/quantize/quant"
	"github.com/llmquant/quantize/quant/gptq"
)

// gptqFlags are those that only --method gptq has.
func gptqFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "act-order", Usage: "gptq: order of rounding; group (whole groups, the default), natural, static (columns, scales fixed before) or " +
			"g_idx (groups formed in that order: for engines that still load desc_act)"},
		&cli.StringFlag{Name: "hessian-dtype", Usage: "gptq: f64 or f32 sums and factors of second moments; f32 takes less memory for very wide layers"},
	}
}

// actOrders are what --act-order accepts.
var actOrders = map[string]gptq.Order{"group": gptq.GroupAware, "natural": gptq.Natural, "static": gptq.ActOrder, "g_idx": gptq.Indexed}

// gptqSettings reads the flags of --method gptq.
func gptqSettings(ctx *cli.Context) (o gptq.Options, narrow bool, err error) {
	o = gptq.Best()
	if v := ctx.String("act-order"); v != "" {
		order, ok := actOrders[v]
		if !ok {
			return o, false, usagef("--act-order %q is not possible; group, natural, static or g_idx", v)
		}
		o.Order = order
	}
	switch v := ctx.String("hessian-dtype"); v {
	case "", "f64":
	case "f32":
		narrow = true
	default:
		return o, false, usagef("--hessian-dtype %q is not possible; f64 or f32", v)
	}
	return o, narrow, nil
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
	o, narrow, err := gptqSettings(ctx)
	if err != nil {
		return r, err
	}
	set, ok := r.Allocation.(quant.Uniform)
	if !ok {
		return r, nil
	}
	r = quant.NewGPTQ(set.Scheme, r.Layout, o, r.Transforms...)
	if narrow {
		r.Rounder = quant.GPTQ{Options: o, Search: true, Narrow: true}
		r.Config["hessian_dtype"] = "f32"
	}
	return r, nil
}
