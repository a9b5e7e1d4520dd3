package forward

import (
	"context"
	"fmt"
	"math"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/internal/kernel"
)

// Sample is one look at the input of a group of linears (arch.Input) for some tokens of a chunk.
type Sample struct {
	Kind   arch.InputKind
	Expert int        // -1 outside experts
	X      kernel.Mat // [tokens, width] float32; valid during the call only, and not to be changed
	First  int        // row i belongs to token First+i of the hidden states …
	Tokens []int32    // … or to First+Tokens[i] for an expert, which sees only the tokens routed to it
}

// Tap receives every input on the way through a block, in an order that depends on shapes (and for experts on the
// routing) alone. It runs on the calling goroutine.
type Tap func(Sample)

// NonFiniteStateError says that the residual stream left the range of float32 in a layer, which weights that
// overflow, or a transform that is not function-preserving, cause.
type NonFiniteStateError struct {
	Layer, Token, Channel int
}

func (e *NonFiniteStateError) Error() string {
	return fmt.Sprintf("layer %d: the hidden state of token %d is not finite in channel %d", e.Layer, e.Token, e.Channel)
}

// Selection narrows what Collect computes.
type Selection struct {
	Last arch.InputKind // stop after this input
	// Experts restricts a mixture to experts with Experts(i) true; the others are neither computed nor tapped. nil: all.
	Experts func(expert int) bool
}

// Forward replaces hidden, [tokens, hidden] of whole windows, by the block's output. tap may be nil.
func (r *Runner) Forward(ctx context.Context, b *Block, hidden kernel.Mat, tap Tap) error {
	return r.sweep(ctx, b, hidden, pass{attn: true, mlp: true, update: true, tap: tap, last: arch.DownIn})
}

// ForwardAttn is the first half of Forward: hidden += attention(norm(hidden)).
func (r *Runner) ForwardAttn(ctx context.Context, b *Block, hidden kernel.Mat, tap Tap) error {
	return r.sweep(ctx, b, hidden, pass{attn: true, update: true, tap: tap, last: arch.OIn})
}

// ForwardMLP is the second half of Forward, on the output of ForwardAttn.
func (r *Runner) ForwardMLP(ctx context.Context, b *Block, hidden kernel.Mat, tap Tap) error {
	return r.sweep(ctx, b, hidden, pass{mlp: true, update: true, tap: tap, last: arch.DownIn})
}

// ForwardFrom is ForwardAttn (kind OIn) or ForwardMLP (DownIn, of a dense MLP) for a caller that has kept the samples of
// that kind, [tokens, width], so that only the last linear of the half is left: hidden += inputs·Wᵀ. With UseBF16 they may be kept in bfloat16, if their
// width is even. The bits are the same.
func (r *Runner) ForwardFrom(ctx context.Context, b *Block, kind arch.InputKind, hidden, inputs kernel.Mat) error {
	last := &b.O
	if kind == arch.DownIn {
		last = &b.Down
	}
	for lo := 0; lo < hidden.Rows; lo += r.size.chunk {
		if err := ctx.Err(); err != nil {
			return err
		}
		hi := min(hidden.Rows, lo+r.size.chunk)
		x := rows(hidden, lo, hi)
		r.apply(last, x, r.input(rows(inputs, lo, hi)), true)
		if err := checkFinite(r.pool, b, x, lo); err != nil {
			return err
		}
	}
	return nil
}

// Collect shows the block's inputs up to sel.Last to tap and leaves hidden as it is.
func (r *Runner) Collect(ctx context.Context, b *Block, hidden kernel.Mat, sel Selection, tap Tap) error {
	return r.sweep(ctx, b, hidden, pass{attn: true, mlp: sel.Last >= arch.MLPIn, tap: tap, last: sel.Last, experts: sel.Experts})
}

// CollectMLP is Collect for the second half, on the output of ForwardAttn.
func (r *Runner) CollectMLP(ctx context.Context, b *Block, hidden kernel.Mat, sel Selection, tap Tap) error {
	return r.sweep(ctx, b, hidden, pass{mlp: true, tap: tap, last: sel.Last, experts: sel.Experts})
}

// pass says what one sweep over the hidden states does.
type pass struct {
	attn, mlp bool
	update    bool // write the result back
	last      arch.InputKind
	experts   func(int) bool
	tap       Tap
	first     int // token of the chunk's first row
}

func (p *pass) show(kind arch.InputKind, expert int, x kernel.Mat, row int, tokens []int32) {
	if p.tap != nil {
		p.tap(Sample{Kind: kind, Expert: expert, X: x, First: p.first + row, Tokens: tokens})
	}
}

// wants reports whether the results after input kind are needed.
func (p *pass) wants(after arch.InputKind) bool { return p.update || p.last > after }

