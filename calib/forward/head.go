package forward

import (
	"context"
	"math"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/kernel"
)

// Head turns hidden states into logits: W·norm(x).
type Head struct {
	Norm []float32  // [hidden]
	W    kernel.Mat // [vocab, hidden]
}

// LoadHead reads the final norm and the output matrix (the embedding when they are tied).
func LoadHead(src tensor.Source, m *arch.Model, o LoadOptions) (*Head, error) {
	r := reader{src: src, o: o}
	return &Head{Norm: r.vector(m.FinalNorm), W: r.matrix(m.Head)}, r.err
}

// Logits computes dst [rows, vocab] for hidden states [rows, hidden].
func (r *Runner) Logits(h *Head, dst, hidden kernel.Mat) {
	kernel.GemmNT(r.pool, dst, r.normed(hidden, h.Norm), h.W, false)
}

// Score is what evaluation knows about one token. All logarithms are natural.
type Score struct {
	NLL     float64 // −ln p(target)
	BaseNLL float64 // the same under the base model (Compare)
	KL      float64 // Σ p_base·(ln p_base − ln p) over the vocabulary (Compare)
	Top     int32   // token with the largest logit, the lowest id among equals
	BaseTop int32   // the same under the base model (Compare)
}

// Loss scores targets[i], the token that follows row i of hidden. Logits exist only for a few hundred tokens and a few
// thousand words of the vocabulary at a time.
func (r *Runner) Loss(ctx context.Context, h *Head, hidden kernel.Mat, targets []int32) ([]Score, error) {
	return r.score(ctx, []*Head{h}, []kernel.Mat{hidden}, targets)
}

// Compare scores targets under a model and a base model with the same vocabulary, from their hidden states for the
// same tokens.
func (r *Runner) Compare(ctx context.Context, base, model *Head, baseHidden, hidden kernel.Mat, targets []int32) ([]Score, error) {
	if base.W.Rows != model.W.Rows {
		return nil, safeio.Unsupportedf("the base model has %d tokens, the model %d: their distributions cannot be compared", base.W.Rows, model.W.Rows)
	}
	return r.score(ctx, []*Head{model, base}, []kernel.Mat{hidden, baseHidden}, targets)
}

// The tile of logits that is held at a time. Part of the definition of a score, as sums follow it.
const (
	lossRows  = 512
	lossWords = 4096
)

// score walks tiles of logits once. heads[0] is the model, heads[1] the base model, if any.
func (r *Runner) score(ctx context.Context, heads []*Head, hidden []kernel.Mat, targets []int32) ([]Score, error) {
	vocab := heads[0].W.Rows
	for i, t := range targets {
		if t < 0 || int(t) >= vocab {
			return nil, safeio.Corruptf("token id %d at position %d is outside the vocabulary of %d", t, i, vocab)
		}
	}
	scores := make([]Score, len(targets))
	logits := make([]kernel.Mat, len(heads))
	norms, tiles := make([][]float32, len(heads)), make([][]float32, len(heads))
	for lo := 0; lo < len(targets); lo += lossRows {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := min(len(targets)-lo, lossRows)
		acc := make([]tally, n)
		for i, h := range heads {
			x := buffer(&norms[i], n, r.model.Hidden)
			r.normInto(x, rows(hidden[i], lo, lo+n), h.Norm)
		}
		for v := 0; v < vocab; v += lossWords {
			words := min(vocab-v, lossWords)
			for i, h := range heads {
				logits[i] = buffer(&tiles[i], n, words)
				kernel.GemmNT(r.pool, logits[i], kernel.MatF32(n, r.model.Hidden, norms[i]), rows(h.W, v, v+words), false)
			}
			forRows(r.pool, n, func(i int) { acc[i].add(logits, i, v, targets[lo+i]) })
		}
		for i := range acc {
			scores[lo+i] = acc[i].score(len(heads) > 1)
		}
	}
	return scores, nil
}

// tally accumulates the softmax sums of one token over tiles of the vocabulary, for the model and the base model.
type tally struct {
	max    [2]float32 // largest logit so far
	sum    [2]float64 // Σ e^(logit−max)
	cross  float64    // Σ e^(base−max base)·(base−model)
	target [2]float32
	top    [2]int32
	begun  bool
}

// add takes row i of tiles that start at word v.
func (t *tally) add(logits []kernel.Mat, i, v int, target int32) {
	for m := range logits {
		row := logits[m].Row(i)
		top := 0
		for j, x := range row {
			if x > row[top] {
				top = j
			}
		}
		if k := int(target) - v; k >= 0 && k < len(row) {
			t.target[m] = row[k]
		}
		if t.begun && row[top] <= t.max[m] {
			continue
		}
		if t.begun {
			shrink := float64(exp1(t.max[m] - row[top]))
			t.sum[m] *= shrink
			if m == 1 {
				t.cross *= shrink
			}
		}
		t.max[m], t.top[m] = row[top], int32(v+top)
	}
	t.begun = true
	if len(logits) == 2 {
		t.cross += crossSum(logits[1].Row(i), logits[0].Row(i), t.max[1])
	}
	for m := range logits { // the rows end as probabilities, so this comes last
		row := logits[m].Row(i)
		for j := range row {
			row[j] -= t.max[m]
		}
		kernel.Exp(row, row)
		t.sum[m] += float64(kernel.Sum(row))
	}
}

// crossSum returns Σ e^(base−top)·(base−model).
func crossSum(base, model []float32, top float32) float64 {
	var e, d [256]float32
	sum := 0.0
	for lo := 0; lo < len(base); lo += len(e) {
		n := min(len(base)-lo, len(e))
		for j := range n {
			e[j] = base[lo+j] - top
			d[j] = base[lo+j] - model[lo+j]
		}
		kernel.Exp(e[:n], e[:n])
		sum += kernel.Dot64(e[:n], d[:n])
	}
	return sum
}

func exp1(x float32) float32 {
	v := [1]float32{x}
	kernel.Exp(v[:], v[:])
	return v[0]
}

func (t *tally) score(base bool) Score {
	logSum := float64(t.max[0]) + math.Log(t.sum[0])
	s := Score{NLL: logSum - float64(t.target[0]), Top: t.top[0]}
	if base {
		baseLogSum := float64(t.max[1]) + math.Log(t.sum[1])
		s.BaseNLL, s.BaseTop = baseLogSum-float64(t.target[1]), t.top[1]
		s.KL = t.cross/t.sum[1] - baseLogSum + logSum
	}
	return s
}
