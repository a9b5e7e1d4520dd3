package quant

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
)

// stream is the residual stream of the calibration windows on its way through the blocks.
type stream struct {
	job    *job
	hidden kernel.Mat // [windows·seqLen, hidden]
	full   kernel.Mat // the same of the full-precision model, with NeedShift: one window in every, in order
	every  int
	runner *forward.Runner
}

// searchTokens is how many tokens, in whole windows spread over the calibration set, modules are re-run on when a
// transform judges candidates by a module's output. Statistics come from all tokens.
const searchTokens = 8192

// begin makes the stream stand in front of layer first: embeddings, or the hidden states an earlier run saved.
func (s *stream) begin(ctx context.Context, first int) error {
	set, m := s.job.opts.Calib, s.job.plan.Model
	s.runner = forward.NewRunner(m, s.job.pool, set.Windows, set.SeqLen)
	tokens := set.Windows * set.SeqLen
	s.hidden = kernel.MatF32(tokens, m.Hidden, make([]float32, tokens*m.Hidden))
	if s.shifted() {
		s.every = shiftEvery(set.Windows, set.SeqLen)
		rows := s.shiftWindows(set.Windows) * set.SeqLen
		s.full = kernel.MatF32(rows, m.Hidden, make([]float32, rows*m.Hidden))
	}
	if first == 0 {
		if err := s.runner.Embed(s.hidden, set.IDs[:tokens], s.job.src); err != nil {
			return safeio.WithPath(err, s.job.src.Meta().Path)
		}
		for i := 0; i < s.full.Rows; i += set.SeqLen {
			copy(s.full.F32[i*m.Hidden:(i+set.SeqLen)*m.Hidden], s.hidden.F32[i*s.every*m.Hidden:])
		}
		return nil
	}
	for name, states := range s.blobs(first) {
		if err := s.load(name, states); err != nil {
			return err
		}
	}
	return nil
}

// shifted reports whether the full-precision stream runs beside the quantized one.
func (s *stream) shifted() bool { return s.job.recipe.Needs().Has(NeedShift) }

// blobs names the saved states in front of a layer.
func (s *stream) blobs(layer int) map[string]kernel.Mat {
	blobs := map[string]kernel.Mat{hiddenBlob(layer): s.hidden}
	if s.shifted() {
		blobs["full-"+hiddenBlob(layer)] = s.full
	}
	return blobs
}

// load reads saved states.
func (s *stream) load(name string, states kernel.Mat) error {
	r, err := s.job.out.LoadBlob(name)
	if err != nil {
		return err
	}
	defer r.Close()
	in := bufio.NewReaderSize(r, 1<<20)
	buf := make([]byte, 4*states.Cols)
	for i := range states.Rows {
		if _, err := io.ReadFull(in, buf); err != nil {
			return err
		}
		for k, row := 0, states.Row(i); k < len(row); k++ {
			row[k] = math.Float32frombits(binary.LittleEndian.Uint32(buf[4*k:]))
		}
	}
	return nil
}

// save keeps the states in front of a layer, so that a killed run loses one block at most.
func (s *stream) save(layer int) error {
	for name, states := range s.blobs(layer) {
		err := s.job.out.SaveBlob(name, func(w io.Writer) error {
			buf := make([]byte, 4*states.Cols)
			for i := range states.Rows {
				for k, v := range states.Row(i) {
					binary.LittleEndian.PutUint32(buf[4*k:], math.Float32bits(v))
				}
				if _, err := w.Write(buf); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// parallel gathers statistics in one forward pass with the original weights, whose output is the next layer's input,
// then transforms and rounds.
func (s *stream) parallel(ctx context.Context, l *Layer, round func(*arch.Linear) error) error {
	needs := s.job.recipe.Needs()
	g := newGather(s, l, needs)
	if err := s.runner.Forward(ctx, l.Block, s.hidden, g.tap); err != nil {
		return err
	}
	g.finish(l)
	if err := s.transform(ctx, l); err != nil {
		return err
	}
	return eachQuantized(l, l.Arch.Linears(), round)
}

// sequential quantizes the inputs' groups one after another, each with statistics gathered behind the already
// quantized part of the model, and passes the quantized block's output on (GPTQ's true sequential order).
func (s *stream) sequential(ctx context.Context, l *Layer, round func(*arch.Linear) error) error {
	needs := s.job.recipe.Needs()
	if len(s.job.recipe.Transforms) > 0 {
		g := newGather(s, l, needs)
		if err := s.runner.Collect(ctx, l.Block, s.hidden, forward.Selection{Last: arch.DownIn}, g.tap); err != nil {
			return err
		}
		g.finish(l)
		if err := s.transform(ctx, l); err != nil {
			return err
		}
	}
	original := cloneBlock(l.Block)
	for _, kind := range []arch.InputKind{arch.AttnIn, arch.OIn, arch.MLPIn, arch.DownIn} {
		if err := s.collect(ctx, l, original, kind); err != nil {
			return err
		}
		if err := eachQuantized(l, readers(l.Arch, kind), round); err != nil {
			return err
		}
		if kind == arch.OIn {
			if err := s.runner.ForwardAttn(ctx, l.Block, s.hidden, nil); err != nil {
				return err
			}
		}
	}
	return s.runner.ForwardMLP(ctx, l.Block, s.hidden, nil)
}

// collect gathers the statistics of one kind of input behind what is quantized so far.
func (s *stream) collect(ctx context.Context, l *Layer, original *forward.Block, kind arch.InputKind) error {
	if s.shifted() {
		return s.collectPair(ctx, l, original, kind)
	}
	collect := s.runner.Collect
	if kind >= arch.MLPIn {
		collect = s.runner.CollectMLP
	}
	g := newGather(s, l, s.job.recipe.Needs()&^NeedModules)
	g.only = &kind
	if err := collect(ctx, l.Block, s.hidden, forward.Selection{Last: kind}, g.tap); err != nil {
		return err
	}
	g.finish(l)
	return nil
}

// readers lists the quantizable linears that read inputs of a kind.
func readers(b *arch.Block, kind arch.InputKind) []*arch.Linear {
	var out []*arch.Linear
	for _, in := range b.Inputs() {
		for _, lin := range in.Linears {
			if in.Kind == kind && lin.Expert == in.Expert {
				out = append(out, lin)
			}
		}
	}
	return out
}

// foldTolerance is how much a block's output may change, relative to its own size, by rewriting its weights in float32.
const foldTolerance = 1e-5

// transform applies the recipe's transforms and checks on the search windows that the modules still compute the same.
func (s *stream) transform(ctx context.Context, l *Layer) error {
	if len(s.job.recipe.Transforms) == 0 {
		return nil
	}
	check, err := newFoldCheck(l)
	if err != nil {
		return err
	}
	for _, t := range s.job.recipe.Transforms {
		if err := t.Apply(ctx, l); err != nil {
			return fmt.Errorf("%s: %w", t.Name(), err)
		}
	}
	return check.verify(l)
}

// forget drops the hidden states in front of a finished layer.
func (s *stream) forget(layer int) {
	if layer > 0 {
		for name := range s.blobs(layer) {
			s.job.out.DropBlob(name)
		}
	}
}
