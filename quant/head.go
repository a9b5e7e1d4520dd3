package quant

import (
	"context"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
)

// headLinear is the output head as a matrix to quantize, nil when it is kept or is the embedding in the artifact too.
func (j *job) headLinear() *arch.Linear {
	name := j.plan.Model.Head
	if name == j.plan.Model.Embed {
		name = headName + ".weight" // planned where the layout wants a head beside the embedding it is tied to
	}
	if t := j.plan.lookup()[name]; t != nil && t.Quantize {
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
	l, err := j.loadHead()
	if err != nil {
		return nil, TensorReport{}, err
	}
	if len(j.recipe.Transforms) > 0 || !s.shifted() {
		if err := s.headStats(ctx, l); err != nil {
			return nil, TensorReport{}, err
		}
	}
	for _, t := range j.recipe.Transforms {
		if err := t.Apply(ctx, l); err != nil {
			return nil, TensorReport{}, err
		}
	}
	if s.shifted() {
		if err := s.headPair(ctx, l); err != nil {
			return nil, TensorReport{}, err
		}
	}
	row, err := j.round(ctx, l, l.head.linear.Info)
	return l, row, err
}

// loadHead reads norm and head.
func (j *job) loadHead() (*Layer, error) {
	m := j.plan.Model
	h, err := forward.LoadHead(j.src, m, forward.LoadOptions{Pool: j.pool})
	if err != nil {
		return nil, safeio.WithPath(err, j.src.Meta().Path)
	}
	return &Layer{Index: -1, Model: m, plan: j.plan.lookup(), stats: map[inputKey]*Stats{}, pool: j.pool, changed: map[string]bool{},
		normBefore: map[string][]float32{}, head: &headPart{linear: forward.Linear{Info: j.headLinear(), W: h.W}, norm: h.Norm, name: m.FinalNorm}}, nil
}

// headStats gathers the statistics of the normalised final states.
func (s *stream) headStats(ctx context.Context, l *Layer) error {
	st := forward.NewStat(s.hidden.cols, forward.WantAbsSum|forward.WantGram|forward.WantMaxAbs, 1)
	err := s.hidden.look(ctx, func(first int, hidden kernel.Mat) error {
		in := s.headSample(l, hidden)
		in.First = first
		st.Add(s.job.pool, in)
		return nil
	})
	l.stats[headKey] = averaged(st)
	return err
}

// headPair gathers them together with their distance from those of the full-precision stream. Both go through the norm
// as it is after the transforms, which the head's columns match.
func (s *stream) headPair(ctx context.Context, l *Layer) error {
	p := newPaired(s, headKey.kind)
	err := s.hidden.chunks(ctx, func(lo, hi int) error {
		full, err := p.loadFull(lo, hi)
		if err != nil {
			return err
		}
		p.keep(s.headSample(l, full))
		hidden, err := s.hidden.load(lo, hi)
		if err != nil {
			return err
		}
		p.add(s.headSample(l, hidden))
		return nil
	})
	if err != nil {
		return err
	}
	l.stats[headKey] = p.sums[headKey].finish(s.job.pool)
	return nil
}

// headSample is the head's input for a chunk of final states.
func (s *stream) headSample(l *Layer, states kernel.Mat) forward.Sample {
	x := kernel.MatF32(states.Rows, states.Cols, make([]float32, states.Rows*states.Cols))
	s.job.pool.Run(x.Rows, func(i int) { kernel.RMSNorm(x.Row(i), states.Row(i), l.head.norm, float32(l.Model.Eps)) })
	return forward.Sample{Kind: headKey.kind, Expert: headKey.expert, X: x}
}
