package quant

import (
	"fmt"
	"runtime"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
)

// fit estimates the run's memory, extra bytes of it for what the recipe does not know, and leaves the hidden states on
// disk when it would be too much otherwise. The run takes their room on disk anyway: there they wait for a resumed run.
func (p *Plan) fit(r *Recipe, o *Options, extra int64) {
	p.StatesOnDisk, p.Replay = false, 0
	p.Memory = memoryEstimate(p, r, o) + extra
	if r.Needs() == 0 {
		return
	}
	p.Scratch = 0
	for _, windows := range streams(r, o) {
		p.Scratch += 2 * stateBytes(p.Model, o, windows) // in front of a block and behind it
	}
	if o.Memory <= 0 || p.Memory <= o.Memory {
		if r.Needs().Has(NeedSequential) {
			p.Replay = replayBytes(p.Model, r, o)
			if o.Memory > 0 { // leave some to others
				p.Replay = min(p.Replay, (o.Memory-p.Memory)*3/4)
			}
			p.Memory += p.Replay
		}
		return
	}
	inMemory := p.Memory
	p.StatesOnDisk = true
	if p.Memory = memoryEstimate(p, r, o) + extra; p.Memory >= inMemory { // few windows
		p.StatesOnDisk, p.Memory = false, inMemory
	}
}

// checkMemory refuses a run that needs more than it may use, before it starts, and says what would do.
func checkMemory(need int64, calibrated bool, o *Options) error {
	if o.Memory <= 0 || need <= o.Memory {
		return nil
	}
	even, less := "", "fewer --threads need"
	if calibrated {
		even, less = " even with the hidden states on disk", "fewer --threads or a shorter --seq-len need"
	}
	const mb = 1_000_000
	return &memoryError{fmt.Sprintf("the run needs about %d MB of memory%s, more than the limit of %d MB: --memory %dMB would do, %s less",
		(need+mb-1)/mb, even, o.Memory/mb, (need+mb-1)/mb, less)}
}

// memoryError is an option that does not fit the model and a limit that is exceeded, both.
type memoryError struct{ text string }

func (e *memoryError) Error() string   { return e.text }
func (e *memoryError) Unwrap() []error { return []error{ErrOptions, safeio.ErrLimit} }

// streams lists the windows of every residual stream that runs.
func streams(r *Recipe, o *Options) []int {
	all := o.Calib.Windows
	if !r.Needs().Has(NeedShift) {
		return []int{all}
	}
	every := shiftEvery(all, o.Calib.SeqLen)
	return []int{all, (all + every - 1) / every}
}

// stateBytes is the size of the hidden states of some windows.
func stateBytes(m *arch.Model, o *Options, windows int) int64 {
	return 4 * int64(windows) * int64(o.Calib.SeqLen) * int64(m.Hidden)
}

// stateMemory is what one residual stream takes: all its states, or a chunk of them.
func stateMemory(m *arch.Model, o *Options, windows int, onDisk bool) int64 {
	all := stateBytes(m, o, windows)
	if !onDisk {
		return all
	}
	return min(all, 4*int64(forward.ChunkTokens(m, o.Calib.Windows, o.Calib.SeqLen))*int64(m.Hidden))
}

// memoryEstimate is the expected peak of resident bytes, from shapes alone. It does not depend on the number of layers.
func memoryEstimate(p *Plan, r *Recipe, o *Options) int64 {
	var block int64
	for i := range p.Model.Blocks {
		block = max(block, blockMemory(p.Model, &p.Model.Blocks[i], r.Needs()))
	}
	for i := range p.Tensors {
		if t := &p.Tensors[i]; t.Quantize && t.Layer < 0 {
			block = max(block, 6*4*int64(t.Linear.Out)*int64(t.Linear.In)) // a head: values, codes, errors
		}
	}
	threads := poolThreads(o.Threads)
	total := baseBytes + block + int64(threads)*(panelBytes+rangeScratch*widestOutput(p))
	if r.Needs() == 0 {
		return total
	}
	set := o.Calib
	hidden := int64(p.Model.Hidden)
	tokens := int64(set.Windows) * int64(set.SeqLen)
	for _, windows := range streams(r, o) {
		total += stateMemory(p.Model, o, windows, p.StatesOnDisk)
	}
	total += 4*tokens + forward.ScratchBytes(p.Model, threads, set.Windows, set.SeqLen)
	if r.BF16 {
		total += forward.BF16Bytes(p.Model, set.Windows, set.SeqLen)
	}
	if r.Needs().Has(NeedModules) {
		// Inputs of both modules on the search windows, and their outputs: wanted and got.
		search := min(tokens, max(searchTokens, int64(set.SeqLen)))
		total += 4 * 4 * search * hidden
		total += forward.ScratchBytes(p.Model, threads, int(search)/set.SeqLen, set.SeqLen)
	}
	return total
}

// imatrixMemory is what Imatrix takes: a block as it is stored (float32 unless it is 16-bit floats), one expert of it at a
// time where they are read when they are needed, and hidden states.
func imatrixMemory(m *arch.Model, o *Options, fit imatrixFit) int64 {
	var block int64
	for i := range m.Blocks {
		var shared, experts, expert int64
		of := map[int]int64{}
		for _, l := range m.Blocks[i].Linears() {
			n := 4 * int64(l.Out) * int64(l.In)
			if l.Expert < 0 {
				shared += n
				continue
			}
			experts += n
			of[l.Expert] += n
			expert = max(expert, of[l.Expert])
		}
		if fit.lazyExperts {
			experts = expert
		}
		block = max(block, shared+experts)
	}
	threads := poolThreads(o.Threads)
	tokens := int64(o.Calib.Windows) * int64(o.Calib.SeqLen)
	return baseBytes + block + int64(threads)*panelBytes + 4*tokens + stateMemory(m, o, o.Calib.Windows, fit.statesOnDisk) +
		forward.ScratchBytes(m, threads, o.Calib.Windows, o.Calib.SeqLen)
}

// poolThreads is the number of threads that an option stands for.
func poolThreads(option int) int {
	if option <= 0 {
		return runtime.GOMAXPROCS(0)
	}
	return option
}

const (
	baseBytes    = 40 << 20    // program, runtime, buffers for copying and verifying
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
	if needs.Has(NeedGramKept) {
		extra += sum
	}
	factor := (4+work+extra+distance)*square + drift + 4*largest
	solve := (kept+extra+distance)*square + drift + 6*4*largest
	return max(gather, factor, solve)
}
