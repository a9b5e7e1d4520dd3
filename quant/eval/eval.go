package eval

import (
	"context"
	"math"
	"sort"
	"time"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
)

// Options say what is measured.
type Options struct {
	Protocol Protocol
	SeqLen   int
	Stride   int // 0: windows do not overlap
	BOS      int32
	IDs      []int32 // the joined documents
	DocStart []int   // index of each document's first token in IDs, ascending
	Threads  int
	Memory   int64 // bytes the run may use, 0: no limit of its own; with less, fewer windows go through a block at a time
	// Progress is told the fraction done, when it is not nil.
	Progress func(done float64)
}

// Result is the outcome of Run; the JSON form is the contract of `quantize eval --json`.
type Result struct {
	Schema           string    `json:"schema"` // "quantize-eval/1"
	Model            string    `json:"model"`
	Base             string    `json:"base,omitempty"`
	Data             []string  `json:"data"`
	SeqLen           int       `json:"seq_len"`
	Protocol         Protocol  `json:"protocol"`
	Stride           int       `json:"stride"`
	Documents        int       `json:"documents"`
	Windows          int       `json:"windows"`
	Tokens           int       `json:"tokens"`
	CrossEntropy     float64   `json:"cross_entropy"`
	Perplexity       float64   `json:"perplexity"`
	BaseCrossEntropy *float64  `json:"base_cross_entropy,omitempty"`
	BasePerplexity   *float64  `json:"base_perplexity,omitempty"`
	KL               *KL       `json:"kl,omitempty"`
	Top1Agreement    *float64  `json:"top1_agreement,omitempty"`
	PerplexityRatio  *Interval `json:"perplexity_ratio,omitempty"`
	Gates            []Gate    `json:"gates"`
	Seconds          float64   `json:"seconds"`
}

// Gate is one limit that the result was held against.
type Gate struct {
	Name  string  `json:"name"`
	Limit float64 `json:"limit"`
	Value float64 `json:"value"`
	OK    bool    `json:"ok"`
}

// Run scores model, and base beside it when base is not nil, on the windows that o describes. Both must read dense
// tensors (formats.Dense).
func Run(ctx context.Context, model, base formats.Checkpoint, o Options) (*Result, error) {
	start := time.Now()
	ws, err := windows(&o)
	if err != nil {
		return nil, err
	}
	if len(ws) == 0 {
		return nil, safeio.Corruptf("%d tokens do not fill one window of %d", len(o.IDs), o.SeqLen)
	}
	e := &evaluation{ws: ws, o: o, pool: kernel.NewPool(o.Threads)}
	if err := e.add(model); err != nil {
		return nil, err
	}
	if base != nil {
		if err := e.add(base); err != nil {
			return nil, err
		}
		if a, b := e.sides[0].arch.Vocab, e.sides[1].arch.Vocab; a != b {
			return nil, safeio.Unsupportedf("the model has a vocabulary of %d, the base of %d: their predictions cannot be compared", a, b)
		}
	}
	s := &scores{}
	for first := 0; first < len(ws); {
		last := first + 1 // windows of one length run together
		for last < len(ws) && len(ws[last].ids) == len(ws[first].ids) && last-first < e.batch(len(ws[first].ids)) {
			last++
		}
		if err := e.run(ctx, first, last, s); err != nil {
			return nil, err
		}
		first = last
	}
	res := s.result(o, base != nil)
	res.Windows = len(ws)
	res.Seconds = time.Since(start).Seconds()
	return res, nil
}

// evaluation is one Run in progress.
type evaluation struct {
	ws    []window
	o     Options
	pool  *kernel.Pool
	sides []*side // the model, then the base
}

// side is one of the two models.
type side struct {
	src  formats.Checkpoint
	arch *arch.Model
	head *forward.Head
}

func (e *evaluation) add(src formats.Checkpoint) error {
	m, err := arch.Resolve(src.Meta().Config, src)
	if err != nil {
		return safeio.WithPath(err, src.Meta().Path)
	}
	if e.o.SeqLen > m.MaxPos {
		return safeio.Unsupportedf("windows of %d tokens are longer than the context of %d of %s", e.o.SeqLen, m.MaxPos, src.Meta().Path)
	}
	for i, id := range e.o.IDs {
		if id < 0 || int(id) >= m.Vocab {
			return safeio.Corruptf("token %d of the data has id %d, outside the vocabulary of %d", i, id, m.Vocab)
		}
	}
	head, err := forward.LoadHead(src, m, forward.LoadOptions{Pool: e.pool})
	if err != nil {
		return safeio.WithPath(err, src.Meta().Path)
	}
	e.sides = append(e.sides, &side{src: src, arch: m, head: head})
	return nil
}

