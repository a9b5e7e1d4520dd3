package quant

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid/ggml"
)

// AWQOptions are the settings of activation-aware scaling. The zero value is the default.
type AWQOptions struct {
	Grid      int  // ratios tried per pair, 0: 20
	NoValueO  bool // leave v → o alone
	Surrogate bool // judge attention and MLP scales by their linears' own output errors instead of re-running the module
	Passes    int  // of descent after rounding, 0: 4, below 0: none
}

// passes is the number of descent passes.
func (o AWQOptions) passes() int {
	if o.Passes == 0 {
		return descentPasses
	}
	return max(o.Passes, 0)
}

// descentPasses take most of what descent brings: the first three quarters of it, four all but a few hundredths.
const descentPasses = 4

// AWQScaling multiplies the input channels of linears that matter more than they weigh by s > 1 before rounding, and
// divides whatever produces these channels by s, so that the function stays the same (Lin et al., Activation-aware
// Weight Quantization, 2306.00978). s = E|x|^r / mean|w|^(1−r), r searched per pair; s = 1 is always a candidate.
type AWQScaling struct{ Options AWQOptions }

// Name implements Transform.
func (a AWQScaling) Name() string { return "awq" }

// Needs implements Transform.
func (a AWQScaling) Needs() Need {
	n := NeedAbsMean | NeedGram
	if !a.Options.Surrogate {
		n |= NeedModules
	}
	return n
}

// Apply implements Transform: it searches all pairs on the block's original weights, then folds them one after another.
func (a AWQScaling) Apply(ctx context.Context, l *Layer) error {
	pairs := l.pairs()
	found := make([][]float32, len(pairs))
	for i := range pairs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if a.usable(l, &pairs[i]) {
			found[i] = a.search(ctx, l, &pairs[i])
		}
	}
	for i := range pairs {
		if found[i] != nil {
			l.fold(&pairs[i], found[i])
		}
	}
	return nil
}

// usable reports whether a pair has anything to gain: quantized readers that saw tokens.
func (a AWQScaling) usable(l *Layer, p *arch.Pair) bool {
	if p.Prev != nil && p.Prev.Role == arch.RoleV && a.Options.NoValueO {
		return false
	}
	for _, lin := range p.Linears {
		if _, ok := l.Scheme(lin); !ok {
			return false
		}
	}
	st := l.Stats(p.Input, p.Expert)
	return st != nil && st.Tokens > 0
}

// search returns the best scale vector of a pair, nil when nothing beats s = 1. All candidates are ranked by the error
// of the readers' own outputs; where the module counts, the best few of them are judged again by running it.
func (a AWQScaling) search(ctx context.Context, l *Layer, p *arch.Pair) []float32 {
	st := l.Stats(p.Input, p.Expert)
	tried := []scaleTrial{{s: ones(p.Width())}}
	wm := l.weightMean(p)
	for i := range a.Options.grid() {
		s := candidate(st.AbsMean, wm, float64(i)/float64(a.Options.grid()))
		l.legal(p, s)
		tried = append(tried, scaleTrial{s: s, index: i + 1})
	}
	if !rank(ctx, tried, l.linearLoss(p)) {
		Emit(ctx, Event{Kind: EventFallback, Layer: l.Index, Tensor: p.Linears[0].Weight(),
			Message: "no scale of the AWQ search has a finite loss, s = 1 is used"})
		return nil
	}
	if p.Scope != arch.ScopeLinear && !a.Options.Surrogate {
		tried = shortlist(tried)
		rank(ctx, tried, l.moduleLoss(p))
	}
	if tried[0].index == 0 || ctx.Err() != nil {
		return nil
	}
	return tried[0].s
}

// scaleTrial is a candidate with its loss; index 0 is s = 1.
type scaleTrial struct {
	s     []float32
	index int
	loss  float64
}

func ones(n int) []float32 {
	s := make([]float32, n)
	for k := range s {
		s[k] = 1
	}
	return s
}

// rank sorts candidates by loss, equal ones by index, and reports whether any loss is finite.
func rank(ctx context.Context, tried []scaleTrial, loss func(s []float32) float64) (finite bool) {
	for i := range tried {
		if ctx.Err() != nil {
			return true // the caller stops; there is nothing to report
		}
		tried[i].loss = loss(tried[i].s)
		if math.IsNaN(tried[i].loss) {
			tried[i].loss = math.Inf(1)
		}
		finite = finite || !math.IsInf(tried[i].loss, 1)
	}
	slices.SortFunc(tried, func(a, b scaleTrial) int { return cmp.Or(cmp.Compare(a.loss, b.loss), cmp.Compare(a.index, b.index)) })
	return finite
}

// judged is how many candidates are judged by running the module, s = 1 aside.
const judged = 4

// shortlist keeps the best candidates and s = 1.
func shortlist(tried []scaleTrial) []scaleTrial {
	best := append([]scaleTrial(nil), tried[:min(judged, len(tried))]...)
	for _, t := range tried[len(best):] {
		if t.index == 0 {
			best = append(best, t)
		}
	}
	return best
}

