package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmquant/quantize/calib"
	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/quant"
	"github.com/llmquant/quantize/quant/eval"
)

func evalCommand(c *console) *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "base", Usage: "the original model: adds KL divergence, top-1 agreement and the perplexity ratio"},
		&cli.StringSliceFlag{Name: "data", Usage: "evaluation text, any kind that --calib takes; repeatable"},
		&cli.StringFlag{Name: "data-column", Usage: "text column, or a column of token ids or chat messages"},
		&cli.StringFlag{Name: "chat-template", Usage: "chatml, plain or a template file, for chat columns"},
		&cli.IntFlag{Name: "seq-len", Usage: "tokens per window (default: the model's context, at most 2048)"},
		&cli.IntFlag{Name: "samples", Usage: "use the first N windows only (default: all)"},
		&cli.StringFlag{Name: "protocol", Value: string(eval.GPTQ), Usage: "gptq, all or llama.cpp"},
		&cli.IntFlag{Name: "stride", Usage: "overlap windows and score only new tokens"},
		&cli.Float64Flag{Name: "max-kl", Usage: "exit 7 when the mean KL divergence is larger"},
		&cli.Float64Flag{Name: "max-ppl-ratio", Usage: "exit 7 when the perplexity ratio to the base is larger"},
		&cli.StringFlag{Name: "prompt", Usage: "print a greedy continuation of this text"},
		&cli.IntFlag{Name: "prompt-tokens", Value: 64, Usage: "length of the continuation"},
	}
	flags = append(append(flags, resourceFlags()...), outputFlags(c)...)
	return &cli.Command{
		Name: "eval", Usage: "perplexity; with --base also KL divergence and top-1 agreement", ArgsUsage: "MODEL",
		Flags: flags, Action: func(ctx *cli.Context) error { return c.eval(ctx) },
	}
}

func (c *console) eval(ctx *cli.Context) error {
	path, err := oneArgument(ctx, "MODEL")
	if err != nil {
		return err
	}
	switch {
	case checkDevice(ctx) != nil:
		return checkDevice(ctx)
	case len(ctx.StringSlice("data")) == 0 && ctx.String("prompt") == "":
		return usagef("--data is missing (or --prompt, for a continuation only)")
	case ctx.String("base") == "" && (ctx.IsSet("max-kl") || ctx.IsSet("max-ppl-ratio")):
		return usagef("--max-kl and --max-ppl-ratio compare with a base model: give --base")
	}
	model, err := openDense(ctx.Context, path)
	if err != nil {
		return err
	}
	defer model.Close()
	var res *eval.Result
	if len(ctx.StringSlice("data")) > 0 {
		if res, err = c.measure(ctx, model, path); err != nil {
			return err
		}
	}
	if prompt := ctx.String("prompt"); prompt != "" && !c.json {
		if err := c.continuation(ctx, model, path, prompt); err != nil {
			return err
		}
	}
	if res == nil {
		return nil
	}
	return failedGates(res)
}

// openDense opens a model and the view in which every linear reads as plain numbers.
func openDense(ctx context.Context, path string) (formats.Checkpoint, error) {
	c, err := formats.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	d, err := formats.Dense(c)
	if err != nil {
		c.Close()
		return nil, err
	}
	return d, nil
}

// measure runs the evaluation and prints it.
func (c *console) measure(ctx *cli.Context, model formats.Checkpoint, path string) (*eval.Result, error) {
	var base formats.Checkpoint
	if b := ctx.String("base"); b != "" {
		var err error
		if base, err = openDense(ctx.Context, b); err != nil {
			return nil, err
		}
		defer base.Close()
	}
	o, err := evalOptions(ctx, model, path)
	if err != nil {
		return nil, err
	}
	o.Progress = func(done float64) {
		c.event(quant.Event{Kind: quant.EventProgress, Stage: "evaluating", Done: done})
	}
	if c.json {
		o.Progress = nil
	}
	res, err := eval.Run(ctx.Context, model, base, o)
	if err != nil {
		return nil, err
	}
	res.Model, res.Base, res.Data = path, ctx.String("base"), ctx.StringSlice("data")
	addGates(ctx, res)
	c.endProgress()
	if c.json {
		return res, c.printJSON(res)
	}
	printEval(c.out, res)
	return res, nil
}

