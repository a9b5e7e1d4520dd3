// This program measures what quantization cost: the divergence of an artifact's predictions from those of its base
// model on a text, with the confidence interval, and fails when it is too large.
//
//	go run ./examples/evaluate -data testdata/data/golm-eval-ids.jsonl /tmp/golm-awq testdata/golm-llama
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"

	"github.com/llmquant/quantize/calib"
	"github.com/llmquant/quantize/calib/tokenizer"
	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/quant/eval"
)

func main() {
	data := flag.String("data", "", "evaluation text or token ids")
	windows := flag.Int("windows", 16, "windows to score")
	seqLen := flag.Int("seq-len", 512, "tokens per window")
	most := flag.Float64("max-kl", 0.1, "largest acceptable mean divergence")
	flag.Parse()
	if flag.NArg() != 2 || *data == "" {
		log.Fatal("usage: evaluate -data FILE [flags] ARTIFACT BASE")
	}
	ctx := context.Background()
	artifact, base := open(ctx, flag.Arg(0)), open(ctx, flag.Arg(1))
	tok := must(tokenizer.Open(flag.Arg(1)))
	text := must(calib.ReadStream(ctx, []string{*data}, calib.Options{ModelDir: flag.Arg(1)}, tok, tok.Vocab()))
	ids := text.IDs[:min(len(text.IDs), *windows**seqLen)]

	res := must(eval.Run(ctx, artifact, base, eval.Options{Protocol: eval.All, SeqLen: *seqLen, IDs: ids, DocStart: text.DocStart, BOS: -1}))
	fmt.Printf("%d tokens: perplexity %.3f, base %.3f, KL %.5f [%.5f, %.5f], same top token %.2f %%\n", res.Tokens, res.Perplexity,
		*res.BasePerplexity, res.KL.Mean, res.KL.Low, res.KL.High, 100**res.Top1Agreement)
	if res.KL.Mean > *most {
		os.Exit(1)
	}
}

// open shows a checkpoint or artifact as a model of plain numbers.
func open(ctx context.Context, path string) formats.Checkpoint {
	return must(formats.Dense(must(formats.Open(ctx, path))))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
