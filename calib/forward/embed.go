package forward

import (
	"math"
	"slices"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/kernel"
)

// Embed fills dst [len(ids), hidden] with the embeddings of ids. Only the rows that occur are read, each once, so the
// vocabulary may be larger than memory. An id outside the vocabulary and a non-finite row are errors of class
// safeio.ErrCorrupt.
func (r *Runner) Embed(dst kernel.Mat, ids []int32, src tensor.Source) error {
	m := r.model
	fail := func(err error) error { return &safeio.Error{Op: "embed", Tensor: m.Embed, Off: -1, Err: err} }
	info, ok := src.Lookup(m.Embed)
	if !ok {
		return fail(safeio.Corruptf("missing"))
	}
	// Positions sorted by id: equal ids lie together and rows are read in storage order.
	order := make([]int32, len(ids))
	for i, id := range ids {
		if id < 0 || int(id) >= m.Vocab {
			return fail(safeio.Corruptf("token id %d at position %d is outside the vocabulary of %d", id, i, m.Vocab))
		}
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return int(ids[a] - ids[b]) })
	var groups []int // starts of equal ids in order, and the end
	for i := range order {
		if i == 0 || ids[order[i]] != ids[order[i-1]] {
			groups = append(groups, i)
		}
	}
	groups = append(groups, len(order))
	errs := make([]error, len(groups)-1)
	rowBytes := int64(m.Hidden) * info.DType.Size()
	forRows(r.pool, len(errs), func(g int) {
		same := order[groups[g]:groups[g+1]]
		first := dst.Row(int(same[0]))
		errs[g] = readRow(src, info, int64(ids[same[0]])*rowBytes, rowBytes, first)
		for _, i := range same[1:] {
			copy(dst.Row(int(i)), first)
		}
	})
	for _, err := range errs {
		if err != nil {
			return fail(err)
		}
	}
	return nil
}

func readRow(src tensor.Source, info tensor.Info, off, size int64, dst []float32) error {
	buf := make([]byte, size)
	if err := src.ReadTensor(info.Name, buf, off); err != nil {
		return err
	}
	if err := tensor.ToFloat32(dst, info.DType, buf); err != nil {
		return err
	}
	for j, v := range dst {
		if x := float64(v); math.IsNaN(x) || math.IsInf(x, 0) {
			return safeio.Corruptf("row %d is not finite in channel %d", off/size, j)
		}
	}
	return nil
}
