package quant

import (
	"context"
	"encoding/binary"
	"math"
	"strings"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/gguf"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid/ggml"
)

// embeddingUnit is the journal's unit of an embedding matrix that is rounded before the blocks.
const embeddingUnit = "embedding"

// earlyEmbedding is the file's embedding matrix when it is stored in blocks and error feedback follows, which then makes
// up for its rounding too; -1 otherwise.
func (g *ggufBlocks) earlyEmbedding() int {
	at, ok := g.plan.places[g.plan.source.model.Embed]
	if !ok || !g.job.recipe.Needs().Has(NeedSequential) || g.plan.Header.Tensors[at.tensor].Type.DType() != tensor.Invalid {
		return -1
	}
	return at.tensor
}

// roundEmbedding rounds the embedding matrix, unless an earlier run did.
func (g *ggufBlocks) roundEmbedding(ctx context.Context) error {
	if g.early < 0 || g.out.Done(embeddingUnit) {
		return nil
	}
	g.progress("embedding", 0)
	t := &g.plan.Header.Tensors[g.early]
	metric, err := g.embeddingMetric()
	if err != nil {
		return err
	}
	width := int(t.NE[0])
	stats := &Stats{K: width, Tokens: 1, Gram: metric}
	row, err := g.tensorBy(ctx, g.early, func(x []float32, rows int) ([]byte, error) {
		m := &Matrix{Linear: &arch.Linear{Name: strings.TrimSuffix(g.plan.source.model.Embed, ".weight"), Out: rows, In: width}, Scheme: packing.Scheme{Grid: t.Type.String()},
			W: append([]float32(nil), x...), Layer: &Layer{Index: -1, Model: g.plan.source.model, pool: g.pool}}
		q, err := g.job.recipe.Rounder.Round(ctx, m, stats)
		if err != nil {
			return nil, err
		}
		return q.Blocks, nil
	})
	if err != nil {
		return safeio.WithPath(err, g.src.Meta().Path)
	}
	return g.finishUnit(embeddingUnit, []string{t.Name}, []TensorReport{row})
}

// embeddingMetric says how much an error e in an embedding costs, eᵀ·M·e, [hidden, hidden]. Three things read it: the
// attention and the MLP of the first block, through their norms, and everything behind them, through the residual stream.
// Each counts the same, scaled to a mean diagonal of 1. Later blocks add nothing that was measured to help: by then the
// feedback has made up for much of the error.
func (g *ggufBlocks) embeddingMetric() ([]float64, error) {
	m := g.plan.source.model
	metric := make([]float64, m.Hidden*m.Hidden)
	for i := range m.Hidden {
		metric[i*(m.Hidden+1)] = 1
	}
	b, err := forward.Load(g.src, m, 0, g.loadOptions())
	if err != nil {
		return nil, safeio.WithPath(err, g.src.Meta().Path)
	}
	for _, part := range []struct {
		kind arch.InputKind
		norm []float32
	}{{arch.AttnIn, b.AttnNorm}, {arch.MLPIn, b.MLPNorm}} {
		sum := make([]float64, len(metric))
		for _, lin := range readers(b.Arch, part.kind) {
			w := widened(b.Linear(lin).W)
			for i := range w {
				w[i] *= part.norm[i%m.Hidden]
			}
			kernel.SyrkAddF64(g.pool, sum, m.Hidden, kernel.MatF32(lin.Out, m.Hidden, w))
		}
		kernel.Symmetrize(g.pool, sum, m.Hidden)
		addScaledToUnit(metric, sum, m.Hidden)
	}
	return metric, nil
}

// addScaledToUnit adds a matrix of n columns, scaled to a mean diagonal of 1. A zero matrix adds nothing.
func addScaledToUnit(dst, m []float64, n int) {
	var trace float64
	for i := range n {
		trace += m[i*(n+1)]
	}
	if !(trace > 0) {
		return
	}
	scale := float64(n) / trace
	for i, v := range m {
		dst[i] += float64(v * scale)
	}
}

// embeddings implements artifact.
func (g *ggufBlocks) embeddings(ctx context.Context) (tensor.Source, error) {
	if g.early < 0 {
		return g.src, nil
	}
	if err := g.roundEmbedding(ctx); err != nil { // again where finished work was found damaged
		return nil, err
	}
	t := &g.plan.Header.Tensors[g.early]
	grid, ok := ggml.ByID(uint32(t.Type))
	if !ok {
		return nil, safeio.Unsupportedf("there is no decoder for %s", t.Type)
	}
	return &storedEmbedding{Source: g.src, name: g.plan.source.model.Embed, stored: t, grid: grid, read: g.out.Read}, nil
}

// storedEmbedding shows a source's embedding matrix as the file has it, decoded to float32.
type storedEmbedding struct {
	tensor.Source
	name   string
	stored *gguf.Tensor
	grid   *ggml.Type
	read   func(tensor string, off int64, p []byte) error
}

// Lookup implements tensor.Source.
func (e *storedEmbedding) Lookup(name string) (tensor.Info, bool) {
	info, ok := e.Source.Lookup(name)
	if ok && name == e.name {
		info.DType = tensor.F32
	}
	return info, ok
}

// ReadTensor implements tensor.Source, for whole rows of the matrix.
func (e *storedEmbedding) ReadTensor(name string, dst []byte, off int64) error {
	if name != e.name {
		return e.Source.ReadTensor(name, dst, off)
	}
	cols := e.stored.NE[0]
	rowBytes, err := e.grid.RowBytes(int(cols))
	if err != nil {
		return err
	}
	if off < 0 || off%(4*cols) != 0 || int64(len(dst))%(4*cols) != 0 {
		return safeio.Corruptf("bytes %d … %d of %s are not whole rows", off, off+int64(len(dst)), name)
	}
	first, rows := off/(4*cols), int64(len(dst))/(4*cols)
	blocks := make([]byte, rows*rowBytes)
	if err := e.read(e.stored.Name, first*rowBytes, blocks); err != nil {
		return err
	}
	values := make([]float32, cols)
	for r := range rows {
		e.grid.DecodeRow(values, blocks[r*rowBytes:(r+1)*rowBytes])
		for i, v := range values {
			binary.LittleEndian.PutUint32(dst[4*(r*cols+int64(i)):], math.Float32bits(v))
		}
	}
	return nil
}
