package forward

import (
	"context"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/kernel"
)

// Decoder continues a text token by token with a cache of keys and values. It is made for looking at a quantized
// model's answers, not for serving.
type Decoder struct {
	run    *Runner
	src    tensor.Source
	head   *Head
	blocks func(layer int) (*Block, error)
	k, v   [][]float32 // per layer [capacity, kv_heads·head_dim]
	used   int         // tokens in the cache
	logits []float32
}

// NewDecoder prepares to decode up to capacity tokens, prompt included. blocks returns a layer's weights whenever they
// are needed: from memory, or loading them anew for a model that does not fit. A dynamic rotary embedding is fixed for
// a text of capacity tokens from the start.
func NewDecoder(src tensor.Source, m *arch.Model, head *Head, blocks func(layer int) (*Block, error), pool *kernel.Pool, capacity int) *Decoder {
	d := &Decoder{run: NewRunner(m, pool, 1, capacity), src: src, head: head, blocks: blocks}
	d.k, d.v = make([][]float32, len(m.Blocks)), make([][]float32, len(m.Blocks))
	for i := range m.Blocks {
		d.k[i] = make([]float32, capacity*d.run.size.kv)
		d.v[i] = make([]float32, capacity*d.run.size.kv)
	}
	d.logits = make([]float32, head.W.Rows)
	return d
}

// Step appends ids to the text and returns the logits of the token that follows, valid until the next Step.
func (d *Decoder) Step(ctx context.Context, ids []int32) ([]float32, error) {
	n := len(ids)
	if n == 0 || d.used+n > d.run.size.seq {
		return nil, safeio.Limitf("%d tokens after %d exceed the decoder's capacity of %d", n, d.used, d.run.size.seq)
	}
	x := kernel.MatF32(n, d.run.size.hidden, make([]float32, n*d.run.size.hidden))
	if err := d.run.Embed(x, ids, d.src); err != nil {
		return nil, err
	}
	for layer := range d.k {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b, err := d.blocks(layer)
		if err != nil {
			return nil, err
		}
		d.attention(b, x, layer)
		if err := d.run.mlpHalf(b, x, &pass{update: true}); err != nil {
			return nil, err
		}
		if err := checkFinite(d.run.pool, b, x, d.used); err != nil {
			return nil, err
		}
	}
	d.used += n
	d.run.Logits(d.head, kernel.MatF32(1, len(d.logits), d.logits), rows(x, n-1, n))
	return d.logits, nil
}

// attention adds the attention of new tokens x over the cache and themselves to x.
func (d *Decoder) attention(b *Block, x kernel.Mat, layer int) {
	r := d.run
	n, end, width := x.Rows, d.used+x.Rows, r.size.kv
	xnorm := r.normed(x, b.AttnNorm)
	k, v := kernel.MatF32(end, width, d.k[layer][:end*width]), kernel.MatF32(end, width, d.v[layer][:end*width])
	q, fresh := buffer(&r.q, n, r.size.q), rows(k, d.used, end)
	in := r.input(xnorm)
	r.apply(&b.Q, q, in, false)
	r.apply(&b.K, fresh, in, false)
	r.apply(&b.V, rows(v, d.used, end), in, false)
	forRows(r.pool, n, func(i int) { r.turn(fresh.Row(i), b.KNorm, d.used+i) })
	heads := width / r.size.headDim
	r.pool.Run(heads*((n+r.size.tileTokens-1)/r.size.tileTokens), func(task int) {
		a := span{r: r, b: b, head: task % heads, q: q, k: k, v: v}
		t0 := task / heads * r.size.tileTokens
		a.attend(t0, min(n, t0+r.size.tileTokens))
	})
	r.apply(&b.O, x, r.input(q), true)
}

// Greedy appends the most probable token, the lowest id among equals, up to n times or until stop says so, and returns
// what was appended. The stopping token is included.
func (d *Decoder) Greedy(ctx context.Context, prompt []int32, n int, stop func(id int32) bool) ([]int32, error) {
	var out []int32
	next := prompt
	for range n {
		logits, err := d.Step(ctx, next)
		if err != nil {
			return out, err
		}
		best := 0
		for i, x := range logits {
			if x > logits[best] {
				best = i
			}
		}
		out = append(out, int32(best))
		if stop != nil && stop(int32(best)) {
			break
		}
		next = out[len(out)-1:]
	}
	return out, nil
}
