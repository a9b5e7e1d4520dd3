package quant

import (
	"math"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
)

// gather collects what the recipe needs while the windows pass through a block.
type gather struct {
	stream    *stream
	collector *forward.Collector
	only      *arch.InputKind // restricts to one kind of input
	every     int             // one window in this many is kept for re-running modules; 0: none
	attn, mlp []float32
}

func newGather(s *stream, l *Layer, needs Need) *gather {
	g := &gather{stream: s}
	want := forward.Want(0)
	for need, w := range map[Need]forward.Want{NeedAbsMean: forward.WantAbsSum, NeedGram: forward.WantGram, NeedMaxAbs: forward.WantMaxAbs} {
		if needs.Has(need) {
			want |= w
		}
	}
	g.collector = forward.NewCollector(s.job.pool, l.Arch, 1, func(arch.Input) forward.Want { return want })
	if s.job.recipe.BF16 {
		g.collector.UseBF16()
	}
	if needs.Has(NeedModules) {
		keep := max(searchTokens/s.job.opts.Calib.SeqLen, 1)
		g.every = max(s.job.opts.Calib.Windows/keep, 1)
	}
	return g
}

// tap receives one input of some tokens.
func (g *gather) tap(in forward.Sample) {
	if g.only != nil && in.Kind != *g.only {
		return
	}
	g.collector.Tap(in)
	if g.every == 0 || in.Expert >= 0 {
		return
	}
	switch in.Kind {
	case arch.AttnIn:
		g.attn = g.keep(g.attn, in)
	case arch.MLPIn:
		g.mlp = g.keep(g.mlp, in)
	}
}

// keep appends the rows of the windows that are kept.
func (g *gather) keep(rows []float32, in forward.Sample) []float32 {
	for i := range in.X.Rows {
		if window := (in.First + i) / g.stream.runner.SeqLen(); window%g.every == 0 {
			rows = append(rows, in.X.Row(i)...)
		}
	}
	return rows
}

// finish turns sums into the layer's statistics.
func (g *gather) finish(l *Layer) {
	for _, in := range l.Arch.Inputs() {
		if st := g.collector.Stat(in.Kind, in.Expert); st != nil && (g.only == nil || in.Kind == *g.only) {
			l.stats[inputKey{in.Kind, in.Expert}] = averaged(st)
		}
	}
	if g.every > 0 {
		h := l.Model.Hidden
		l.attnIn = kernel.MatF32(len(g.attn)/h, h, g.attn)
		l.mlpIn = kernel.MatF32(len(g.mlp)/h, h, g.mlp)
		seq := g.stream.runner.SeqLen()
		l.search = forward.NewRunner(l.Model, l.pool, l.attnIn.Rows/seq, seq)
	}
}

// averaged divides sums by the number of tokens and fills both triangles of the Gram matrix.
func averaged(st *forward.Stat) *Stats {
	s := &Stats{K: st.Width, Tokens: st.Tokens, MaxAbs: st.MaxAbs, Gram: st.Gram}
	if st.AbsSum != nil {
		s.AbsMean = make([]float32, st.Width)
		for k, v := range st.Mean(st.AbsSum) {
			s.AbsMean[k] = float32(v)
		}
	}
	if st.Gram == nil || st.Tokens == 0 {
		return s
	}
	n := 1 / float64(st.Tokens)
	for i := range s.K {
		for k := range i + 1 {
			v := s.Gram[i*s.K+k] * n
			s.Gram[i*s.K+k], s.Gram[k*s.K+i] = v, v
		}
	}
	return s
}

// foldCheck remembers what the modules of a block computed on one search window before a transform.
type foldCheck struct{ attn, mlp kernel.Mat }

func newFoldCheck(l *Layer) (*foldCheck, error) {
	if l.search == nil {
		return nil, nil
	}
	attn, mlp := l.window()
	a, err := l.output(l.attention, attn)
	if err != nil {
		return nil, err
	}
	m, err := l.output(l.search.MLP, mlp)
	return &foldCheck{attn: a, mlp: m}, err
}

// window returns one window of each module's inputs.
func (l *Layer) window() (attn, mlp kernel.Mat) {
	n := min(l.search.SeqLen(), l.attnIn.Rows)
	return l.attnIn.Slice(0, n, 0, l.attnIn.Cols), l.mlpIn.Slice(0, n, 0, l.mlpIn.Cols)
}

// moduleFunc runs the attention or MLP module of a block on normalised inputs.
type moduleFunc func(b *forward.Block, dst, x kernel.Mat) error

func (l *Layer) attention(b *forward.Block, dst, x kernel.Mat) error {
	l.search.Attention(b, dst, x)
	return nil
}

// output allocates a module's output for these inputs and computes it.
func (l *Layer) output(run moduleFunc, x kernel.Mat) (kernel.Mat, error) {
	out := kernel.MatF32(x.Rows, l.Model.Hidden, make([]float32, x.Rows*l.Model.Hidden))
	return out, run(l.Block, out, x)
}

// verify runs the rewritten modules on the rewritten inputs: a norm's weights were divided by s, so its output is.
func (c *foldCheck) verify(l *Layer) error {
	if c == nil {
		return nil
	}
	attn, mlp := l.window()
	for _, m := range []struct {
		name   string
		want   kernel.Mat
		in     kernel.Mat
		before []float32
		after  []float32
		run    moduleFunc
	}{
		{"attention", c.attn, attn, l.normBefore[l.Arch.AttnNorm], l.Block.AttnNorm, l.attention},
		{"MLP", c.mlp, mlp, l.normBefore[l.Arch.MLPNorm], l.Block.MLPNorm, l.search.MLP},
	} {
		in := kernel.MatF32(m.in.Rows, m.in.Cols, widened(m.in))
		for i := 0; m.before != nil && i < in.Rows; i++ {
			for k, row := 0, in.Row(i); k < len(row); k++ {
				if m.before[k] != 0 {
					row[k] *= m.after[k] / m.before[k]
				}
			}
		}
		got, err := l.output(m.run, in)
		if err != nil {
			return err
		}
		if e := relError(got.F32, m.want.F32); e > foldTolerance || math.IsNaN(e) {
			return safeio.Corruptf("layer %d: the transforms changed the %s's output by %.2g, more than %g: this is a defect of the transform", l.Index, m.name, e, foldTolerance)
		}
	}
	return nil
}
