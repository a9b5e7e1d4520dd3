package quant

import (
	"context"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/internal/kernel"
)

const (
	// maxHalves is the widest input for which statistics are kept per half of the windows. The halves decide how far the
	// shift towards the full-precision model carries over to other text; wider inputs use a fixed share instead, because
	// more K×K matrices would not fit beside a block.
	maxHalves = 8192
	// shiftTokens is about how many tokens the distance from the full-precision model comes from at most. It takes a second
	// stream through the block and products twice as large as the Hessian's; a quarter of the tokens costs some 2 % of KL
	// where that leaves 64 per channel, an eighth some 6 %.
	shiftTokens = 1 << 17
)

// shiftEvery says that one window in so many runs through the full-precision model.
func shiftEvery(windows, seqLen int) int { return max(1, windows*seqLen/shiftTokens) }

// shiftWindows is the number of those among the first n windows.
func (s *stream) shiftWindows(n int) int { return (n + s.every - 1) / s.every }

// everyWindow returns the ids of those windows.
func everyWindow(ids []int32, every, seqLen int) (some []int32) {
	for i := 0; i < len(ids); i += every * seqLen {
		some = append(some, ids[i:i+seqLen]...)
	}
	return some
}

// paired gathers, for the inputs of one kind, the second moments of the quantized stream and, where that runs, its distance
// from the full-precision stream, D = E[(x_f − x)xᵀ], on the windows that both streams pass.
type paired struct {
	stream *stream
	kind   arch.InputKind
	sums   map[inputKey]*pairSum
	over   forward.Products // of tokens
	full   []float32        // inputs of the full-precision stream for the chunk, [tokens, width]
	before []float32        // its states, [tokens, hidden], as they were where the pass has changed them
	hidden kernel.Mat       // states of the quantized stream, [chunk, hidden]
	window int              // of the full-precision stream, in which both begin
	stray  []float32        // scratch: distance of the residual streams, [window, hidden]
	width  int
	first  int // token of the chunk's first row
}

func newPaired(s *stream, kind arch.InputKind) *paired {
	return &paired{stream: s, kind: kind, sums: map[inputKey]*pairSum{}, over: s.job.products()}
}

// collectPair runs both streams up to the inputs of a kind and stores the statistics in l. original computes with the
// full-precision weights. The full-precision stream need not wait for the linears behind an input to be quantized: it
// passes each half of the block at once.
func (s *stream) collectPair(ctx context.Context, l *Layer, original *forward.Block, kind arch.InputKind) error {
	collect := s.runner.Collect
	if kind >= arch.MLPIn {
		collect = s.runner.CollectMLP
	}
	p := newPaired(s, kind)
	err := s.hidden.chunks(ctx, func(lo, hi int) (err error) {
		if err := p.fullChunk(ctx, original, lo, hi); err != nil {
			return err
		}
		if p.hidden, err = s.hidden.load(lo, hi); err != nil {
			return err
		}
		return collect(ctx, l.Block, p.hidden, forward.Selection{Last: kind}, p.add)
	})
	if err != nil {
		return err
	}
	if s.shifted() && p.writes() {
		s.full.from = s.full.to
	}
	for _, in := range l.Arch.Inputs() {
		key := inputKey{in.Kind, in.Expert}
		switch sum := p.sums[key]; {
		case in.Kind != kind:
		case sum != nil:
			l.stats[key] = sum.finish(s.job.pool)
		default: // an expert that no token was routed to
			l.stats[key] = &Stats{K: in.Width, Gram: make([]float64, in.Width*in.Width)}
		}
	}
	return nil
}

// fullChunk passes the full-precision stream's share of tokens [lo, hi) up to the inputs, or past them.
func (p *paired) fullChunk(ctx context.Context, original *forward.Block, lo, hi int) error {
	s := p.stream
	if !s.shifted() {
		p.first = lo
		return nil
	}
	x, err := p.loadFull(lo, hi)
	if err != nil || x.Rows == 0 {
		return err
	}
	sel := forward.Selection{Last: p.kind}
	switch p.kind {
	case arch.AttnIn:
		return s.runner.Collect(ctx, original, x, sel, p.keep)
	case arch.MLPIn:
		return s.runner.CollectMLP(ctx, original, x, sel, p.keep)
	}
	p.before = append(p.before[:0], x.F32[:x.Rows*x.Cols]...)
	half := s.runner.ForwardAttn
	if p.kind == arch.DownIn {
		half = s.runner.ForwardMLP
	}
	if err := half(ctx, original, x, p.keep); err != nil {
		return err
	}
	return s.full.store(x, p.window*s.runner.SeqLen())
}