// batchBytes bounds the hidden states of one batch of windows; each block is loaded once per batch.
const batchBytes = 1 << 30

// memoryShare is the part of the memory allowed that hidden states may take.
const memoryShare = 4

// batch is how many windows of a number of tokens go through the models together. Windows do not see each other, so it
// is no part of the result.
func (e *evaluation) batch(tokens int) int {
	hidden := 0
	for _, s := range e.sides {
		hidden += s.arch.Hidden
	}
	most := int64(batchBytes)
	if e.o.Memory > 0 {
		most = min(most, e.o.Memory/memoryShare)
	}
	return max(1, int(most/(4*int64(hidden)*int64(tokens))))
}

// run scores windows [first, last), all of one length.
func (e *evaluation) run(ctx context.Context, first, last int, s *scores) error {
	seq := len(e.ws[first].ids)
	var ids []int32
	for _, w := range e.ws[first:last] {
		ids = append(ids, w.ids...)
	}
	hidden := make([]kernel.Mat, len(e.sides))
	var runner *forward.Runner
	for i, side := range e.sides {
		runner = forward.NewRunner(side.arch, e.pool, last-first, seq)
		hidden[i] = kernel.MatF32(len(ids), side.arch.Hidden, make([]float32, len(ids)*side.arch.Hidden))
		if err := runner.Embed(hidden[i], ids, side.src); err != nil {
			return safeio.WithPath(err, side.src.Meta().Path)
		}
		for layer := range side.arch.Blocks {
			b, err := forward.Load(side.src, side.arch, layer, forward.LoadOptions{Pool: e.pool})
			if err != nil {
				return safeio.WithPath(err, side.src.Meta().Path)
			}
			if err := runner.Forward(ctx, b, hidden[i], nil); err != nil {
				return safeio.WithPath(err, side.src.Meta().Path)
			}
			e.progress(first, last, float64(i*len(side.arch.Blocks)+layer+1)/float64(len(e.sides)*len(side.arch.Blocks)+1))
		}
	}
	for i, w := range e.ws[first:last] {
		if err := e.score(ctx, runner, w, first+i, i*seq, hidden, s); err != nil {
			return err
		}
	}
	e.progress(first, last, 1)
	return nil
}

func (e *evaluation) progress(first, last int, part float64) {
	if e.o.Progress != nil {
		e.o.Progress((float64(first) + part*float64(last-first)) / float64(len(e.ws)))
	}
}

// score compares the predictions of one window whose hidden states start at row.
func (e *evaluation) score(ctx context.Context, r *forward.Runner, w window, index, row int, hidden []kernel.Mat, s *scores) error {
	lo, hi := scoredRange(w.targets)
	at := make([]kernel.Mat, len(hidden))
	for i, h := range hidden {
		at[i] = h.Slice(row+lo, row+hi, 0, h.Cols)
	}
	var got []forward.Score
	var err error
	if len(e.sides) == 1 {
		got, err = r.Loss(ctx, e.sides[0].head, at[0], w.targets[lo:hi])
	} else {
		got, err = r.Compare(ctx, e.sides[1].head, e.sides[0].head, at[1], at[0], w.targets[lo:hi])
	}
	if err != nil {
		return err
	}
	for i, g := range got {
		if math.IsNaN(g.NLL) || math.IsInf(g.NLL, 0) {
			return safeio.Corruptf("window %d: the model's prediction of token %d is not finite", index, lo+i+1)
		}
		s.add(g, index, e.document(w.start+lo+i+1), len(e.sides) > 1)
	}
	return nil
}

// scoredRange returns the positions that are scored, a contiguous range in every protocol.
func scoredRange(targets []int32) (lo, hi int) {
	for lo = 0; targets[lo] < 0; lo++ {
	}
	for hi = len(targets); targets[hi-1] < 0; hi-- {
	}
	return lo, hi
}

// document returns the document that holds the token at a stream index.
func (e *evaluation) document(token int) int {
	return sort.SearchInts(e.o.DocStart, token+1) - 1
}
