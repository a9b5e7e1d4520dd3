package quant

import (
	"context"
	"errors"

	"github.com/llmquant/quantize/formats/gguf"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid/ggml"
)

// encode streams a tensor: rows are read in order, encoded by all threads, written in order. Behind a non-finite value
// that may not be replaced, rows are only counted.
func (g *ggufJob) encode(ctx context.Context, e *rowEncoder) error {
	t := e.t
	cols, total := t.NE[0], t.Rows()
	if t.Elements() == 0 {
		return nil
	}
	rowBytes, _ := t.Type.RowBytes(cols)
	step := chunkRows(cols, g.pool.Threads())
	if e.rounder != nil { // which needs more rows at a time to keep all threads at work
		step *= 8
	}
	var in rawRows
	out := make([]byte, min(step, total)*rowBytes)
	for first := int64(0); first < total; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if in, err = g.plan.source.rows(t, in, first, min(step, total-first)); err != nil {
			return err
		}
		n := in.count()
		b := out[:n*rowBytes]
		if err := e.run(g.job, b, &in, first); err != nil {
			return err
		}
		if e.bad.count == 0 || e.zero {
			if err := g.out.Write(t.Name, first*rowBytes, b); err != nil {
				return err
			}
		}
		first += n
	}
	if err := g.admit(e.bad, t.Name, t.Shape(), -1); err != nil {
		return err
	}
	return outOfRange(e.lost, t.Name, t.Type.String(), t.Shape())
}

// rowEncoder encodes rows of one tensor and adds up the error it makes.
type rowEncoder struct {
	t          *gguf.Tensor
	grid       *ggml.Type // nil for plain float types
	importance []float32  // [matrices, columns]
	rounder    rowRounder // nil: the reference search
	zero       bool       // takes zero for what is not finite
	bad        census     // of what is not finite
	lost       census     // of what only the stored type could not hold
	err, power float64
	spare      chan *rowScratch // one per thread
}

// rowRounder rounds rows x[rows, columns] into blocks. It may use all threads.
type rowRounder func(x []float32, rows int) (blocks []byte, err error)

// rowScratch is what one task works in: its rows, and one row decoded again.
type rowScratch struct{ x, back []float32 }

// tileRows is how many rows of cols numbers one task encodes: 64 Ki numbers, which stay in the second-level cache from
// reading to the last look, in whole steps of 16 rows. Rows are independent, so it is no part of the result.
func tileRows(cols int64) int64 { return max(1<<16/max(cols, 1)/16, 1) * 16 }

// rowTile is the outcome of one task.
type rowTile struct {
	err        error
	diff, norm float64
	bad, lost  census
}

// run encodes rows from row first on.
func (e *rowEncoder) run(j *job, dst []byte, in *rawRows, first int64) error {
	n := in.count()
	if e.spare == nil {
		e.spare = make(chan *rowScratch, j.pool.Threads())
		for range cap(e.spare) {
			e.spare <- &rowScratch{make([]float32, min(tileRows(in.cols), e.t.Rows())*in.cols), make([]float32, in.cols)}
		}
	}
	if err := e.round(j, dst, in); err != nil {
		return err
	}
	rowBytes := int64(len(dst)) / n
	step := tileRows(in.cols)
	tiles := make([]rowTile, (n+step-1)/step)
	j.pool.Run(len(tiles), func(i int) {
		lo := int64(i) * step
		hi := min(lo+step, n)
		scratch := <-e.spare
		defer func() { e.spare <- scratch }()
		x := scratch.x[:(hi-lo)*in.cols]
		if tiles[i].err = in.decode(x, lo); tiles[i].err == nil {
			e.tile(&tiles[i], dst[lo*rowBytes:hi*rowBytes], x, scratch.back, first+lo)
		}
	})
	for i := range tiles {
		t := &tiles[i]
		if t.err != nil {
			return t.err
		}
		e.bad.add(t.bad)
		e.lost.add(t.lost)
		e.err, e.power = e.err+t.diff, e.power+t.norm
	}
	return nil
}

