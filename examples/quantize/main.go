// This program quantizes a checkpoint to 4 bits with AWQ, calibrated on the user's own text, and prints what it cost:
//
//	go run ./examples/quantize -calib testdata/data/golm-calib.parquet testdata/golm-llama /tmp/golm-awq
//
// It does what `quantize MODEL --method awq --calib FILE -o OUT` does. Interrupt it and start it again: it continues.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/llmquant/quantize/calib"
	"github.com/llmquant/quantize/calib/tokenizer"
	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/quant"
)

func main() {
	text := flag.String("calib", calib.DefaultName, "calibration text: parquet, jsonl, json, txt, or default")
	samples := flag.Int("samples", 128, "windows to calibrate on")
	seqLen := flag.Int("seq-len", 512, "tokens per window")
	flag.Parse()
	if flag.NArg() != 2 {
		log.Fatal("usage: quantize [flags] MODEL OUT")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	model := must(formats.Open(ctx, flag.Arg(0)))
	defer model.Close()
	tok := must(tokenizer.Open(flag.Arg(0)))
	set := must(calib.Load(ctx, []string{*text}, calib.Options{Samples: *samples, SeqLen: *seqLen, ModelDir: flag.Arg(0)}, tok, tok.Vocab()))
	rep := must(quant.Run(ctx, model, quant.AWQ(4, 128), quant.Options{Out: flag.Arg(1), Calib: set, Events: show}))

	for _, role := range rep.Roles {
		fmt.Printf("%-10s %3d tensors %9d bytes %7.3f bits per weight\n", role.Role, role.Tensors, role.Bytes, role.BitsPerWeight)
	}
	fmt.Printf("%d -> %d bytes on disk, %.2f times smaller\n", rep.Totals.SourceBytes, rep.Totals.OutputBytes, rep.Totals.Ratio)
}

// show prints findings as they come; a bigger program would draw a progress bar from EventProgress.
func show(e quant.Event) {
	if e.Kind == quant.EventFinding || e.Kind == quant.EventFallback {
		log.Printf("%s: %s", e.Tensor, e.Message)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
