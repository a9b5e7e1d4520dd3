package eval

import (
	"context"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
)

// keepBytes is how much of a model's weights Continue keeps in memory; a larger model is read anew for every token.
const keepBytes = 8 << 30

// Continue extends prompt greedily by up to n tokens and passes each to next, until next returns false or the context
// of the model is full. Among equal logits the lowest id wins.
func Continue(ctx context.Context, model formats.Checkpoint, prompt []int32, n, threads int, next func(id int32) bool) error {
	m, err := arch.Resolve(model.Meta().Config, model)
	if err != nil {
		return safeio.WithPath(err, model.Meta().Path)
	}
	if len(prompt) > m.MaxPos {
		return safeio.Limitf("the prompt of %d tokens is longer than the model's context of %d", len(prompt), m.MaxPos)
	}
	o := forward.LoadOptions{Pool: kernel.NewPool(threads)}
	head, err := forward.LoadHead(model, m, o)
	if err != nil {
		return safeio.WithPath(err, model.Meta().Path)
	}
	d := forward.NewDecoder(model, m, head, blockSource(model, m, o), o.Pool, min(len(prompt)+n, m.MaxPos))
	feed := prompt
	for range min(n, m.MaxPos-len(prompt)+1) { // the last token is only predicted, it needs no place in the context
		logits, err := d.Step(ctx, feed)
		if err != nil {
			return safeio.WithPath(err, model.Meta().Path)
		}
		best := 0
		for i, v := range logits {
			if v > logits[best] {
				best = i
			}
		}
		feed = []int32{int32(best)}
		if !next(feed[0]) {
			return nil
		}
	}
	return nil
}

// blockSource loads blocks, and keeps them when the whole model fits into keepBytes.
func blockSource(model formats.Checkpoint, m *arch.Model, o forward.LoadOptions) func(int) (*forward.Block, error) {
	var total int64
	for _, t := range model.Tensors() {
		n, _ := t.Bytes()
		total += n
	}
	blocks := make([]*forward.Block, len(m.Blocks))
	return func(layer int) (*forward.Block, error) {
		if blocks[layer] != nil {
			return blocks[layer], nil
		}
		b, err := forward.Load(model, m, layer, o)
		if err == nil && total <= keepBytes {
			blocks[layer] = b
		}
		return b, err
	}
}
