package quant

import (
	"context"
	"fmt"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/kernel"
)

// residual is one residual stream and the two files of the job that hold it in turn: kept has the states in front of the
// block in work, so that a killed run loses one block at most, and next gets those behind it.
type residual struct {
	states
	job        *job
	name       string // of its blobs
	kept, next *formats.Blob
}

func (r *residual) blob(layer int) string { return fmt.Sprintf("%s-%d", r.name, layer) }

// newResidual makes the stream stand in front of layer first: embeddings, or the states that an earlier run saved.
// The embeddings are those of src for ids, whole windows.
func newResidual(ctx context.Context, j *job, name string, runner *forward.Runner, first int, src tensor.Source, ids []int32) (*residual, error) {
	r := &residual{states: newStates(len(ids), j.plan.Model.Hidden, runner.ChunkTokens(), j.plan.StatesOnDisk), job: j, name: name}
	err := r.open(ctx, first, ids, func(dst kernel.Mat, ids []int32) error {
		if err := runner.Embed(dst, ids, src); err != nil {
			return safeio.WithPath(err, j.src.Meta().Path)
		}
		return nil
	})
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *residual) open(ctx context.Context, first int, ids []int32, embed func(kernel.Mat, []int32) error) (err error) {
	out := r.job.out
	out.DropBlob(r.blob(first + 1)) // of a layer that was not finished
	switch {
	case first > 0:
		r.kept, err = out.OpenBlob(r.blob(first))
	case r.inFile():
		r.kept, err = out.NewBlob(r.bytes())
	}
	if err != nil {
		return err
	}
	if r.next, err = out.NewBlob(r.bytes()); err != nil {
		return err
	}
	switch {
	case first == 0:
		r.from, r.to = r.kept, r.kept
		if err := r.embed(ctx, embed, ids); err != nil {
			return err
		}
	case !r.inFile():
		if err := r.read(r.kept, r.mem.F32, 0); err != nil {
			return err
		}
	}
	r.from, r.to = r.kept, r.next
	return nil
}

// save promises the states in front of a layer.
func (r *residual) save(layer int) error {
	if !r.inFile() {
		if err := r.write(r.next, r.mem.F32, 0); err != nil {
			return err
		}
	}
	return r.next.Commit(r.blob(layer))
}

// turn lets the states behind the finished layer be overwritten, once those saved last are what a later run needs.
func (r *residual) turn() (err error) {
	r.kept, r.next = r.next, r.kept
	if r.next == nil {
		r.next, err = r.job.out.NewBlob(r.bytes())
	} else {
		err = r.next.Reuse()
	}
	r.from, r.to = r.kept, r.next
	return err
}

// close closes the files; what is not promised is removed.
func (r *residual) close() {
	if r != nil {
		r.kept.Close()
		r.next.Close()
	}
}
