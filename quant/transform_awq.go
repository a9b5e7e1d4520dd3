package quant

import (
	"context"
	"math"

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
}

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

// search returns the best scale vector of a pair, nil when nothing beats s = 1.
func (a AWQScaling) search(ctx context.Context, l *Layer, p *arch.Pair) []float32 {
	st := l.Stats(p.Input, p.Expert)
	xm, wm := st.AbsMean, l.weightMean(p)
	judge := a.judge(l, p)
	ones := make([]float32, p.Width())
	for k := range ones {
		ones[k] = 1
	}
	best, bestLoss, finite := []float32(nil), judge(ones), 0
	grid := a.Options.grid()
	for i := range grid {
		if ctx.Err() != nil {
			return nil
		}
		s := candidate(xm, wm, float64(i)/float64(grid))
		l.legal(p, s)
		loss := judge(s)
		if !math.IsNaN(loss) && !math.IsInf(loss, 0) {
			finite++
		}
		if loss < bestLoss {
			best, bestLoss = s, loss
		}
	}
	if finite == 0 {
		Emit(ctx, Event{Kind: EventFallback, Layer: l.Index, Tensor: p.Linears[0].Weight(),
			Message: "no scale of the AWQ search has a finite loss, s = 1 is used"})
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
		v := math.Pow(float64(xm[k]), r) / (math.Pow(float64(wm[k]), 1-r) + 1e-4)
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
					sum[g+k] += math.Abs(float64(v)) * inv
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
		logs[p.PrevRow(k)] += math.Log(float64(v))
		count[p.PrevRow(k)]++
	}
	for k := range s {
		row := p.PrevRow(k)
		s[k] = float32(math.Exp(logs[row] / count[row]))
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

// judge returns the loss function of a pair.
func (a AWQScaling) judge(l *Layer, p *arch.Pair) func(s []float32) float64 {
	if p.Scope == arch.ScopeLinear || a.Options.Surrogate {
		return func(s []float32) float64 { return l.linearLoss(p, s) }
	}
	return l.moduleLoss(p)
}

// linearLoss is the error of the readers' own outputs, Σ δ·E[x xᵀ]·δᵀ, exact over all calibration tokens.
func (l *Layer) linearLoss(p *arch.Pair, s []float32) float64 {
	var total float64
	for _, lin := range p.Linears {
		scheme, _ := l.Scheme(lin)
		st := l.inputOf(lin)
		if st == nil || st.Tokens == 0 {
			continue
		}
		w := l.Weights(lin)
		delta := fakeScaled(l.pool, w, s, lin, scheme)
		for i := range delta {
			delta[i] -= w[i]
		}
		total += st.OutputError(l.pool, kernel.MatF32(lin.Out, lin.In, delta), make([]float32, len(delta)))
	}
	return total
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
			trial.Linear(lin).W = kernel.MatF32(lin.Out, lin.In, fakeScaled(l.pool, l.Weights(lin), s, lin, scheme))
		}
		if err != nil || run(trial, got, in) != nil {
			return math.Inf(1)
		}
		return kernel.SqDiff(want.F32, got.F32)
	}
}

// fakeScaled returns Q(W·s)/s.
func fakeScaled(pool *kernel.Pool, w, s []float32, lin *arch.Linear, scheme packing.Scheme) []float32 {
	out := make([]float32, len(w))
	scheme = stand(scheme)
	a, group := newAffine(scheme, 0), groupSpan(scheme, lin.In)
	pool.Run(lin.Out, func(n int) {
		row := out[n*lin.In : (n+1)*lin.In]
		scaled := make([]float32, lin.In)
		for k, v := range w[n*lin.In : (n+1)*lin.In] {
			scaled[k] = v * s[k]
		}
		a.fakeRow(row, scaled, group)
		for k := range row {
			row[k] /= s[k]
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

// stand is the integer scheme that stands for a block format while scales are searched: as many bits, groups of 32. The
// reference searches of block formats are far too slow to be run once per candidate.
func stand(s packing.Scheme) packing.Scheme {
	if s.Grid == "int" {
		return s
	}
	bits := 4
	if t, ok := ggml.ByName(s.Grid); ok {
		bits = min(max(int(t.BitsPerWeight), 2), 8)
	}
	return packing.Scheme{Grid: "int", Bits: bits, GroupSize: 32}
}
