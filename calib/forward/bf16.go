package forward

import (
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/internal/kernel"
)

// UseBF16 makes the runner round the inputs and weights of the block's large linears to bfloat16 before it multiplies them,
// as serving engines and training do. Sums stay float32, and so does everything else: norms, attention scores, routers,
// heads, the residual stream. It is about twice as fast on processors with bfloat16 products, and the same bits on all.
func (r *Runner) UseBF16() { r.bf16 = true }

// BF16Bytes is what UseBF16 adds to ScratchBytes: the inputs of a step, a weight that is not stored in bfloat16, and two
// operands of Products.
func BF16Bytes(m *arch.Model, windows, seqLen int) int64 {
	s := sizesOf(m, 1, windows, seqLen)
	var largest int64
	for i := range m.Blocks {
		for _, l := range m.Blocks[i].Linears() {
			largest = max(largest, int64(l.Out)*int64(l.In))
		}
	}
	rows := int64(max(s.attnRows, s.mlpRows, s.chunk))
	width := int64(max(s.hidden, s.q, s.inter))
	return 2 * (3*(rows+2)*width + largest)
}

// input is what linears read, rounded once for all that share it.
type input struct {
	x      kernel.Mat // [tokens, width] float32
	narrow kernel.Mat // the same in bfloat16; empty where products take float32
}

// input prepares x for linears; valid until the next call.
func (r *Runner) input(x kernel.Mat) input {
	if x.Kind == kernel.BF16 { // rounded already
		return input{narrow: x}
	}
	in := input{x: x}
	if r.bf16 && x.Cols%2 == 0 && x.Rows > 0 { // products take pairs
		in.narrow = kernel.MatU16(kernel.BF16, x.Rows, x.Cols, grow(&r.narrow, x.Rows*x.Cols))
		kernel.NarrowRows(r.pool, in.narrow, x)
	}
	return in
}

// apply computes dst = x·Wᵀ + bias, or adds it to dst.
func (r *Runner) apply(l *Linear, dst kernel.Mat, in input, accumulate bool) {
	if in.narrow.Rows == 0 {
		kernel.GemmNT(r.pool, dst, in.x, l.W, accumulate)
	} else {
		kernel.GemmNTBF16(r.pool, dst, in.narrow, r.narrowed(l.W), accumulate)
	}
	l.addBias(r.pool, dst)
}

// narrowed returns a weight in bfloat16: as it is, or a copy that is valid until the next call.
func (r *Runner) narrowed(w kernel.Mat) kernel.Mat {
	if w.Kind == kernel.BF16 && w.Stride%2 == 0 {
		return w
	}
	n := kernel.MatU16(kernel.BF16, w.Rows, w.Cols, grow(&r.weight, w.Rows*w.Cols))
	kernel.NarrowRows(r.pool, n, w)
	return n
}
