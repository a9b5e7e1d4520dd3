package quant

import (
	"context"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
)

// headLinear is the output head as a matrix to quantize, nil when it is kept, tied to the embedding or absent.
func (j *job) headLinear() *arch.Linear {
	m := j.plan.Model
	if m.Head == m.Embed {
		return nil
	}
	if t := j.plan.lookup()[m.Head]; t != nil && t.Quantize {
		return t.Linear
	}
	return nil
}

// headCalibrated reports whether the head is quantized with statistics of its own.
func (j *job) headCalibrated() bool { return j.recipe.Needs() != 0 && j.headLinear() != nil }

// headPart makes a Layer of the final norm and the head behind it.
type headPart struct {
	linear forward.Linear
	norm   []float32
	name   string // of the norm's tensor
}

// headKey is where a head's layer keeps its only statistics.
var headKey = inputKey{arch.AttnIn, -1}

// headPairs is the one pair of a head: final norm → head.
func (h *headPart) pairs() []arch.Pair {
	return []arch.Pair{{Norm: h.name, Linears: []*arch.Linear{h.linear.Info}, Scope: arch.ScopeLinear, Input: headKey.kind, Expert: headKey.expert, Shared: 1}}
}

// roundHead quantizes the head with the statistics of its input behind the quantized blocks.
func (j *job) roundHead(ctx context.Context, s *stream) (*Layer, TensorReport, error) {
	l, err := j.loadHead(ctx, s)
	if err != nil {
		return nil, TensorReport{}, err
	}
	for _, t := range j.recipe.Transforms {
		if err := t.Apply(ctx, l); err != nil {
			return nil, TensorReport{}, err
		}
	}
	row, err := j.round(ctx, l, l.head.linear.Info)
	return l, row, err
}

// loadHead reads norm and head and gathers the statistics of the normalised final states.
func (j *job) loadHead(ctx context.Context, s *stream) (*Layer, error) {
	m := j.plan.Model
	h, err := forward.LoadHead(j.src, m, forward.LoadOptions{Pool: j.pool})
	if err != nil {
		return nil, safeio.WithPath(err, j.src.Meta().Path)
	}
	lin := j.headLinear()
	l := &Layer{Index: -1, Model: m, plan: j.plan.lookup(), stats: map[inputKey]*Stats{}, pool: j.pool, changed: map[string]bool{},
		normBefore: map[string][]float32{}, head: &headPart{linear: forward.Linear{Info: lin, W: h.W}, norm: h.Norm, name: m.FinalNorm}}
	want := forward.WantAbsSum | forward.WantGram | forward.WantMaxAbs
	st := forward.NewStat(m.Hidden, want, 1)
	step := s.runner.ChunkTokens()
	chunk := kernel.MatF32(step, m.Hidden, make([]float32, step*m.Hidden))
	err = s.hidden.look(ctx, func(first int, hidden kernel.Mat) error {
		x := chunk.Slice(0, hidden.Rows, 0, m.Hidden)
		j.pool.Run(x.Rows, func(i int) { kernel.RMSNorm(x.Row(i), hidden.Row(i), h.Norm, float32(m.Eps)) })
		st.Add(j.pool, forward.Sample{Kind: headKey.kind, Expert: headKey.expert, X: x, First: first})
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.stats[headKey] = averaged(st)
	return l, nil
}
