package quant

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/gguf"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/testmodel"
	"github.com/llmquant/quantize/quant/gptq"
	"github.com/llmquant/quantize/quant/grid/mixture"
)

// trained locates one of the trained models: in the repository, or beside it.
func trained(t *testing.T, name string) string {
	dir := filepath.Join(repository, "testdata", name)
	if _, err := os.Stat(filepath.Join(dir, "model.safetensors")); err == nil {
		return dir
	}
	return sharedFile(t, "models", name)
}

// llamaQuantize are recorded runs of llama-quantize on one model, by file type.
func llamaQuantize(t *testing.T, model string) map[string]struct {
	SHA256 string `json:"sha256"`
	Error  []string
} {
	f, err := os.Open(filepath.Join(repository, "testdata", "gguf", "quantize-"+model+".json.gz"))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var doc struct {
		Runs map[string]struct {
			SHA256 string `json:"sha256"`
			Error  []string
		}
	}
	require.NoError(t, json.NewDecoder(z).Decode(&doc))
	return doc.Runs
}

// ggufType is the recipe of one file type.
func ggufType(t *testing.T, name string) GGUFRecipe {
	file, ok := mixture.ParseFileType(name)
	require.True(t, ok, name)
	return GGUFRecipe{Mixture: mixture.Options{File: file}}
}

// runGGUF writes a GGUF file and returns its path.
func runGGUF(t *testing.T, src formats.Checkpoint, r GGUFRecipe, o Options) (*Report, string) {
	if o.Out == "" {
		o.Out = filepath.Join(t.TempDir(), "out.gguf")
	}
	o.Version = "test"
	rep, err := RunGGUF(context.Background(), src, r, o)
	require.NoError(t, err)
	return rep, o.Out
}

