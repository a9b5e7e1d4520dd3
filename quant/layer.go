package quant

import (
	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/kernel"
)

// Layer is one decoder block on its way through transforms and rounders: its weights, and what calibration saw at the
// inputs of its linears.
type Layer struct {
	Index int
	Model *arch.Model
	Arch  *arch.Block
	Block *forward.Block // weights; Weights makes them mutable

	plan    map[string]*PlannedTensor
	stats   map[inputKey]*Stats
	attnIn  kernel.Mat // normalised inputs of the attention module for the search windows, [tokens, hidden]
	mlpIn   kernel.Mat
	search  *forward.Runner // runs modules on the search windows
	pool    *kernel.Pool
	changed map[string]bool // tensors whose values a transform rewrote
	// normBefore holds the weights of norms as they were before a transform first changed them.
	normBefore map[string][]float32
	head       *headPart // this layer is the final norm with the head, not a block
}

// inputKey names a shared input of a block.
type inputKey struct {
	kind   arch.InputKind
	expert int
}

// Stats returns the statistics of a shared input, nil when none were gathered.
func (l *Layer) Stats(kind arch.InputKind, expert int) *Stats { return l.stats[inputKey{kind, expert}] }

// Scheme returns how the linear will be quantized; ok is false when it is kept.
func (l *Layer) Scheme(lin *arch.Linear) (s packing.Scheme, ok bool) {
	t := l.plan[lin.Weight()]
	if t == nil || !t.Quantize {
		return s, false
	}
	return t.Scheme, true
}

// NormType returns the element type in which a norm or bias will be stored.
func (l *Layer) storedType(name string) tensor.DType {
	t := l.plan[name]
	if t == nil {
		return tensor.F32
	}
	if t.DType != tensor.Invalid {
		return t.DType
	}
	return t.Info.DType
}

// Weights returns the weight of lin as a mutable float32 matrix [Out, In]; the block computes with it from now on.
func (l *Layer) Weights(lin *arch.Linear) []float32 {
	f := l.linear(lin)
	if f.W.Kind != kernel.F32 {
		f.W = kernel.MatF32(lin.Out, lin.In, widened(f.W))
	}
	return f.W.F32
}

// linear finds the loaded matrix.
func (l *Layer) linear(lin *arch.Linear) *forward.Linear {
	if l.head != nil {
		return &l.head.linear
	}
	return l.Block.Linear(lin)
}

// pairs lists where scales can be folded.
func (l *Layer) pairs() []arch.Pair {
	if l.head != nil {
		return l.head.pairs()
	}
	return l.Arch.AWQPairs()
}

// inputOf returns the statistics of the input that lin reads, nil when none were gathered.
func (l *Layer) inputOf(lin *arch.Linear) *Stats {
	if l.head != nil {
		return l.stats[headKey]
	}
	return l.stats[inputOf(l.Arch, lin)]
}

// widened returns a float32 copy of a matrix.
func widened(m kernel.Mat) []float32 {
	out := make([]float32, m.Rows*m.Cols)
	if m.Kind == kernel.F32 {
		for i := range m.Rows {
			copy(out[i*m.Cols:], m.Row(i))
		}
		return out
	}
	for i := range m.Rows {
		kernel.Widen(out[i*m.Cols:(i+1)*m.Cols], m.U16[i*m.Stride:][:m.Cols], m.Kind)
	}
	return out
}

// norm returns the weights of a norm of the block by tensor name.
func (l *Layer) norm(name string) []float32 {
	if l.head != nil {
		if name == l.head.name {
			return l.head.norm
		}
		return nil
	}
	switch name {
	case l.Arch.AttnNorm:
		return l.Block.AttnNorm
	case l.Arch.MLPNorm:
		return l.Block.MLPNorm
	}
	return nil
}

// inputOf returns the shared input that lin reads, by expert where the experts' inputs differ.
func inputOf(b *arch.Block, lin *arch.Linear) inputKey {
	for _, in := range b.Inputs() {
		for _, reader := range in.Linears {
			if reader == lin && in.Expert == lin.Expert {
				return inputKey{in.Kind, in.Expert}
			}
		}
	}
	return inputKey{}
}

// cloneBlock returns a block whose linears can be replaced without touching b's.
func cloneBlock(b *forward.Block) *forward.Block {
	c := *b
	c.Experts = append([]forward.MLP(nil), b.Experts...)
	return &c
}