// candidate is s = xm^r / (wm^(1−r) + 1e-4), at least 1e-4, with the geometric middle of its extremes at 1 (AutoAWQ's
// duo scaling).
func candidate(xm, wm []float32, r float64) []float32 {
	s := make([]float32, len(xm))
	lo, hi := math.Inf(1), 0.0
	raw := make([]float64, len(xm))
	for k := range s {
		v := power(float64(xm[k]), r) / (power(float64(wm[k]), 1-r) + 1e-4)
		raw[k] = math.Max(v, 1e-4)
		lo, hi = math.Min(lo, raw[k]), math.Max(hi, raw[k])
	}
	mid := math.Sqrt(lo * hi)
	for k := range s {
		s[k] = float32(raw[k] / mid)
		if !(s[k] > 0) || math.IsInf(float64(s[k]), 0) {
			s[k] = 1
		}
	}
	return s
}

// weightMean is, per input channel, the mean over the rows of all readers of |w| relative to its group's largest.
func (l *Layer) weightMean(p *arch.Pair) []float32 {
	sum := make([]float64, p.Width())
	rows := 0
	for _, lin := range p.Linears {
		w := l.Weights(lin)
		scheme, _ := l.Scheme(lin)
		group := groupSpan(stand(scheme), lin.In)
		for n := range lin.Out {
			row := w[n*lin.In : (n+1)*lin.In]
			for g := 0; g < len(row); g += group {
				part := row[g:min(g+group, len(row))]
				lo, hi := rangeOf(part)
				inv := 1 / (float64(max(-lo, hi)) + 1e-6)
				for k, v := range part {
					sum[g+k] += float64(math.Abs(float64(v)) * inv)
				}
			}
		}
		rows += lin.Out
	}
	mean := make([]float32, len(sum))
	for k := range mean {
		mean[k] = float32(sum[k] / float64(rows))
	}
	return mean
}

// legal turns a candidate into one that can be folded. A norm's weight is stored in 16 bits, so n/s would be rounded
// and the fold would not be exact: s becomes n/stored(n/s) instead, which differs from s by half a unit in the last
// place of the stored type and makes the fold exact. Channels that feed several query heads share one scale.
func (l *Layer) legal(p *arch.Pair, s []float32) {
	if p.Norm != "" {
		n, d := l.norm(p.Norm), l.storedType(p.Norm)
		for k := range s {
			stored := roundTo(d, n[k]/s[k])
			if s[k] = n[k] / stored; n[k] == 0 || stored == 0 || math.IsInf(float64(stored), 0) {
				s[k] = 1
			}
		}
		return
	}
	if p.Shared <= 1 {
		return
	}
	logs, count := map[int]float64{}, map[int]float64{}
	for k, v := range s {
		logs[p.PrevRow(k)] += logarithm(float64(v))
		count[p.PrevRow(k)]++
	}
	for k := range s {
		row := p.PrevRow(k)
		s[k] = float32(exponential(logs[row] / count[row]))
	}
}

func roundTo(d tensor.DType, v float32) float32 {
	switch d {
	case tensor.BF16:
		return tensor.BF16ToF32(tensor.F32ToBF16(v))
	case tensor.F16:
		return tensor.F16ToF32(tensor.F32ToF16(v))
	}
	return v
}

// sampleRows is how many rows of a matrix the loss of a candidate is taken from: rows are alike, and the cost of exact
// second moments grows with the square of the input's width.
const sampleRows = 512

// linearLoss is the error of the readers' own outputs, Σ δ·E[x xᵀ]·δᵀ over evenly spaced rows, exact over all
// calibration tokens.
func (l *Layer) linearLoss(p *arch.Pair) func(s []float32) float64 {
	type part struct {
		w      []float32
		rows   int
		weight float64 // of a row: how many it stands for
		lin    *arch.Linear
		stats  *Stats
	}
	var parts []part
	for _, lin := range p.Linears {
		if st := l.inputOf(lin); st != nil && st.Tokens > 0 {
			w, rows := everyNth(l.Weights(lin), lin.Out, lin.In)
			parts = append(parts, part{w, rows, float64(lin.Out) / float64(rows), lin, st})
		}
	}
	return func(s []float32) float64 {
		var total float64
		for _, x := range parts {
			scheme, _ := l.Scheme(x.lin)
			delta := fakeScaled(l.pool, x.w, s, x.rows, x.lin.In, scheme)
			for i := range delta {
				delta[i] -= x.w[i]
			}
			total += float64(x.weight * x.stats.OutputError(l.pool, kernel.MatF32(x.rows, x.lin.In, delta), make([]float32, len(delta))))
		}
		return total
	}
}

