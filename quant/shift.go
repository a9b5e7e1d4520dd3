package quant

import (
	"context"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/gptq"
)

// maxHalves is the widest input for which statistics are kept per half of the windows. The halves decide how far the
// shift towards the full-precision model carries over to other text; wider inputs use a fixed share instead, because
// four more K×K matrices in float64 would not fit beside a block.
const maxHalves = 8192

// paired gathers, for the inputs of one kind, the second moments of the quantized stream and its distance from the
// full-precision stream, D = E[(x_f − x)xᵀ], with both streams on the same windows.
type paired struct {
	stream *stream
	kind   arch.InputKind
	sums   map[inputKey]*pairSum
	states [2]kernel.Mat // the quantized and the full-precision residual stream of the chunk, [chunk, hidden]
	full   []float32     // inputs of the full-precision stream for the chunk, [chunk, width]
	stray  []float32     // scratch: distance of the residual streams, [window, hidden]
	width  int
	first  int // token of the chunk's first row
}

// pairSum holds sums over the windows of even and of odd number; the odd ones join the even ones where there are no halves.
type pairSum struct {
	width  int
	h, d   [2][]float64 // [width, width]; h lower triangle
	tokens [2]int64
	halves bool
	// r is Σ (r_f − r)ᵀ·x, [hidden, width], for the linears that write to the residual stream r: their error can make up
	// for what the stream has strayed already.
	r   [2][]float64
	tmp []float32
}

// collectPair runs both streams up to the inputs of a kind and stores the statistics in l. original computes with the
// full-precision weights.
func (s *stream) collectPair(ctx context.Context, l *Layer, original *forward.Block, kind arch.InputKind) error {
	collect := s.runner.Collect
	if kind >= arch.MLPIn {
		collect = s.runner.CollectMLP
	}
	p := &paired{stream: s, kind: kind, sums: map[inputKey]*pairSum{}}
	sel := forward.Selection{Last: kind}
	err := s.hidden.chunks(ctx, func(lo, hi int) (err error) {
		p.first, p.full = lo, p.full[:0]
		if p.states[1], err = s.full.load(lo, hi); err != nil {
			return err
		}
		if err := collect(ctx, original, p.states[1], sel, p.keep); err != nil {
			return err
		}
		if p.states[0], err = s.hidden.load(lo, hi); err != nil {
			return err
		}
		return collect(ctx, l.Block, p.states[0], sel, p.add)
	})
	if err != nil {
		return err
	}
	for _, in := range l.Arch.Inputs() {
		key := inputKey{in.Kind, in.Expert}
		switch sum := p.sums[key]; {
		case in.Kind != kind:
		case sum != nil:
			l.stats[key] = sum.finish()
		default: // an expert that no token was routed to
			l.stats[key] = &Stats{K: in.Width, Gram: make([]float64, in.Width*in.Width)}
		}
	}
	return nil
}

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
	key := inputKey{in.Kind, in.Expert}
	sum := p.sums[key]
	if sum == nil {
		writes := 0
		if in.Expert < 0 && (p.kind == arch.OIn || p.kind == arch.DownIn) {
			writes = p.stream.hidden.cols
		}
		sum = newPairSum(in.X.Cols, in.Expert < 0, writes)
		p.sums[key] = sum
	}
	pool, seq := p.stream.job.pool, p.stream.runner.SeqLen()
	if in.Expert >= 0 {
		kernel.SyrkAddF64(pool, sum.h[0], sum.width, in.X)
		sum.tokens[0] += int64(in.X.Rows)
		return
	}
	for lo := 0; lo < in.X.Rows; { // window by window, as far as the sample goes
		token := p.first + in.First + lo
		hi := min(in.X.Rows, lo+seq-token%seq)
		half := 0
		if sum.halves {
			half = token / seq % 2
		}
		x := in.X.Slice(lo, hi, 0, in.X.Cols)
		kernel.SyrkAddF64(pool, sum.h[half], sum.width, x)
		sum.addDistance(pool, half, p.full[(in.First+lo)*p.width:(in.First+hi)*p.width], x)
		if sum.r[half] != nil {
			sum.addProduct(pool, sum.r[half], p.strayed(token, hi-lo), x)
		}
		sum.tokens[half] += int64(hi - lo)
		lo = hi
	}
}