// loadFull begins a chunk and returns the full-precision stream's share of tokens [lo, hi).
func (p *paired) loadFull(lo, hi int) (kernel.Mat, error) {
	s, seq := p.stream, p.stream.runner.SeqLen()
	p.first, p.full, p.window = lo, p.full[:0], s.shiftWindows(lo/seq)
	return s.full.load(p.window*seq, s.shiftWindows(hi/seq)*seq)
}

// writes reports whether linears that read this kind write to the residual stream.
func (p *paired) writes() bool { return p.kind == arch.OIn || p.kind == arch.DownIn }

// keep remembers what the full-precision stream feeds. Experts see tokens of their own in each stream; for them no
// distance is gathered.
func (p *paired) keep(in forward.Sample) {
	if in.Kind != p.kind || in.Expert >= 0 {
		return
	}
	p.width = in.X.Cols
	for i := range in.X.Rows {
		p.full = append(p.full, in.X.Row(i)...)
	}
}

// add takes the same tokens of the quantized stream.
func (p *paired) add(in forward.Sample) {
	if in.Kind != p.kind {
		return
	}
	s := p.stream
	s.replay.keep(s.job.pool, in, p.first+in.First)
	key := inputKey{in.Kind, in.Expert}
	sum := p.sums[key]
	if sum == nil {
		writes := 0
		distance := s.shifted() && in.Expert < 0
		if distance && p.writes() {
			writes = s.hidden.cols
		}
		sum = newPairSum(in.X.Cols, distance, writes, s.job.recipe.Needs().Has(NeedGram32))
		p.sums[key] = sum
	}
	seq := s.runner.SeqLen()
	if in.Expert >= 0 || !s.shifted() {
		sum.h[0].add(&p.over, in.X)
		sum.tokens[0] += int64(in.X.Rows)
		return
	}
	for lo := 0; lo < in.X.Rows; { // window by window, as far as the sample goes
		token := p.first + in.First + lo
		hi := min(in.X.Rows, lo+seq-token%seq)
		window, half := token/seq, 0
		if sum.halves {
			half = window / s.every % 2
		}
		x := in.X.Slice(lo, hi, 0, in.X.Cols)
		sum.h[half].add(&p.over, x)
		sum.tokens[half] += int64(hi - lo)
		if window%s.every == 0 {
			p.addDistance(sum, half, (window/s.every-p.window)*seq+token%seq, token, x)
		}
		lo = hi
	}
}

// addDistance adds (x_f − x)ᵀ·x, and (r_f − r)ᵀ·x where the linears write to the residual stream r, for tokens from token
// on, which begin at row of the full-precision chunk.
func (p *paired) addDistance(sum *pairSum, half, row, token int, x kernel.Mat) {
	pool, width, hidden := p.stream.job.pool, p.width, p.hidden
	full := kernel.MatF32(x.Rows, width, p.full[row*width:(row+x.Rows)*width])
	pool.Run(x.Rows, func(i int) { kernel.AddScaled(full.Row(i), x.Row(i), -1) })
	p.over.Cross(kernel.MatF32(width, width, sum.d[half]), full, x)
	if sum.r[half] != nil {
		p.stray = append(p.stray[:0], p.before[row*hidden.Cols:(row+x.Rows)*hidden.Cols]...)
		stray := kernel.MatF32(x.Rows, hidden.Cols, p.stray)
		pool.Run(x.Rows, func(i int) { kernel.AddScaled(stray.Row(i), hidden.Row(token-p.first+i), -1) })
		p.over.Cross(kernel.MatF32(hidden.Cols, width, sum.r[half]), stray, x)
	}
	sum.pairs[half] += int64(x.Rows)
}