func fileSum(t *testing.T, path string) string {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// quickRuns are compared every time; QUANTIZE_LONG=1 compares all 350 files.
var quickRuns = map[string][]string{
	"golm-llama":    {"Q4_K_M+im", "Q8_0", "Q2_K+im", "pure:Q4_0", "F16", "BF16", "F32"},
	"golm-qwen2":    {"Q5_0", "Q4_K_M+im"},
	"golm-qwen3moe": {"MXFP4_MOE", "Q4_K_M+im"},
}

// Files made straight from a checkpoint equal, byte for byte, those that llama-quantize makes of the converter's output.
func TestGGUFEqualsLlamaQuantize(t *testing.T) {
	long := os.Getenv("QUANTIZE_LONG") != ""
	for model, quick := range quickRuns {
		t.Run(model, func(t *testing.T) {
			dir := trained(t, model)
			runs, made := llamaQuantize(t, model), 0
			for _, name := range quick {
				require.Contains(t, runs, name)
			}
			for name, want := range runs {
				kind := strings.TrimSuffix(strings.TrimPrefix(name, "pure:"), "+im")
				if want.Error != nil || !long && !slices.Contains(quick, name) || strings.Contains(name, "nvfp4") || kind == mixture.Copy {
					continue
				}
				r := ggufType(t, kind)
				r.Mixture.Pure = strings.HasPrefix(name, "pure:")
				if strings.HasSuffix(name, "+im") {
					r.ImatrixPath = model + ".imatrix.gguf"
					path := filepath.Join(repository, "testdata", "gguf", r.ImatrixPath)
					if _, err := os.Stat(path); err != nil {
						path = sharedFile(t, "golden", "llamacpp", r.ImatrixPath)
					}
					var err error
					r.Imatrix, err = gguf.OpenImatrix(path)
					require.NoError(t, err)
				}
				rep, out := runGGUF(t, openModel(t, dir), r, Options{Threads: 3})
				require.Equal(t, want.SHA256, fileSum(t, out), name)
				require.Equal(t, want.SHA256, rep.Files[0].SHA256)
				made++
			}
			t.Logf("%d files equal", made)
		})
	}
}

// tinyGGUF is a synthetic model with what a GGUF file needs: rows of whole super-blocks, and a tokenizer.
func tinyGGUF(t *testing.T) string {
	c := testmodel.Llama()
	c.Hidden, c.Inter, c.Heads, c.KVHeads, c.HeadDim, c.Vocab = 256, 256, 8, 4, 32, 2048
	dir := writeModel(t, c)
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		text, err := os.ReadFile(filepath.Join(golm, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	return dir
}

// A report beside the file says what lies on disk.
func TestGGUFReport(t *testing.T) {
	dir := tinyGGUF(t)
	rep, out := runGGUF(t, openModel(t, dir), ggufType(t, "Q4_K_M"), Options{Threads: 2})
	var stored Report
	readJSON(t, strings.TrimSuffix(out, ".gguf")+".report.json", &stored)
	require.Equal(t, rep.Totals, stored.Totals)
	info, err := os.Stat(out)
	require.NoError(t, err)
	require.Equal(t, info.Size(), stored.Totals.OutputBytes)
	require.Equal(t, info.Size(), stored.Files[0].Bytes)
	art := openModel(t, out)
	f, ok := formats.GGUF(art)
	require.True(t, ok)
	require.Len(t, stored.Tensors, len(f.Tensors))
	for i, row := range stored.Tensors {
		require.Equal(t, f.Tensors[i].Name, row.Name)
		require.Equal(t, f.Tensors[i].Bytes, row.Bytes)
		require.Equal(t, f.Tensors[i].Type.String(), row.Grid)
		require.NotEqual(t, "other", row.Role, row.Name)
		require.Equal(t, f.Tensors[i].Type.DType() == tensor.Invalid, row.RelError > 0, row.Name)
	}
	require.Equal(t, "Q4_K_M", stored.Recipe.Settings["type"])
}

// Containers change without loss: checkpoint → GGUF → checkpoint gives every tensor back, bit for bit, and a file that
// is copied keeps its data.
func TestContainersRoundTrip(t *testing.T) {
	for _, dir := range []string{tinyGGUF(t), golm} {
		src := openModel(t, dir)
		r := ggufType(t, "BF16")
		r.Plain = true
		_, out := runGGUF(t, src, r, Options{Threads: 2})
		back := openDense(t, out)
		require.Len(t, back.Tensors(), len(src.Tensors()))
		for _, info := range src.Tensors() {
			require.Equal(t, valuesOf(t, src, info.Name), valuesOf(t, back, info.Name), info.Name)
		}
		c := GGUFRecipe{Mixture: mixture.Options{Copy: true}}
		_, again := runGGUF(t, openModel(t, out), c, Options{Threads: 2})
		a, b := openDense(t, out), openDense(t, again)
		for _, info := range a.Tensors() {
			require.Equal(t, valuesOf(t, a, info.Name), valuesOf(t, b, info.Name), info.Name)
		}
	}
}

// The same types come out of the checkpoint and out of its 16-bit GGUF file.
func TestGGUFFromFileOrCheckpoint(t *testing.T) {
	src := openModel(t, golm)
	plain := ggufType(t, "BF16")
	plain.Plain = true
	_, file := runGGUF(t, src, plain, Options{Threads: 2})
	_, direct := runGGUF(t, src, ggufType(t, "Q4_0"), Options{Threads: 2})
	_, through := runGGUF(t, openModel(t, file), ggufType(t, "Q4_0"), Options{Threads: 1})
	require.Equal(t, fileSum(t, direct), fileSum(t, through))
}

// A second rounding needs to be asked for.
func TestRequantizeIsRefused(t *testing.T) {
	dir := tinyGGUF(t)
	_, q8 := runGGUF(t, openModel(t, dir), ggufType(t, "Q8_0"), Options{Threads: 2})
	o := Options{Out: filepath.Join(t.TempDir(), "x.gguf"), Version: "test"}
	_, err := RunGGUF(context.Background(), openModel(t, q8), ggufType(t, "Q4_0"), o)
	require.ErrorIs(t, err, safeio.ErrUnsupported)
	require.ErrorContains(t, err, "quantized already")
	require.NoFileExists(t, o.Out)
	r := ggufType(t, "Q4_0")
	r.AllowRequantize = true
	_, err = RunGGUF(context.Background(), openModel(t, q8), r, o)
	require.NoError(t, err)
}

// Rows that are no whole number of super-blocks fall back to a type that fits, in sight; --strict refuses. Types of very
// few bits need an importance matrix.
func TestGGUFFallbacks(t *testing.T) {
	c := testmodel.Llama()
	c.Hidden, c.Inter, c.Heads, c.KVHeads, c.HeadDim, c.Vocab = 64, 96, 4, 2, 16, 2048
	dir := writeModel(t, c)
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		require.NoError(t, os.Link(filepath.Join(golm, name), filepath.Join(dir, name)))
	}
	rec := &recorder{}
	rep, _ := runGGUF(t, openModel(t, dir), ggufType(t, "Q4_K_M"), Options{Threads: 1, Events: rec.add})
	require.NotEmpty(t, rec.of(EventFallback))
	require.Positive(t, countFallbacks(rep))
	for _, e := range rec.of(EventFallback) {
		require.Contains(t, e.Message, "do not fit")
	}
	_, err := RunGGUF(context.Background(), openModel(t, dir), ggufType(t, "Q4_K_M"), Options{Out: filepath.Join(t.TempDir(), "x.gguf"), Strict: true})
	require.ErrorIs(t, err, safeio.ErrUnsupported)
	require.ErrorContains(t, err, "--strict")

	_, err = RunGGUF(context.Background(), openModel(t, tinyGGUF(t)), ggufType(t, "IQ2_XXS"), Options{Out: filepath.Join(t.TempDir(), "x.gguf")})
	require.ErrorIs(t, err, safeio.ErrUnsupported)
	require.ErrorContains(t, err, "importance")
}

// Non-finite weights are refused with their place, whether the tensor is to be encoded, converted or kept.
func TestGGUFNonFinite(t *testing.T) {
	c := testmodel.Llama()
	c.Hidden, c.Inter, c.Heads, c.KVHeads, c.HeadDim, c.Vocab = 256, 256, 8, 4, 32, 2048
	for _, name := range []string{"model.layers.1.mlp.up_proj.weight", "model.layers.0.input_layernorm.weight", "model.embed_tokens.weight"} {
		for _, kind := range []string{"Q4_K_M", "Q8_0", "F16", "BF16"} {
			dir := writeModel(t, poisoned(c, name, float32(math.NaN()), 200))
			for _, file := range []string{"tokenizer.json", "tokenizer_config.json"} {
				require.NoError(t, os.Link(filepath.Join(golm, file), filepath.Join(dir, file)))
			}
			o := Options{Out: filepath.Join(t.TempDir(), "x.gguf"), Version: "test"}
			_, err := RunGGUF(context.Background(), openModel(t, dir), ggufType(t, kind), o)
			require.ErrorIs(t, err, safeio.ErrCorrupt, "%s %s", name, kind)
			require.ErrorContains(t, err, "1 NaN or infinite")
			require.ErrorContains(t, err, "200]")
			require.NoFileExists(t, o.Out)
			o.NaNZero = true
			o.Out = filepath.Join(t.TempDir(), "zero.gguf")
			rep, out := runGGUF(t, openModel(t, dir), ggufType(t, kind), o)
			require.Len(t, rep.Events, 1)
			require.InDelta(t, 0, valuesOf(t, openDense(t, out), name)[200], 0.2)
		}
	}
}

// A weight too large for a block's scale is named by its row in the tensor, whichever task met it.
func TestGGUFOverflow(t *testing.T) {
	c := testmodel.Llama()
	c.Hidden, c.Inter, c.Heads, c.KVHeads, c.HeadDim, c.Vocab = 256, 512, 8, 4, 32, 2048
	const row = 300
	dir := writeModel(t, poisoned(c, "model.layers.1.mlp.up_proj.weight", 1e8, row*256+7))
	for _, file := range []string{"tokenizer.json", "tokenizer_config.json"} {
		require.NoError(t, os.Link(filepath.Join(golm, file), filepath.Join(dir, file)))
	}
	_, err := RunGGUF(context.Background(), openModel(t, dir), ggufType(t, "Q8_0"), Options{Out: filepath.Join(t.TempDir(), "x.gguf"), Threads: 2})
	require.ErrorContains(t, err, "blk.1.ffn_up.weight")
	require.ErrorContains(t, err, "row 300")
}

// Transforms and error feedback fill GGUF files too: the result is never worse than what the reference's rounding leaves
// on the calibration text, and interrupted runs continue to the same bytes.
func TestGGUFBlockByBlock(t *testing.T) {
	dir := tinyGGUF(t)
	recipes := map[string]GGUFRecipe{
		"gptq": {Mixture: ggufType(t, "Q4_K_M").Mixture, Rounder: GPTQ{Options: gptq.Best()}},
		"awq":  {Mixture: ggufType(t, "Q4_0").Mixture, Transforms: []Transform{AWQScaling{}}},
	}
	if os.Getenv("QUANTIZE_LONG") != "" {
		recipes["smoothed"] = GGUFRecipe{Mixture: ggufType(t, "Q8_0").Mixture, Transforms: []Transform{Smooth{}}, Rounder: GPTQ{Options: gptq.Best()}}
	}
	for name, r := range recipes {
		t.Run(name, func(t *testing.T) {
			o := Options{Threads: 2, Calib: windows(4, 64, 2000)}
			rep, out := runGGUF(t, openModel(t, dir), r, o)
			better := 0
			for _, row := range rep.Tensors {
				require.NotEmpty(t, row.Name)
				if row.OutError > 0 {
					require.LessOrEqual(t, row.OutError, row.RoundingOutError, row.Name)
					if row.OutError < 0.95*row.RoundingOutError {
						better++
					}
				}
			}
			if r.Rounder != nil {
				require.Positive(t, better)
			}
			res, err := verify(t, out, dir)
			require.NoError(t, err)
			require.True(t, res.OK, "%+v", res.Tensors)

			o.Out, o.Version = filepath.Join(t.TempDir(), "out.gguf"), "test"
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			o.Events = func(e Event) {
				if strings.HasPrefix(e.Stage, "layer 2") {
					cancel()
				}
			}
			_, err = RunGGUF(ctx, openModel(t, dir), r, o)
			require.ErrorIs(t, err, context.Canceled)
			o.Events, o.Threads = nil, 3
			again, err := RunGGUF(context.Background(), openModel(t, dir), r, o)
			require.NoError(t, err)
			require.Equal(t, fileSum(t, out), fileSum(t, o.Out))
			require.Equal(t, rep.Tensors, again.Tensors)
		})
	}
}
