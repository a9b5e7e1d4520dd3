package quant

import (
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/internal/kernel"
)

// workEstimate is the floating point operations of a run, from shapes alone: what --dry-run turns into a time.
func workEstimate(p *Plan, r *Recipe, o *Options) float64 {
	needs := r.Needs()
	if needs == 0 {
		return 0
	}
	tokens := float64(o.Calib.Windows) * float64(o.Calib.SeqLen)
	search := min(tokens, searchTokens)
	var total float64
	for i := range p.Model.Blocks {
		b := &p.Model.Blocks[i]
		forward := forwardWork(p.Model, b, o.Calib.SeqLen)
		gram, solve := blockWork(b, tokens)
		passes := tokens * forward
		switch {
		case needs.Has(NeedSequential): // inputs of o and down that were not kept are computed twice
			passes *= 1.8 - 0.8*float64(p.Replay)/float64(max(replayBytes(p.Model, r, o), 1))
			total += solveFactor(r.Rounder) * solve
		case needs.Has(NeedDescent):
			total += descentPasses * solve
		}
		if needs.Has(NeedShift) { // a second stream, and twice the products, for some
			pairs := tokens / float64(shiftEvery(o.Calib.Windows, o.Calib.SeqLen))
			passes, gram = passes+pairs*forward, gram*(1+2*pairs/tokens)
		}
		if r.BF16 && kernel.FastBF16() {
			passes, gram = passes/2, gram/2
		}
		total += passes + gram
		if needs.Has(NeedModules) {
			total += float64(judged+2)*search*forward + rangeWork(b)
		}
	}
	return total
}

// solveFactor is how often error feedback, refinement and its restart pass over N·K² products, in time if not in number.
func solveFactor(r Rounder) float64 {
	g, ok := r.(GPTQ)
	if !ok {
		return 14
	}
	f := 3 + 1.3*float64(g.Options.Passes*(1+g.Options.Restarts))
	if !g.NoShift {
		f++
	}
	return f
}

// forwardWork is the work of one token in a block; experts count as often as tokens are routed to them.
func forwardWork(m *arch.Model, b *arch.Block, seqLen int) float64 {
	var work float64
	for _, l := range b.Linears() {
		share := 1.0
		if b.MoE != nil && l.Expert >= 0 {
			share = float64(b.MoE.TopK) / float64(len(b.MoE.Experts))
		}
		work += share * 2 * float64(l.Out) * float64(l.In)
	}
	return work + 2*float64(m.Heads*m.HeadDim)*float64(seqLen)
}

// blockWork is the work of all second moments, and of one pass of N·K² products over all linears.
func blockWork(b *arch.Block, tokens float64) (gram, solve float64) {
	for _, in := range b.Inputs() {
		gram += tokens * float64(in.Width) * float64(in.Width)
	}
	for _, l := range b.Linears() {
		solve += 2 * float64(l.Out) * float64(l.In) * float64(l.In)
	}
	return gram, solve
}

// rangeWork is the searched rounding: some thirty candidates against the second moments of a group of about 128, and the
// output errors of candidate scales on sampled rows.
func rangeWork(b *arch.Block) float64 {
	var work float64
	for _, l := range b.Linears() {
		n, k := float64(l.Out), float64(l.In)
		work += 30*2*128*n*k + (22*min(n, sampleRows)+3*n)*2*k*k
	}
	return work
}
