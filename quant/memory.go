package quant

import (
	"runtime"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
)

// fit estimates the run's memory, extra bytes of it for what the recipe does not know, and leaves the hidden states on
// disk when it would be too much otherwise. The run takes their room on disk anyway: there they wait for a resumed run.
func (p *Plan) fit(r *Recipe, o *Options, extra int64) {
	p.StatesOnDisk = false
	p.Memory = memoryEstimate(p, r, o) + extra
	if r.Needs() == 0 {
		return
	}
	p.Scratch = 2 * streams(r) * stateBytes(p.Model, o) // in front of a block and behind it
	if o.Memory <= 0 || p.Memory <= o.Memory {
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
	return safeio.Limitf("the run needs about %d MB of memory%s, more than the limit of %d MB: --memory %dMB would do, %s less",
		(need+mb-1)/mb, even, o.Memory/mb, (need+mb-1)/mb, less)
}

// streams is the number of residual streams that run.
func streams(r *Recipe) int64 {
	if r.Needs().Has(NeedShift) {
		return 2
	}
	return 1
}

// stateBytes is the size of the hidden states of all windows.
func stateBytes(m *arch.Model, o *Options) int64 {
	return 4 * int64(o.Calib.Windows) * int64(o.Calib.SeqLen) * int64(m.Hidden)
}

// stateMemory is what one residual stream takes: all its states, or a chunk of them.
func stateMemory(m *arch.Model, o *Options, onDisk bool) int64 {
	if onDisk {
		return 4 * int64(forward.ChunkTokens(m, o.Calib.Windows, o.Calib.SeqLen)) * int64(m.Hidden)
	}
	return stateBytes(m, o)
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
	total += streams(r)*stateMemory(p.Model, o, p.StatesOnDisk) + 4*tokens + forward.ScratchBytes(p.Model, threads, set.Windows, set.SeqLen)
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
	return baseBytes + block + int64(threads)*panelBytes + 4*tokens + stateMemory(m, o, fit.statesOnDisk) +
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

// blockMemory is what one block takes: stored weights, float32 copies, the statistics of its inputs, and the largest
// linear's candidates.
func blockMemory(m *arch.Model, b *arch.Block, needs Need) int64 {
	var weights, largest, gram int64
	for _, l := range b.Linears() {
		n := int64(l.Out) * int64(l.In)
		weights += n
		largest = max(largest, n)
	}
	for _, in := range b.Inputs() {
		square := int64(in.Width) * int64(in.Width)
		switch {
		case needs.Has(NeedShift): // one kind of input at a time: sums, averages, factor, its float32 copies
			gram = max(gram, 8*9*square+8*4*int64(in.Width)*int64(m.Hidden))
		case needs.Has(NeedSequential):
			gram = max(gram, 8*4*square)
		case needs.Has(NeedGram):
			gram += 12 * square // float64, and float32 for products
		}
	}
	return 2*weights + 4*weights + 5*4*largest + gram
}