// evalOptions reads the data with the model's tokenizer.
func evalOptions(ctx *cli.Context, model formats.Checkpoint, path string) (eval.Options, error) {
	o := eval.Options{Protocol: eval.Protocol(ctx.String("protocol")), SeqLen: ctx.Int("seq-len"), Stride: ctx.Int("stride"), BOS: -1, Threads: threads(ctx)}
	var err error
	if o.Memory, err = memoryLimit(ctx); err != nil {
		return o, err
	}
	m, err := arch.Resolve(model.Meta().Config, model)
	if err != nil {
		return o, err
	}
	if o.SeqLen == 0 {
		o.SeqLen = min(m.MaxPos, 2048)
	}
	if err := o.Validate(); err != nil {
		return o, usagef("%v", err)
	}
	if o.SeqLen > m.MaxPos {
		return o, usagef("--seq-len %d is longer than the model's context of %d", o.SeqLen, m.MaxPos)
	}
	text := &lazyTokenizer{path: path}
	stream, err := calib.ReadStream(ctx.Context, ctx.StringSlice("data"),
		calib.Options{Column: ctx.String("data-column"), Template: ctx.String("chat-template"), ModelDir: path, ModelFiles: chatFiles(path)}, text, m.Vocab)
	if err = text.check(err); err != nil {
		return o, err
	}
	o.IDs, o.DocStart = stream.IDs, stream.DocStart
	if n := ctx.Int("samples") * o.SeqLen; n > 0 && n < len(o.IDs) {
		o.IDs = o.IDs[:n]
	}
	if o.Protocol == eval.LlamaCpp {
		if t, err := text.open(); err == nil {
			if bos, ok := t.BOS(); ok && t.Model().AddBOS {
				o.BOS = bos
			}
		}
	}
	return o, nil
}

func addGates(ctx *cli.Context, r *eval.Result) {
	gate := func(flag string, value float64) {
		if ctx.IsSet(flag) {
			limit := ctx.Float64(flag)
			r.Gates = append(r.Gates, eval.Gate{Name: flag, Limit: limit, Value: value, OK: value <= limit})
		}
	}
	if r.KL != nil {
		gate("max-kl", r.KL.Mean)
		gate("max-ppl-ratio", r.PerplexityRatio.Value)
	}
}

func failedGates(r *eval.Result) error {
	var failed []string
	for _, g := range r.Gates {
		if !g.OK {
			failed = append(failed, fmt.Sprintf("--%s: %.6g is more than %g", g.Name, g.Value, g.Limit))
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return &safeio.Error{Op: "quality gate", Off: -1, Hint: "more bits, smaller groups or a calibrated method lose less",
		Err: &gateError{strings.Join(failed, "; ")}}
}

// gateError is a quality gate that was not met, of the class of failed verifications.
type gateError struct{ text string }

func (g *gateError) Error() string { return g.text }
func (g *gateError) Unwrap() error { return safeio.ErrVerify }

func printEval(w io.Writer, r *eval.Result) {
	fmt.Fprintf(w, "%d tokens of %d documents in %d windows of %d, protocol %s\n", r.Tokens, r.Documents, r.Windows, r.SeqLen, r.Protocol)
	fmt.Fprintf(w, "perplexity        %.4f   cross-entropy %.5f\n", r.Perplexity, r.CrossEntropy)
	if r.KL == nil {
		return
	}
	fmt.Fprintf(w, "base perplexity   %.4f   cross-entropy %.5f\n", *r.BasePerplexity, *r.BaseCrossEntropy)
	fmt.Fprintf(w, "perplexity ratio  %.5f  [%.5f, %.5f]\n", r.PerplexityRatio.Value, r.PerplexityRatio.Low, r.PerplexityRatio.High)
	fmt.Fprintf(w, "KL(base ‖ model)  %.5f  [%.5f, %.5f]   median %.5f   p99 %.5f   max %.4f\n", r.KL.Mean, r.KL.Low, r.KL.High, r.KL.Median, r.KL.P99, r.KL.Max)
	fmt.Fprintf(w, "top-1 agreement   %.2f %%\n", 100**r.Top1Agreement)
	for _, g := range r.Gates {
		verdict := "ok"
		if !g.OK {
			verdict = "FAILED"
		}
		fmt.Fprintf(w, "gate --%s %g: %.6g %s\n", g.Name, g.Limit, g.Value, verdict)
	}
}

// continuation prints what the model makes of a prompt, token by token.
func (c *console) continuation(ctx *cli.Context, model formats.Checkpoint, path, prompt string) error {
	t, err := openTokenizer(path)
	if err != nil {
		return err
	}
	ids := t.Encode(prompt, true)
	if len(ids) == 0 {
		return errors.New("the prompt has no tokens")
	}
	c.endProgress()
	fmt.Fprintf(c.out, "%s", prompt)
	shown := t.Decode(ids)
	stop := eval.StopIDs(model)
	if id, ok := t.EOS(); ok {
		stop = append(stop, id)
	}
	err = eval.Continue(ctx.Context, model, ids, ctx.Int("prompt-tokens"), threads(ctx), func(id int32) bool {
		if slices.Contains(stop, id) {
			return false
		}
		ids = append(ids, id)
		text := t.Decode(ids)
		if whole := strings.TrimSuffix(text, "\uFFFD"); len(whole) > len(shown) { // half a character waits for its rest
			fmt.Fprint(c.out, whole[len(shown):])
			shown = whole
		}
		return true
	})
	fmt.Fprintln(c.out)
	return err
}
