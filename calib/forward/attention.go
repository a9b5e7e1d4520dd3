package forward

import (
	"math"

	"github.com/llmquant/quantize/internal/kernel"
)

// tile is one thread's scratch for attention: up to tileTokens queries of the heads that share a key head.
type tile struct {
	q      []float32 // [tokens·shared, head_dim] rotated and scaled queries
	o      []float32 // [tokens·shared, head_dim] outputs
	scores []float32 // [tokens·shared, keys]
}

// heads returns the concatenated outputs of all heads, [tokens, heads·head_dim], for normalised inputs of whole
// windows, in the runner's q buffer.
func (r *Runner) heads(b *Block, xnorm kernel.Mat) kernel.Mat {
	n := xnorm.Rows
	q, k, v := buffer(&r.q, n, r.size.q), buffer(&r.k, n, r.size.kv), buffer(&r.v, n, r.size.kv)
	in := r.input(xnorm)
	r.apply(&b.Q, q, in, false)
	r.apply(&b.K, k, in, false)
	r.apply(&b.V, v, in, false)
	seq := r.size.seq
	forRows(r.pool, n, func(i int) { r.turn(k.Row(i), b.KNorm, i%seq) })

	kvHeads := r.size.kv / r.size.headDim
	blocks := (min(seq, n) + r.size.tileTokens - 1) / r.size.tileTokens
	windows := (n + seq - 1) / seq
	r.pool.Run(windows*kvHeads*blocks, func(task int) {
		// Late query blocks see the most keys: they go first, so that the threads finish together.
		block := blocks - 1 - task/(windows*kvHeads)
		window, head := task%windows, task/windows%kvHeads
		lo := window * seq
		hi := min(n, lo+seq)
		a := span{r: r, b: b, head: head, q: rows(q, lo, hi), k: rows(k, lo, hi), v: rows(v, lo, hi)}
		if t0 := block * r.size.tileTokens; t0 < hi-lo {
			a.attend(t0, min(hi-lo, t0+r.size.tileTokens))
		}
	})
	return q
}

// turn normalises (where the model does) and rotates every head of one token's queries or keys.
func (r *Runner) turn(row, norm []float32, position int) {
	d := r.size.headDim
	for h := 0; h < len(row); h += d {
		head := row[h : h+d]
		if norm != nil {
			kernel.RMSNorm(head, head, norm, float32(r.model.Eps))
		}
		r.rope.rotate(head, position)
	}
}

// span is one key head of one window: the queries that attend are the last q.Rows of k.Rows positions.
type span struct {
	r    *Runner
	b    *Block
	head int        // key head
	q    kernel.Mat // [queries, heads·head_dim], replaced by the outputs
	k, v kernel.Mat // [keys, kv_heads·head_dim], keys already rotated
}

// attend computes the outputs of queries [t0, t1) for the query heads that share the span's key head. Keys behind the
// last query and before the first one's window are left out; the others are masked.
func (a *span) attend(t0, t1 int) {
	s := &a.r.size
	d, width := s.headDim, s.shared*s.headDim
	past := a.k.Rows - a.q.Rows // positions before the first query
	n := (t1 - t0) * s.shared
	first := 0
	if w := a.b.Arch.SlidingWindow; w > 0 {
		first = max(0, past+t0-w+1)
	}
	keys := past + t1 - first

	t := <-a.r.tiles
	defer func() { a.r.tiles <- t }()
	q, o := buffer(&t.q, n, d), buffer(&t.o, n, d)
	scores := buffer(&t.scores, n, keys)
	scale := float32(1 / math.Sqrt(float64(d)))
	for i := t0; i < t1; i++ {
		row := q.F32[(i-t0)*width:][:width]
		copy(row, a.q.Row(i)[a.head*width:])
		a.r.turn(row, a.b.QNorm, past+i)
		kernel.Scale(row, scale)
	}
	kernel.GemmNT(nil, scores, q, a.k.Slice(first, first+keys, a.head*d, (a.head+1)*d), false)
	for i := range n {
		a.mask(scores.Row(i), past+t0+i/s.shared, first)
	}
	kernel.GemmNN(nil, o, scores, a.v.Slice(first, first+keys, a.head*d, (a.head+1)*d), false)
	for i := t0; i < t1; i++ {
		copy(a.q.Row(i)[a.head*width:][:width], o.F32[(i-t0)*width:])
	}
}

// mask turns the scores of a query at a position into probabilities over the keys it may see; row[0] is key first.
func (a *span) mask(row []float32, position, first int) {
	lo, hi := 0, position+1-first
	if w := a.b.Arch.SlidingWindow; w > 0 {
		lo = max(0, position-w+1-first)
	}
	clear(row[:lo])
	kernel.Softmax(row[lo:hi])
	clear(row[hi:])
}
