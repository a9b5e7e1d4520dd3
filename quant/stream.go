package quant

import (
	"context"
	"fmt"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/tensor"
)

// stream is the residual stream of the calibration windows on its way through the blocks.
type stream struct {
	job    *job
	hidden *residual
	full   *residual // the same of the full-precision model, with NeedShift: one window in every, in order
	every  int
	runner *forward.Runner
	replay replay
}

// searchTokens is how many tokens, in whole windows spread over the calibration set, modules are re-run on when a
// transform judges candidates by a module's output. Statistics come from all tokens.
const searchTokens = 8192

// begin makes the stream stand in front of layer first: embeddings, or the hidden states an earlier run saved.
func (s *stream) begin(ctx context.Context, first int) (err error) {
	set, m := s.job.opts.Calib, s.job.plan.Model
	s.close()
	s.runner = forward.NewRunner(m, s.job.pool, set.Windows, set.SeqLen)
	if s.job.recipe.BF16 {
		s.runner.UseBF16()
	}
	s.replay = newReplay(s.job.plan.Replay, s.job.recipe.BF16)
	// Feedback works behind the part of the model that is quantized already, and that starts with the embeddings.
	embeddings := tensor.Source(s.job.src)
	if first == 0 && s.job.recipe.Needs().Has(NeedSequential) {
		if embeddings, err = s.job.sink.embeddings(ctx); err != nil {
			return err
		}
	}
	ids := set.IDs[:set.Windows*set.SeqLen]
	if s.hidden, err = newResidual(ctx, s.job, "hidden", s.runner, first, embeddings, ids); err == nil && s.shifted() {
		s.every = shiftEvery(set.Windows, set.SeqLen)
		s.full, err = newResidual(ctx, s.job, "full-hidden", s.runner, first, s.job.src, everyWindow(ids, s.every, set.SeqLen))
	}
	return err
}

// shifted reports whether the full-precision stream runs beside the quantized one.
func (s *stream) shifted() bool { return s.job.recipe.Needs().Has(NeedShift) }

// residuals are the streams that run.
func (s *stream) residuals() []*residual {
	if s.shifted() {
		return []*residual{s.hidden, s.full}
	}
	return []*residual{s.hidden}
}

// save keeps the states in front of a layer, so that a killed run loses one block at most.
func (s *stream) save(layer int) error {
	for _, r := range s.residuals() {
		if err := r.save(layer); err != nil {
			return err
		}
	}
	return nil
}

// turn lets go of the states in front of a finished layer.
func (s *stream) turn() error {
	for _, r := range s.residuals() {
		if err := r.turn(); err != nil {
			return err
		}
	}
	return nil
}

// close closes the files of a stream that was begun.
func (s *stream) close() {
	if s != nil {
		s.hidden.close()
		s.full.close()
	}
}

// parallel gathers statistics in one forward pass with the original weights, whose output is the next layer's input,
// then transforms and rounds.
func (s *stream) parallel(ctx context.Context, l *Layer, round func(*arch.Linear) error) error {
	needs := s.job.recipe.Needs()
	g := newGather(s, l, needs)
	if err := s.hidden.forward(ctx, s.runner.Forward, l.Block, g.tap); err != nil {
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
		if err := s.hidden.collect(ctx, s.runner.Collect, l.Block, forward.Selection{Last: arch.DownIn}, g.tap); err != nil {
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
		if kind == arch.OIn || kind == arch.DownIn {
			if err := s.passHalf(ctx, l, kind); err != nil {
				return err
			}
		}
	}
	return nil
}

// collect gathers the statistics of one kind of input behind what is quantized so far.
func (s *stream) collect(ctx context.Context, l *Layer, original *forward.Block, kind arch.InputKind) error {
	for _, in := range l.Arch.Inputs() {
		if in.Kind == kind {
			s.replay.begin(kind, in.Width)
		}
	}
	if s.shifted() || s.job.recipe.Needs().Has(NeedGram32) {
		return s.collectPair(ctx, l, original, kind)
	}
	collect := s.runner.Collect
	if kind >= arch.MLPIn {
		collect = s.runner.CollectMLP
	}
	g := newGather(s, l, s.job.recipe.Needs()&^NeedModules)
	g.only = &kind
	tap := func(in forward.Sample) {
		g.tap(in)
		s.replay.keep(s.job.pool, in, in.First)
	}
	if err := s.hidden.collect(ctx, collect, l.Block, forward.Selection{Last: kind}, tap); err != nil {
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
