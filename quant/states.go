package quant

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/internal/kernel"
)

// states are hidden states of all calibration windows, [rows, cols]: in memory, or in a file when memory is short. Passes
// take them in chunks of whole windows, the very chunks in which a forward.Runner works, so where they are is no part of
// the result.
type states struct {
	rows, cols int
	step       int        // rows of a chunk
	mem        kernel.Mat // all rows; empty when they are in a file
	// A pass that changes the states reads them from one file and writes them to another, so that what a killed run needs
	// again stays as it was; both may be the same file.
	from, to backing
	chunk    []float32 // [step, cols] of a file
	piece    []byte    // scratch for conversion
}

// backing is a file of little-endian float32, row by row.
type backing interface {
	io.ReaderAt
	io.WriterAt
}

// pieceBytes is how much of a file is read or written at a time.
const pieceBytes = 1 << 20

// newStates prepares zero states in memory, or those of a file that the caller sets as from and to.
func newStates(rows, cols, step int, inFile bool) states {
	s := states{rows: rows, cols: cols, step: min(step, rows), piece: make([]byte, pieceBytes)}
	if inFile {
		s.chunk = make([]float32, s.step*cols)
	} else {
		s.mem = kernel.MatF32(rows, cols, make([]float32, rows*cols))
	}
	return s
}

// inFile reports where the states are.
func (s *states) inFile() bool { return s.mem.Rows == 0 }

// bytes is the size of all states.
func (s *states) bytes() int64 { return 4 * int64(s.rows) * int64(s.cols) }

// load returns rows lo … hi-1, at most a chunk of them; in a file's case they are valid until the next call.
func (s *states) load(lo, hi int) (kernel.Mat, error) {
	if !s.inFile() {
		return s.mem.Slice(lo, hi, 0, s.cols), nil
	}
	x := s.chunk[:(hi-lo)*s.cols]
	return kernel.MatF32(hi-lo, s.cols, x), s.read(s.from, x, lo)
}

// store puts back what load returned.
func (s *states) store(x kernel.Mat, lo int) error {
	if !s.inFile() {
		return nil
	}
	return s.write(s.to, x.F32[:x.Rows*s.cols], lo)
}

// read fills x with the rows of a file from row lo on.
func (s *states) read(f backing, x []float32, lo int) error {
	for off := 4 * int64(lo) * int64(s.cols); len(x) > 0; {
		n := min(len(x), len(s.piece)/4)
		if _, err := f.ReadAt(s.piece[:4*n], off); err != nil {
			return err
		}
		for i := range x[:n] {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(s.piece[4*i:]))
		}
		x, off = x[n:], off+4*int64(n)
	}
	return nil
}

// write puts x into the rows of a file from row lo on.
func (s *states) write(f backing, x []float32, lo int) error {
	for off := 4 * int64(lo) * int64(s.cols); len(x) > 0; {
		n := min(len(x), len(s.piece)/4)
		for i, v := range x[:n] {
			binary.LittleEndian.PutUint32(s.piece[4*i:], math.Float32bits(v))
		}
		if _, err := f.WriteAt(s.piece[:4*n], off); err != nil {
			return err
		}
		x, off = x[n:], off+4*int64(n)
	}
	return nil
}

// chunks calls f for the first row and the end of every chunk, in order.
func (s *states) chunks(ctx context.Context, f func(lo, hi int) error) error {
	for lo := 0; lo < s.rows; lo += s.step {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := f(lo, min(lo+s.step, s.rows)); err != nil {
			return err
		}
	}
	return nil
}

// embed makes the states the embeddings of ids.
func (s *states) embed(ctx context.Context, embed func(dst kernel.Mat, ids []int32) error, ids []int32) error {
	if !s.inFile() {
		return embed(s.mem, ids) // reads every row of the table once
	}
	return s.chunks(ctx, func(lo, hi int) error {
		x := kernel.MatF32(hi-lo, s.cols, s.chunk[:(hi-lo)*s.cols])
		if err := embed(x, ids[lo:hi]); err != nil {
			return err
		}
		return s.store(x, lo)
	})
}

// look shows all states to f, chunk by chunk.
func (s *states) look(ctx context.Context, f func(first int, x kernel.Mat) error) error {
	return s.chunks(ctx, func(lo, hi int) error {
		x, err := s.load(lo, hi)
		if err != nil {
			return err
		}
		return f(lo, x)
	})
}

// pass is one of a Runner's passes that replace hidden states.
type pass func(ctx context.Context, b *forward.Block, hidden kernel.Mat, tap forward.Tap) error

// forward replaces the states by what a pass makes of them.
func (s *states) forward(ctx context.Context, run pass, b *forward.Block, tap forward.Tap) error {
	return s.update(ctx, func(first int, x kernel.Mat) error { return run(ctx, b, x, behind(tap, first)) })
}

// update replaces the states by what f makes of every chunk.
func (s *states) update(ctx context.Context, f func(first int, x kernel.Mat) error) error {
	err := s.look(ctx, func(first int, x kernel.Mat) error {
		if err := f(first, x); err != nil {
			return behindError(err, first)
		}
		return s.store(x, first)
	})
	if err == nil {
		s.from = s.to
	}
	return err
}

// collector is one of a Runner's passes that only look.
type collector func(ctx context.Context, b *forward.Block, hidden kernel.Mat, sel forward.Selection, tap forward.Tap) error

// collect shows the block's inputs up to sel.Last to tap.
func (s *states) collect(ctx context.Context, run collector, b *forward.Block, sel forward.Selection, tap forward.Tap) error {
	return s.look(ctx, func(first int, x kernel.Mat) error { return run(ctx, b, x, sel, behind(tap, first)) })
}

// behind counts the tokens of samples from the first row of a chunk.
func behind(tap forward.Tap, first int) forward.Tap {
	if tap == nil || first == 0 {
		return tap
	}
	return func(in forward.Sample) {
		in.First += first
		tap(in)
	}
}

// behindError does the same for the place of a state that is not finite.
func behindError(err error, first int) error {
	if e := (*forward.NonFiniteStateError)(nil); errors.As(err, &e) {
		e.Token += first
	}
	return err
}