func (r *Runner) sweep(ctx context.Context, b *Block, hidden kernel.Mat, p pass) error {
	for lo := 0; lo < hidden.Rows; lo += r.size.chunk {
		if err := ctx.Err(); err != nil {
			return err
		}
		x := rows(hidden, lo, min(hidden.Rows, lo+r.size.chunk))
		if !p.update && p.attn && p.mlp {
			x = r.copyOf(x)
		}
		p.first = lo
		if p.attn {
			r.attnHalf(b, x, &p)
		}
		if p.mlp {
			if err := r.mlpHalf(b, x, &p); err != nil {
				return err
			}
		}
		if p.update {
			if err := checkFinite(r.pool, b, x, lo); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Runner) copyOf(x kernel.Mat) kernel.Mat {
	c := buffer(&r.keep, x.Rows, x.Cols)
	forRows(r.pool, x.Rows, func(i int) { copy(c.Row(i), x.Row(i)) })
	return c
}

// attnHalf adds the attention module's output to x, a chunk of whole windows.
func (r *Runner) attnHalf(b *Block, x kernel.Mat, p *pass) {
	for lo := 0; lo < x.Rows; lo += r.size.attnRows {
		h := rows(x, lo, min(x.Rows, lo+r.size.attnRows))
		xnorm := r.normed(h, b.AttnNorm)
		p.show(arch.AttnIn, -1, xnorm, lo, nil)
		if !p.wants(arch.AttnIn) {
			continue
		}
		o := r.heads(b, xnorm)
		p.show(arch.OIn, -1, o, lo, nil)
		if p.wants(arch.OIn) {
			r.apply(&b.O, h, r.input(o), true)
		}
	}
}

// normed returns the RMS norm of x in the runner's buffer.
func (r *Runner) normed(x kernel.Mat, weight []float32) kernel.Mat {
	xnorm := buffer(&r.norm, x.Rows, x.Cols)
	r.normInto(xnorm, x, weight)
	return xnorm
}

func (r *Runner) normInto(dst, x kernel.Mat, weight []float32) {
	eps := float32(r.model.Eps)
	forRows(r.pool, x.Rows, func(i int) { kernel.RMSNorm(dst.Row(i), x.Row(i), weight, eps) })
}

// mlpHalf adds the MLP's output to x.
func (r *Runner) mlpHalf(b *Block, x kernel.Mat, p *pass) error {
	if b.Arch.MoE != nil {
		xnorm := r.normed(x, b.MLPNorm)
		return r.mixture(b, x, xnorm, p)
	}
	for lo := 0; lo < x.Rows; lo += r.size.mlpRows {
		h := rows(x, lo, min(x.Rows, lo+r.size.mlpRows))
		r.dense(&b.MLP, h, r.normed(h, b.MLPNorm), true, lo, p)
	}
	return nil
}

// dense computes dst = mlp(xnorm), or adds it.
func (r *Runner) dense(m *MLP, dst, xnorm kernel.Mat, accumulate bool, row int, p *pass) {
	p.show(arch.MLPIn, -1, xnorm, row, nil)
	if !p.wants(arch.MLPIn) {
		return
	}
	a := r.gated(m, xnorm)
	p.show(arch.DownIn, -1, a, row, nil)
	if p.wants(arch.DownIn) {
		r.apply(&m.Down, dst, r.input(a), accumulate)
	}
}

// gated returns silu(gate(x))·up(x), [rows of x, intermediate], in the runner's buffer.
func (r *Runner) gated(m *MLP, x kernel.Mat) kernel.Mat {
	g := buffer(&r.gate, x.Rows, m.Gate.W.Rows)
	u := buffer(&r.up, x.Rows, m.Up.W.Rows)
	in := r.input(x)
	r.apply(&m.Gate, g, in, false)
	r.apply(&m.Up, u, in, false)
	forRows(r.pool, x.Rows, func(i int) { kernel.SiluMul(g.Row(i), g.Row(i), u.Row(i)) })
	return g
}

// Attention computes the attention module on normalised inputs, before the residual: dst, xnorm [tokens, hidden] of
// whole windows.
func (r *Runner) Attention(b *Block, dst, xnorm kernel.Mat) {
	for lo := 0; lo < xnorm.Rows; lo += r.size.attnRows {
		hi := min(xnorm.Rows, lo+r.size.attnRows)
		r.apply(&b.O, rows(dst, lo, hi), r.input(r.heads(b, rows(xnorm, lo, hi))), false)
	}
}

// MLP computes the dense or mixture module on normalised inputs, before the residual: dst, xnorm [tokens, hidden]. An
// error can only come from fetching an expert.
func (r *Runner) MLP(b *Block, dst, xnorm kernel.Mat) error {
	p := pass{update: true}
	step := r.size.mlpRows
	if b.Arch.MoE != nil {
		step = r.size.chunk
	}
	for lo := 0; lo < xnorm.Rows; lo += step {
		hi := min(xnorm.Rows, lo+step)
		d, x := rows(dst, lo, hi), rows(xnorm, lo, hi)
		if b.Arch.MoE == nil {
			r.dense(&b.MLP, d, x, false, lo, &p)
			continue
		}
		forRows(r.pool, d.Rows, func(i int) { clear(d.Row(i)) })
		if err := r.mixture(b, d, x, &p); err != nil {
			return err
		}
	}
	return nil
}

// checkFinite finds the first value of x that is NaN or infinite.
func checkFinite(p *kernel.Pool, b *Block, x kernel.Mat, first int) error {
	bad := make([]int, x.Rows) // channel+1
	forRows(p, x.Rows, func(i int) {
		const exponent = 0x7f800000
		for j, v := range x.Row(i) {
			if math.Float32bits(v)&exponent == exponent {
				bad[i] = j + 1
				return
			}
		}
	})
	for i, c := range bad {
		if c > 0 {
			return &NonFiniteStateError{Layer: b.Arch.Index, Token: first + i, Channel: c - 1}
		}
	}
	return nil
}
