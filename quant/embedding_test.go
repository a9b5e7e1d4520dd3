package quant

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/internal/testmodel"
	"github.com/llmquant/quantize/quant/gptq"
	"github.com/llmquant/quantize/quant/grid/ggml"
)

// metricError is Σ e·M·eᵀ over the rows of a − b, [rows, n].
func metricError(a, b []float32, metric []float64, n int) (sum float64) {
	e := make([]float64, n)
	for at := 0; at < len(a); at += n {
		for i := range e {
			e[i] = float64(a[at+i]) - float64(b[at+i])
		}
		for i, x := range e {
			for k, y := range e {
				sum += x * metric[i*n+k] * y
			}
		}
	}
	return sum
}

// Error feedback rounds the embedding for what reads it: by that measure, and by the plain one, it is better than the
// reference's search, which leaves the bytes of a run without feedback alone.
func TestEmbeddingRounding(t *testing.T) {
	src := openModel(t, golm)
	r := ggufType(t, "Q2_K")
	r.Rounder = GPTQ{Options: gptq.Best()}
	plan, err := PlanGGUF(context.Background(), src, r, Options{Out: "x.gguf", Calib: windows(2, 64, 2000)})
	require.NoError(t, err)
	g := &ggufBlocks{ggufJob: &ggufJob{job: &job{src: src, opts: &Options{}, pool: kernel.NewPool(2)}, plan: plan}}
	metric, err := g.embeddingMetric()
	require.NoError(t, err)
	n := plan.source.model.Hidden
	var trace float64
	for i := range n {
		trace += metric[i*(n+1)]
		require.InDelta(t, metric[i], metric[i*n], 1e-12, "symmetric")
	}
	require.InDelta(t, 3*float64(n), trace, 1e-6*float64(n))

	_, with := runGGUF(t, src, r, Options{Threads: 2, Calib: windows(2, 64, 2000)})
	_, without := runGGUF(t, src, ggufType(t, "Q2_K"), Options{Threads: 2})
	const name = "model.embed_tokens.weight"
	original := valuesOf(t, src, name)
	solved, searched := valuesOf(t, openDense(t, with), name), valuesOf(t, openDense(t, without), name)
	require.Less(t, metricError(solved, original, metric, n), 0.7*metricError(searched, original, metric, n))
	require.Less(t, relError(solved, original), 1.25*relError(searched, original))
}

// The stream behind which weights are rounded starts with the embeddings as the file has them.
func TestStoredEmbedding(t *testing.T) {
	src := openModel(t, golm)
	grid, _ := ggml.ByName("Q4_K")
	plan, err := PlanGGUF(context.Background(), src, ggufType(t, "Q4_K_M"), Options{Out: "x.gguf"})
	require.NoError(t, err)
	const name = "model.embed_tokens.weight"
	info, _ := src.Lookup(name)
	cols := int(info.Shape[1])
	values := valuesOf(t, src, name)
	rowBytes, err := grid.RowBytes(cols)
	require.NoError(t, err)
	file := make([]byte, info.Shape[0]*rowBytes)
	require.NoError(t, grid.EncodeRows(file, values, int(info.Shape[0]), cols, nil))
	e := &storedEmbedding{Source: src, name: name, grid: grid, read: func(_ string, off int64, p []byte) error {
		copy(p, file[off:])
		return nil
	}}
	for i := range plan.Header.Tensors {
		if plan.Header.Tensors[i].Name == "token_embd.weight" {
			e.stored = &plan.Header.Tensors[i]
		}
	}
	seen, _ := e.Lookup(name)
	require.Equal(t, tensor.F32, seen.DType)
	got := make([]byte, 2*4*cols)
	require.NoError(t, e.ReadTensor(name, got, int64(7*4*cols)))
	want := make([]float32, cols)
	for r := range 2 {
		grid.DecodeRow(want, file[int64(7+r)*rowBytes:])
		for i, v := range want {
			require.Equal(t, math.Float32bits(v), binary.LittleEndian.Uint32(got[4*(r*cols+i):]))
		}
	}
	require.ErrorIs(t, e.ReadTensor(name, got[:8], 4), safeio.ErrCorrupt)
	const other = "model.norm.weight"
	require.NoError(t, e.ReadTensor(other, got[:4], 0), "other tensors as they are")
}

// A run that was stopped after the embedding continues without rounding it again, to the same bytes.
func TestEmbeddingResumes(t *testing.T) {
	dir := tinyGGUF(t)
	r := GGUFRecipe{Mixture: ggufType(t, "Q4_K_M").Mixture, Rounder: GPTQ{Options: gptq.Best()}}
	o := Options{Threads: 2, Calib: windows(4, 64, 2000)}
	_, out := runGGUF(t, openModel(t, dir), r, o)
	o.Out, o.Version = filepath.Join(t.TempDir(), "out.gguf"), "test"
	rounded := 0
	for _, stopAt := range []string{"layer 1", "never"} {
		ctx, cancel := context.WithCancel(context.Background())
		o.Events = func(e Event) {
			if strings.HasPrefix(e.Stage, "embedding") {
				rounded++
			}
			if strings.HasPrefix(e.Stage, stopAt) {
				cancel()
			}
		}
		if _, err := RunGGUF(ctx, openModel(t, dir), r, o); stopAt == "never" {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, context.Canceled)
		}
		cancel()
	}
	require.Equal(t, 1, rounded)
	require.Equal(t, fileSum(t, out), fileSum(t, o.Out))
}

// Where the user wants zeros for what is not finite, the first block is read so too.
func TestEmbeddingBeforeNonFinite(t *testing.T) {
	c := testmodel.Llama()
	c.Hidden, c.Inter, c.Heads, c.KVHeads, c.HeadDim, c.Vocab = 256, 256, 8, 4, 32, 2048
	dir := writeModel(t, poisoned(c, "model.layers.0.mlp.up_proj.weight", float32(math.NaN()), 200))
	for _, file := range []string{"tokenizer.json", "tokenizer_config.json"} {
		require.NoError(t, os.Link(filepath.Join(golm, file), filepath.Join(dir, file)))
	}
	r := GGUFRecipe{Mixture: ggufType(t, "Q4_K_M").Mixture, Rounder: GPTQ{Options: gptq.Best()}}
	o := Options{Threads: 2, Calib: windows(2, 32, 2000), Version: "test", Out: filepath.Join(t.TempDir(), "x.gguf")}
	_, err := RunGGUF(context.Background(), openModel(t, dir), r, o)
	require.ErrorContains(t, err, "up_proj")
	o.NaNZero = true
	o.Out = ""
	rep, _ := runGGUF(t, openModel(t, dir), r, o)
	require.NotEmpty(t, rep.Events)
}
