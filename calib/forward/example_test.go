package forward_test

import (
	"context"
	"fmt"
	"math"
	"os"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safetensors"
	"github.com/llmquant/quantize/internal/kernel"
)

// The perplexity of a tiny model on two windows of 16 tokens, one layer in memory at a time.
func Example() {
	dir := "../../testdata/families/llama-bias/"
	src, err := safetensors.Open(dir+"model.safetensors", safeio.DefaultLimits())
	check(err)
	defer src.Close()
	config, err := os.ReadFile(dir + "config.json")
	check(err)
	model, err := arch.Resolve(config, src)
	check(err)

	ids := make([]int32, 33)
	for i := range ids {
		ids[i] = int32(i * 7 % model.Vocab)
	}
	ctx := context.Background()
	run := forward.NewRunner(model, kernel.NewPool(2), 2, 16)
	hidden := kernel.MatF32(32, model.Hidden, make([]float32, 32*model.Hidden))
	check(run.Embed(hidden, ids[:32], src))
	for layer := range model.Blocks {
		block, err := forward.Load(src, model, layer, forward.LoadOptions{})
		check(err)
		check(run.Forward(ctx, block, hidden, nil))
	}
	head, err := forward.LoadHead(src, model, forward.LoadOptions{})
	check(err)
	scores, err := run.Loss(ctx, head, hidden, ids[1:])
	check(err)
	sum := 0.0
	for _, s := range scores {
		sum += s.NLL
	}
	fmt.Printf("perplexity %.1f\n", math.Exp(sum/float64(len(scores))))
	// Output: perplexity 221387.8
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