// strayed returns how far the full-precision residual stream lies from the quantized one for n tokens, [n, hidden].
func (p *paired) strayed(token, n int) kernel.Mat {
	hidden, full := p.states[0], p.states[1]
	p.stray = p.stray[:0]
	for t := token - p.first; t < token-p.first+n; t++ {
		q := hidden.Row(t)
		for k, v := range full.Row(t) {
			p.stray = append(p.stray, v-q[k])
		}
	}
	return kernel.MatF32(n, hidden.Cols, p.stray)
}

func newPairSum(width int, distance bool, writes int) *pairSum {
	s := &pairSum{width: width, halves: distance && width <= maxHalves}
	for half := range s.h {
		if half == 1 && !s.halves {
			break
		}
		s.h[half] = make([]float64, width*width)
		if distance {
			s.d[half] = make([]float64, width*width)
		}
		if writes > 0 {
			s.r[half] = make([]float64, writes*width)
		}
	}
	if distance {
		s.tmp = make([]float32, max(width, writes)*width)
	}
	return s
}

// addDistance adds (x_f − x)ᵀ·x to the half's D. full is overwritten.
func (s *pairSum) addDistance(pool *kernel.Pool, half int, full []float32, x kernel.Mat) {
	for i := range x.Rows {
		row := full[i*s.width : (i+1)*s.width]
		for k, v := range x.Row(i) {
			row[k] -= v
		}
	}
	s.addProduct(pool, s.d[half], kernel.MatF32(x.Rows, s.width, full), x)
}

// addProduct adds aᵀ·x to sum, [columns of a, width].
func (s *pairSum) addProduct(pool *kernel.Pool, sum []float64, a, x kernel.Mat) {
	kernel.GemmTN(pool, kernel.MatF32(a.Cols, s.width, s.tmp[:a.Cols*s.width]), a, x, false)
	pool.Run(a.Cols, func(i int) {
		for j := i * s.width; j < (i+1)*s.width; j++ {
			sum[j] += float64(s.tmp[j])
		}
	})
}

// finish turns sums into averages.
func (s *pairSum) finish() *Stats {
	st := &Stats{K: s.width, Tokens: s.tokens[0] + s.tokens[1]}
	if s.halves && s.tokens[0] > 0 && s.tokens[1] > 0 {
		st.half = &gptq.Half{Weight: float64(s.tokens[0]) / float64(st.Tokens),
			H: scaled(s.h[0], nil, s.tokens[0]), D: scaled(s.d[0], nil, s.tokens[0])}
		mirror(st.half.H, s.width)
		if s.r[0] != nil {
			st.halfDrift = scaled(s.r[0], nil, s.tokens[0])
		}
	}
	st.Gram = scaled(s.h[0], s.h[1], st.Tokens)
	mirror(st.Gram, s.width)
	if s.d[0] != nil {
		st.shift = scaled(s.d[0], s.d[1], st.Tokens)
	}
	if s.r[0] != nil {
		st.drift = scaled(s.r[0], s.r[1], st.Tokens)
	}
	return st
}

// scaled returns (a+b)/n; b may be nil.
func scaled(a, b []float64, n int64) []float64 {
	out := make([]float64, len(a))
	for i, v := range a {
		if b != nil {
			v += b[i]
		}
		if n > 0 {
			out[i] = v / float64(n)
		}
	}
	return out
}

// mirror copies the lower triangle to the upper one.
func mirror(m []float64, n int) {
	for i := range n {
		for k := range i {
			m[k*n+i] = m[i*n+k]
		}
	}
}
