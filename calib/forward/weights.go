package forward

import (
	"fmt"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/internal/kernel"
)

// Linear is one loaded matrix: y = x·Wᵀ + Bias. W is [Out, In] in any element type. Transforms and rounders replace W
// and Bias freely, as long as the shape stays.
type Linear struct {
	Info *arch.Linear
	W    kernel.Mat
	Bias []float32 // [Out], nil when the layer has none
}

// addBias adds the bias, if there is one, to every row.
func (l *Linear) addBias(p *kernel.Pool, dst kernel.Mat) {
	if l.Bias == nil {
		return
	}
	forRows(p, dst.Rows, func(i int) {
		row := dst.Row(i)
		for j, b := range l.Bias {
			row[j] += b
		}
	})
}

// MLP is a gated unit: Down(silu(Gate(x))·Up(x)).
type MLP struct{ Gate, Up, Down Linear }

// Block is one decoder layer with its weights. Norm weights are float32; a change to them or to a Linear takes effect
// in the next call of a Runner.
type Block struct {
	Arch  *arch.Block
	Model *arch.Model

	AttnNorm, MLPNorm []float32 // [hidden]
	QNorm, KNorm      []float32 // [head_dim], nil when absent
	Q, K, V, O        Linear
	MLP               // dense MLP; zero in a mixture

	Router  Linear // [experts, hidden]; zero unless a mixture
	Experts []MLP  // loaded experts; an entry whose Gate.W has no rows is fetched when it is needed
	// Fetch loads one expert for a moment, so that a mixture need not fit into memory. Rounders replace it to serve
	// quantized experts. nil when every expert is loaded.
	Fetch func(expert int) (MLP, error)

	Findings []NonFinite // what Load replaced under NonFiniteZero
}

// Expert returns expert i: the loaded one, or what Fetch gives.
func (b *Block) Expert(i int) (MLP, error) {
	if e := b.Experts[i]; e.Gate.W.Rows > 0 || b.Fetch == nil {
		return e, nil
	}
	e, err := b.Fetch(i)
	if err != nil {
		return MLP{}, fmt.Errorf("layer %d expert %d: %w", b.Arch.Index, i, err)
	}
	return e, nil
}

// Linear finds the loaded matrix that info, one of b.Arch's linears, describes; nil if it is not loaded (an expert that
// is fetched) or not of this block.
func (b *Block) Linear(info *arch.Linear) *Linear {
	dense := []*Linear{&b.Q, &b.K, &b.V, &b.O, &b.Gate, &b.Up, &b.Down, &b.Router}
	if info.Expert >= 0 && info.Expert < len(b.Experts) {
		e := &b.Experts[info.Expert]
		dense = []*Linear{&e.Gate, &e.Up, &e.Down}
	}
	for _, l := range dense {
		if l.Info == info {
			return l
		}
	}
	return nil
}

// Linears lists the loaded quantizable matrices in forward order, as arch.Block.Linears does.
func (b *Block) Linears() []*Linear {
	var all []*Linear
	for _, info := range b.Arch.Linears() {
		if l := b.Linear(info); l != nil {
			all = append(all, l)
		}
	}
	return all
}