// round lets the rounder, if there is one, work on all rows at once.
func (e *rowEncoder) round(j *job, dst []byte, in *rawRows) error {
	if e.rounder == nil {
		return nil
	}
	x := make([]float32, in.count()*in.cols)
	if err := in.decode(x, 0); err != nil {
		return err
	}
	var bad census
	if bad.lookFloats(x, 0, e.zero); bad.count > 0 && !e.zero {
		return nil // the tiles count them
	}
	blocks, err := e.rounder(x, int(in.count()))
	copy(dst, blocks)
	return err
}

// tile encodes rows x from row first on. What is not finite shows when encoding fails, or in plain numbers once they are
// stored; only then values are looked at one by one.
func (e *rowEncoder) tile(t *rowTile, dst []byte, x, back []float32, first int64) {
	at, err := e.encodeRows(t, dst, x, back, first)
	if !e.suspect(dst, x, err) {
		if err != nil {
			t.err = encodeError(e.t, at, err)
		}
		return
	}
	t.bad.lookFloats(x, first*e.t.NE[0], e.zero)
	switch {
	case t.bad.count == 0 && err != nil: // importance, for instance
		t.err = encodeError(e.t, at, err)
	case t.bad.count > 0 && e.zero:
		t.diff, t.norm = 0, 0
		if at, err = e.encodeRows(t, dst, x, back, first); err != nil {
			t.err = encodeError(e.t, at, err)
		}
	}
	t.lost.look(e.t.Type.DType(), dst, first*e.t.NE[0], false)
}

// suspect reports whether rows may hold something that is not finite, or that the stored type turned into that.
func (e *rowEncoder) suspect(dst []byte, x []float32, err error) bool {
	var bad *ggml.NonFiniteError
	d := e.t.Type.DType()
	_, half := halves[d]
	switch {
	case errors.As(err, &bad):
		return true
	case e.grid != nil && e.rounder == nil:
		return false
	case half:
		return !finiteHalves(dst, exponents[d])
	}
	return !allFinite(x)
}

// encodeRows encodes a tile, which may touch two matrices with their own importance, and adds up the error it makes. row
// is that of the part with an error.
func (e *rowEncoder) encodeRows(t *rowTile, dst []byte, x, back []float32, first int64) (row int64, err error) {
	if e.grid == nil {
		return first, e.plain(dst, x)
	}
	cols := e.t.NE[0]
	rowBytes := int64(len(dst)) / (int64(len(x)) / cols)
	for row = first; len(x) > 0; {
		matrix := row / e.t.NE[1]
		n := min(int64(len(x))/cols, (matrix+1)*e.t.NE[1]-row)
		if err := e.matrixRows(t, dst[:n*rowBytes], x[:n*cols], back, matrix); err != nil {
			return row, err
		}
		dst, x, row = dst[n*rowBytes:], x[n*cols:], row+n
	}
	return row, nil
}

func (e *rowEncoder) matrixRows(t *rowTile, dst []byte, x, back []float32, matrix int64) error {
	cols := len(back)
	rows := len(x) / cols
	if e.rounder == nil {
		var im []float32
		if e.importance != nil {
			im = e.importance[matrix*int64(cols):][:cols]
		}
		if err := e.grid.EncodeRows(dst, x, rows, cols, im); err != nil {
			return err
		}
	}
	rowBytes := len(dst) / rows
	for r := range rows {
		e.grid.DecodeRow(back, dst[r*rowBytes:(r+1)*rowBytes])
		row := x[r*cols : (r+1)*cols]
		t.diff += kernel.SqDiff(back, row)
		t.norm += kernel.Dot64(row, row)
	}
	return nil
}

// plain stores numbers without blocks.
func (e *rowEncoder) plain(dst []byte, x []float32) error {
	if kind, ok := halves[e.t.Type.DType()]; ok {
		kernel.NarrowBytes(dst, x, kind)
		return nil
	}
	return gguf.EncodeRows(dst, e.t.Type, x)
}
