package quant

import (
	"runtime"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats/arch"
)

// memoryEstimate is the expected peak of resident bytes, from shapes alone. It does not depend on the number of layers.
func memoryEstimate(p *Plan, r *Recipe, o *Options) int64 {
	const base = 40 << 20 // program, runtime, buffers for copying and verifying
	var block int64
	for i := range p.Model.Blocks {
		block = max(block, blockMemory(p.Model, &p.Model.Blocks[i], r.Needs()))
	}
	for i := range p.Tensors {
		if t := &p.Tensors[i]; t.Quantize && t.Layer < 0 {
			block = max(block, 6*4*int64(t.Linear.Out)*int64(t.Linear.In)) // a head: values, codes, errors
		}
	}
	threads := o.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	total := base + block + int64(threads)*(panelBytes+rangeScratch*widestOutput(p))
	if r.Needs() == 0 {
		return total
	}
	set := o.Calib
	hidden := int64(p.Model.Hidden)
	tokens := int64(set.Windows) * int64(set.SeqLen)
	total += 4*tokens*hidden + 4*tokens + forward.ScratchBytes(p.Model, threads, set.Windows, set.SeqLen)
	if r.Needs().Has(NeedShift) {
		every := int64(shiftEvery(set.Windows, set.SeqLen)) // the full-precision stream
		total += 4 * ((int64(set.Windows) + every - 1) / every) * int64(set.SeqLen) * hidden
	}
	if r.Needs().Has(NeedModules) {
		// Inputs of both modules on the search windows, and their outputs: wanted and got.
		search := min(tokens, max(searchTokens, int64(set.SeqLen)))
		total += 4 * 4 * search * hidden
		total += forward.ScratchBytes(p.Model, threads, int(search)/set.SeqLen, set.SeqLen)
	}
	return total
}

const (
	panelBytes   = 4 << 20     // panels of the matrix products, per thread
	rangeScratch = 4 * 4 * 128 // bytes per output and thread while ranges of a group of 128 columns are searched
)

// widestOutput is the largest number of outputs of a linear that is quantized.
func widestOutput(p *Plan) (n int64) {
	for i := range p.Tensors {
		if t := &p.Tensors[i]; t.Quantize {
			n = max(n, int64(t.Linear.Out))
		}
	}
	return n
}

// blockMemory is what one block takes: stored weights, float32 copies, and the most that the statistics of its inputs
// and the linear at work need at a time.
func blockMemory(m *arch.Model, b *arch.Block, needs Need) int64 {
	var weights, largest, gram int64
	for _, l := range b.Linears() {
		n := int64(l.Out) * int64(l.In)
		weights += n
		largest = max(largest, n)
	}
	linear := 5 * 4 * largest // weight, values, what they are compared with
	for _, in := range b.Inputs() {
		square := int64(in.Width) * int64(in.Width)
		switch {
		case needs.Has(NeedSequential): // one kind of input at a time
			gram = max(gram, sequentialMemory(m, in, needs, largest)-linear)
		case needs.Has(NeedGram):
			gram += 12 * square // float64, and float32 for products
			if needs.Has(NeedDescent) {
				gram += 4 * square
			}
		}
	}
	return 2*weights + 4*weights + linear + gram
}

// sequentialMemory is the most that the statistics of one input and a linear that reads it take: while sums are gathered,
// while they are factored, or while the linear is solved and checked.
func sequentialMemory(m *arch.Model, in arch.Input, needs Need, largest int64) int64 {
	square, sum, work := int64(in.Width)*int64(in.Width), int64(8), int64(8+4)
	if needs.Has(NeedGram32) {
		sum, work = 4, 4 // factored where it lies
	}
	kept, distance := int64(4+4), int64(0) // Hessian and factor
	if needs.Has(NeedShift) {
		distance = 4
	}
	extra := int64(0)
	if needs.Has(NeedShift) && in.Width <= maxHalves { // twice the sums; the other half's Hessian and the factor in each
		sum, distance, extra = 2*sum, 2*distance, 3*4
	}
	drift := distance * int64(in.Width) * int64(m.Hidden)
	gather := (sum+distance)*square + drift
	factor := (4+work+extra+distance)*square + drift + 4*largest
	solve := (kept+extra+distance)*square + drift + 6*4*largest
	return max(gather, factor, solve)
}
