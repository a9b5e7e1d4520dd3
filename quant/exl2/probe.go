package exl2

import (
	"context"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/internal/kernel"
)

// Probes measure what an error in one linear does to the model. The relative output error of a linear says little about
// that: between linears of one model the effect of equal errors differs thirtyfold, and a choice that does not know it
// gains next to nothing over equal bits everywhere. But for one linear the effect grows in proportion to the squared
// output error over the whole range from two to eight bits, and the effects of several linears add up (HIGGS, arXiv
// 2411.17525). So one probe per linear is enough: a block in which that linear computes with quantized weights.
//
// Either the probe ends behind its block and tells how much the residual stream changed there, or it passes through the
// rest of the model and tells how much the predictions changed. The first costs one block's forward pass for each probe;
// the second keeps hidden states for every probe and costs half a model's, but gives a somewhat better choice: 5 % less
// divergence of the quantized model in our measurements, after 25 to 30 % that the first gains already. A few thousand
// tokens do for small models, a few hundred for large ones. Every block's weights are used once for all probes.
type Probes struct {
	run     *forward.Runner
	base    kernel.Mat
	through bool
	probes  []probe
}

type probe struct {
	hidden kernel.Mat
	result Sensitivity
}

// Changed is a block in which one linear, or the same linear of all experts, computes with quantized weights.
type Changed struct {
	Name  string
	Error float64 // relative output error of the quantized weights, as in Measured
	Block *forward.Block
}

// Sensitivity is what a probe found.
type Sensitivity struct {
	Name  string
	Error float64 // as given
	// BlockError is the relative squared error of the block's output, residual included. ExLlamaV2 calls 1 − √BlockError
	// the accuracy.
	BlockError float64
	// KL is the mean divergence KL(model ‖ changed model) of the predictions, in nats; 0 unless probes pass through.
	KL float64
}

// NewProbes starts with the hidden states in front of the first block, some whole windows of them; they are copied. With
// through, probes pass through the rest of the model.
func NewProbes(run *forward.Runner, hidden kernel.Mat, through bool) *Probes {
	return &Probes{run: run, base: copied(hidden), through: through}
}

// ProbeBytes returns the memory that probes which pass through take for hidden states.
func ProbeBytes(probes, tokens, hidden int) int64 {
	return int64(probes+1) * int64(tokens) * int64(hidden) * 4
}

func copied(m kernel.Mat) kernel.Mat {
	c := kernel.MatF32(m.Rows, m.Cols, make([]float32, m.Rows*m.Cols))
	for i := range m.Rows {
		copy(c.Row(i), m.Row(i))
	}
	return c
}

// Block takes the hidden states through the next block of the model and starts a probe for each changed version of it.
func (p *Probes) Block(ctx context.Context, b *forward.Block, changed []Changed) error {
	for i := range p.probes {
		if !p.through {
			break
		}
		if err := p.run.Forward(ctx, b, p.probes[i].hidden, nil); err != nil {
			return err
		}
	}
	before := copied(p.base)
	if err := p.run.Forward(ctx, b, p.base, nil); err != nil {
		return err
	}
	power := 0.0
	for _, v := range p.base.F32 {
		power += float64(float64(v) * float64(v))
	}
	for _, c := range changed {
		h := copied(before)
		if err := p.run.Forward(ctx, c.Block, h, nil); err != nil {
			return err
		}
		r := Sensitivity{Name: c.Name, Error: c.Error}
		if power > 0 {
			r.BlockError = kernel.SqDiff(h.F32, p.base.F32) / power
		}
		if !p.through {
			h = kernel.Mat{}
		}
		p.probes = append(p.probes, probe{h, r})
	}
	return nil
}

// Found returns what the probes found so far, in the order in which they were started.
func (p *Probes) Found() []Sensitivity {
	found := make([]Sensitivity, len(p.probes))
	for i := range p.probes {
		found[i] = p.probes[i].result
	}
	return found
}

// Hidden returns the hidden states behind the last block, which whoever continues has to keep beside Found.
func (p *Probes) Hidden() []kernel.Mat {
	states := []kernel.Mat{p.base}
	for i := range p.probes {
		if p.through {
			states = append(states, p.probes[i].hidden)
		}
	}
	return states
}

// Restore makes probes of NewProbes those that found this; the caller then fills what Hidden returns.
func (p *Probes) Restore(found []Sensitivity) {
	p.probes = make([]probe, len(found))
	for i, f := range found {
		p.probes[i].result = f
		if p.through {
			p.probes[i].hidden = kernel.MatF32(p.base.Rows, p.base.Cols, make([]float32, p.base.Rows*p.base.Cols))
		}
	}
}

// Finish returns what the probes found. For those that passed through, the predictions behind the last block are compared.
func (p *Probes) Finish(ctx context.Context, head *forward.Head) ([]Sensitivity, error) {
	results := p.Found()
	targets := make([]int32, p.base.Rows) // whatever they are: the divergence is over all of the vocabulary
	for i := range p.probes {
		if !p.through {
			break
		}
		scores, err := p.run.Compare(ctx, head, head, p.base, p.probes[i].hidden, targets)
		if err != nil {
			return nil, err
		}
		sum := 0.0
		for _, s := range scores {
			sum += max(s.KL, 0)
		}
		results[i].KL = sum / float64(len(scores))
	}
	return results, nil
}

// ProbeCandidate is what probes quantize a linear with.
func ProbeCandidate() (Candidate, error) { return ParseCandidate("3 g128") }

// Probe quantizes a weight for a probe, with feedback alone, and returns its values and its relative output error.
func (p *Prepared) Probe(ctx context.Context, pool *kernel.Pool, m Matrix) (values []float32, relative float64, err error) {
	c, err := ProbeCandidate()
	if err != nil {
		return nil, 0, err
	}
	groups, o := c.Groups(p.k), p.opt
	o.Passes = 0
	if err := check(m.W, m.Out, p.k, c.Scheme(p.k)); err != nil {
		return nil, 0, err
	}
	l := p.newLinear(c.Scheme(p.k), m.Out, groups)
	rep := p.arrange(pool, groups).solve(ctx, pool, m, groups, o, l)
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	if rep.power > 0 {
		relative = rep.loss / rep.power
	}
	values = make([]float32, len(m.W))
	return values, relative, l.Dequantize(values, 0, m.Out)
}
