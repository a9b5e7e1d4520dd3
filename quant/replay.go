package quant

import (
	"context"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/internal/kernel"
)

// replay keeps what the last linear of a half block reads (o, or down of a dense MLP) from the pass that gathers its
// statistics to the pass that applies it quantized, so that the half need not be computed twice. It holds the first tokens,
// as many as its memory takes; the others are computed again. What it holds is no part of the result.
type replay struct {
	wide   []float32
	narrow []uint16 // instead of wide where products take bfloat16: half the memory for the same bits
	kind   arch.InputKind
	x      kernel.Mat // [tokens, width]
	tokens int        // the first ones, whose inputs are there
}

// newReplay takes bytes of memory.
func newReplay(bytes int64, bf16 bool) replay {
	if bf16 {
		return replay{narrow: make([]uint16, bytes/2)}
	}
	return replay{wide: make([]float32, bytes/4)}
}

// begin forgets what was kept and prepares for inputs of a kind.
func (r *replay) begin(kind arch.InputKind, width int) {
	r.kind, r.tokens, r.x = kind, 0, kernel.Mat{}
	if kind != arch.OIn && kind != arch.DownIn {
		return
	}
	if n := len(r.narrow) / width; n > 0 && width%2 == 0 { // products of odd widths are float32 in any case
		r.x = kernel.MatU16(kernel.BF16, n, width, r.narrow[:n*width])
	}
	if n := len(r.wide) / width; n > 0 {
		r.x = kernel.MatF32(n, width, r.wide[:n*width])
	}
}

// keep takes inputs of tokens from token on; calls come in order of tokens.
func (r *replay) keep(pool *kernel.Pool, in forward.Sample, token int) {
	end := token + in.X.Rows
	if in.Kind != r.kind || in.Expert >= 0 || token != r.tokens || end > r.x.Rows {
		return
	}
	if part := r.x.Slice(token, end, 0, r.x.Cols); part.Kind == kernel.BF16 {
		kernel.NarrowRows(pool, part, in.X)
	} else {
		pool.Run(in.X.Rows, func(i int) { copy(part.Row(i), in.X.Row(i)) })
	}
	r.tokens = end
}

// passHalf passes the half of the block whose last linear reads inputs of a kind, all of it quantized by now.
func (s *stream) passHalf(ctx context.Context, l *Layer, kind arch.InputKind) error {
	run, kept := s.runner.ForwardAttn, &s.replay
	if kind == arch.DownIn {
		run = s.runner.ForwardMLP
	}
	return s.hidden.update(ctx, func(first int, x kernel.Mat) error {
		if kept.kind == kind && first+x.Rows <= kept.tokens {
			return s.runner.ForwardFrom(ctx, l.Block, kind, x, kept.x.Slice(first, first+x.Rows, 0, kept.x.Cols))
		}
		return run(ctx, l.Block, x, nil)
	})
}

// replayBytes is what keeping the inputs of all calibration tokens takes, for the widest of them.
func replayBytes(m *arch.Model, r *Recipe, o *Options) int64 {
	size := int64(4)
	if r.BF16 {
		size = 2
	}
	var width int64
	for i := range m.Blocks {
		for _, in := range m.Blocks[i].Inputs() {
			if in.Expert < 0 && (in.Kind == arch.OIn || in.Kind == arch.DownIn) {
				width = max(width, int64(in.Width))
			}
		}
	}
	return size * width * int64(o.Calib.Windows) * int64(o.Calib.SeqLen)
}
