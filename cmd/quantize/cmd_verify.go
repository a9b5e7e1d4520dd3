package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/quant"
)

func verifyCommand(c *console) *cli.Command {
	return &cli.Command{
		Name: "verify", Usage: "re-read an artifact through its own reader and compare it with the model it was made from", ArgsUsage: "OUT",
		Flags:  []cli.Flag{&cli.StringFlag{Name: "base", Usage: "the model the artifact was made from"}, jsonFlag(c)},
		Action: func(ctx *cli.Context) error { return c.verify(ctx) },
	}
}

func (c *console) verify(ctx *cli.Context) error {
	path, err := oneArgument(ctx, "OUT")
	if err != nil {
		return err
	}
	if ctx.String("base") == "" {
		return usagef("--base is missing: name the model that %s was made from", path)
	}
	stored, err := formats.Open(ctx.Context, path)
	if err != nil {
		return err
	}
	defer stored.Close()
	if err := quant.CheckFiles(ctx.Context, stored); err != nil {
		return err
	}
	out, err := formats.Dense(stored)
	if err != nil {
		return err
	}
	base, err := openDense(ctx.Context, ctx.String("base"))
	if err != nil {
		return err
	}
	defer base.Close()
	m, err := arch.Resolve(base.Meta().Config, base)
	if err != nil {
		return err
	}
	res, err := quant.Verify(ctx.Context, out, base, m,
		func(name string) (packing.Scheme, bool) { return formats.StoredScheme(out, name) })
	if err != nil {
		return err
	}
	if c.json {
		if err := c.printJSON(res); err != nil {
			return err
		}
	} else if err := c.printVerify(res); err != nil {
		return err
	}
	if !res.OK {
		return &safeio.Error{Op: "verify", Path: path, Off: -1, Hint: "the listed tensors differ from the base model",
			Err: &gateError{"the artifact does not stand for the base model"}}
	}
	return nil
}

func (c *console) printVerify(res *quant.VerifyResult) error {
	w := tabwriter.NewWriter(c.out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "tensor\tstatus\trelative error\tlargest error\t")
	count := map[string]int{}
	for _, t := range res.Tensors {
		count[t.Status]++
		fmt.Fprintf(w, "%s\t%s\t%.5f\t%.5g\t\n", t.Name, t.Status, t.RelError, t.MaxAbsError)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range []string{"exact", "kept", "quantized", "missing", "extra"} {
		if count[s] > 0 {
			fmt.Fprintf(c.out, "%d %s  ", count[s], s)
		}
	}
	verdict := "ok"
	if !res.OK {
		verdict = "NOT ok"
	}
	_, err := fmt.Fprintf(c.out, "→ %s\n", verdict)
	return err
}