// everyNth returns at most sampleRows evenly spaced rows of w [out, in].
func everyNth(w []float32, out, in int) (sample []float32, rows int) {
	if out <= sampleRows {
		return w, out
	}
	for i := range sampleRows {
		n := i * out / sampleRows
		sample = append(sample, w[n*in:(n+1)*in]...)
	}
	return sample, sampleRows
}

// moduleLoss is the squared error of the module's output on the search windows. A module that cannot be run has an
// infinite loss, which the search reports.
func (l *Layer) moduleLoss(p *arch.Pair) func(s []float32) float64 {
	in, run := l.attnIn, moduleFunc(l.attention)
	if p.Scope == arch.ScopeMLP {
		in, run = l.mlpIn, l.search.MLP
	}
	want, err := l.output(run, in)
	got := kernel.MatF32(in.Rows, l.Model.Hidden, make([]float32, in.Rows*l.Model.Hidden))
	return func(s []float32) float64 {
		trial := cloneBlock(l.Block)
		for _, lin := range p.Linears {
			scheme, _ := l.Scheme(lin)
			trial.Linear(lin).W = kernel.MatF32(lin.Out, lin.In, fakeScaled(l.pool, l.Weights(lin), s, lin.Out, lin.In, scheme))
		}
		if err != nil || run(trial, got, in) != nil {
			return math.Inf(1)
		}
		return kernel.SqDiff(want.F32, got.F32)
	}
}

// fakeScaled returns Q(W·s)/s for w [rows, in].
func fakeScaled(pool *kernel.Pool, w, s []float32, rows, in int, scheme packing.Scheme) []float32 {
	out := make([]float32, len(w))
	scheme = stand(scheme)
	a, group := newAffine(scheme, 0), groupSpan(scheme, in)
	const step = 16 // rows of a task
	pool.Run((rows+step-1)/step, func(t int) {
		scaled := make([]float32, in)
		for n := t * step; n < min(rows, (t+1)*step); n++ {
			for k, v := range w[n*in : (n+1)*in] {
				scaled[k] = v * s[k]
			}
			row := out[n*in : (n+1)*in]
			a.fakeRow(row, scaled, group)
			for k := range row {
				row[k] /= s[k]
			}
		}
	})
	return out
}

// fold multiplies the columns of every reader by s, divides the producer by s, and keeps the statistics true.
func (l *Layer) fold(p *arch.Pair, s []float32) {
	readers := p.Linears
	if p.Router != nil {
		readers = append(append([]*arch.Linear(nil), readers...), p.Router)
	}
	for _, lin := range readers {
		w := l.Weights(lin)
		l.pool.Run(lin.Out, func(n int) {
			row := w[n*lin.In : (n+1)*lin.In]
			for k := range row {
				row[k] *= s[k]
			}
		})
		l.changed[lin.Weight()] = true
	}
	l.foldProducer(p, s)
	for key, st := range l.stats {
		if key.kind == p.Input && (p.Scope != arch.ScopeLinear || key.expert == p.Expert) {
			st.Divide(s)
		}
	}
}

// foldProducer divides the norm's weights, or the rows and bias of the linear in front, by s.
func (l *Layer) foldProducer(p *arch.Pair, s []float32) {
	if p.Norm != "" {
		n := l.norm(p.Norm)
		if l.normBefore[p.Norm] == nil {
			l.normBefore[p.Norm] = append([]float32(nil), n...)
		}
		for k := range n {
			n[k] /= s[k]
		}
		l.changed[p.Norm] = true
		return
	}
	w, bias := l.Weights(p.Prev), l.linear(p.Prev).Bias
	done := make([]bool, p.Prev.Out)
	for k := range s {
		n := p.PrevRow(k)
		if done[n] {
			continue
		}
		done[n] = true
		for j := n * p.Prev.In; j < (n+1)*p.Prev.In; j++ {
			w[j] /= s[k]
		}
		if bias != nil {
			bias[n] /= s[k]
		}
	}
	l.changed[p.Prev.Weight()] = true
	if bias != nil {
		l.changed[p.Prev.Name+".bias"] = true
	}
}

// grid is the number of ratios tried.
func (o AWQOptions) grid() int {
	if o.Grid > 0 {
		return o.Grid
	}
	return 20
}

// stand is the integer scheme that stands for a block format or a mix of widths while scales are searched: as many bits, groups of 32. The
// reference searches of block formats are far too slow to be run once per candidate.
func stand(s packing.Scheme) packing.Scheme {
	if s.Grid == "int" {
		return s
	}
	bits := 4
	if t, ok := ggml.ByName(s.Grid); ok {
		bits = min(max(int(t.BitsPerWeight), 2), 8)
	}
	if groups, err := packing.ParseEXL2Mix(s.Mix); err == nil { // the average of a mix
		sum, rows := 0, 0
		for _, g := range groups {
			sum, rows = sum+g.Bits*g.Rows, rows+g.Rows
		}
		bits = (sum + rows/2) / rows
	}
	return packing.Scheme{Grid: "int", Bits: bits, GroupSize: 32}
}
