package formats

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// shared returns a path below the reference data beside the repository, and skips the test without it.
func shared(t *testing.T, elem ...string) string {
	path := filepath.Join(append([]string{"..", "..", "shared"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("reference data %s is not here", filepath.Join(elem...))
	}
	return path
}

func openDense(t *testing.T, path string) Checkpoint {
	t.Helper()
	c, err := Open(context.Background(), path)
	require.NoError(t, err)
	d, err := Dense(c)
	require.NoError(t, err, path)
	t.Cleanup(func() { d.Close() })
	return d
}

// floats reads a whole tensor in float32.
func floats(t *testing.T, c tensor.Source, name string) []float32 {
	info, ok := c.Lookup(name)
	require.True(t, ok, name)
	n, ok := info.Elements()
	require.True(t, ok)
	data := make([]byte, n*info.DType.Size())
	require.NoError(t, c.ReadTensor(name, data, 0))
	out := make([]float32, n)
	require.NoError(t, tensor.ToFloat32(out, info.DType, data))
	return out
}

// distance returns ‖a−b‖/‖b‖.
func distance(a, b []float32) float64 {
	var num, den float64
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		num += d * d
		den += float64(b[i]) * float64(b[i])
	}
	return math.Sqrt(num / den)
}

// The dense view of what other tools have quantized is the model they started from, up to the error of the width: it
// resolves as the same architecture, its linears are close, everything else is equal.
func TestDenseReferenceArtifacts(t *testing.T) {
	cases := []struct {
		path, model string
		most        float64 // largest relative error of a linear
	}{
		{"gptqmodel/qwen2-w4g128", "golm-qwen2", 0.2},
		{"gptqmodel/qwen2-w4g128-actorder", "golm-qwen2", 0.2},
		{"gptqmodel/qwen2-w4g128-asym-v1", "golm-qwen2", 0.2},
		{"gptqmodel/qwen2-w4g128-asym-v2", "golm-qwen2", 0.2},
		{"gptqmodel/qwen2-w3g128", "golm-qwen2", 0.35},
		{"gptqmodel/qwen2-w2g64", "golm-qwen2", 0.75},
		{"gptqmodel/qwen2-dynamic", "golm-qwen2", 0.2},
		{"gptqmodel/llama-head", "golm-llama", 0.2},
		{"llmcompressor/golm-qwen2.w8a16-rtn", "golm-qwen2", 0.02},
		{"llmcompressor/golm-qwen2.w3a16-rtn", "golm-qwen2", 0.35},
		{"llmcompressor/golm-llama.w4a16-gptq", "golm-llama", 0.2},
		{"llmcompressor/golm-qwen3moe.w4a16-gptq", "golm-qwen3moe", 0.2},
		{"llmcompressor/golm-qwen2.w4a16-gptq-actgroup", "golm-qwen2", 0.2},
	}
	for _, c := range cases {
		t.Run(strings.ReplaceAll(c.path, "/", "-"), func(t *testing.T) {
			d := openDense(t, shared(t, "golden", c.path))
			base := openDense(t, shared(t, "models", c.model))
			require.Nil(t, d.Meta().Quant)
			m, err := arch.Resolve(d.Meta().Config, d)
			require.NoError(t, err)
			require.Empty(t, m.Unknown)
			require.Len(t, d.Tensors(), len(base.Tensors()))
			changed := 0
			for _, info := range base.Tensors() {
				got, ok := d.Lookup(info.Name)
				require.True(t, ok, info.Name)
				require.Equal(t, info.Shape, got.Shape, info.Name)
				e := distance(floats(t, d, info.Name), floats(t, base, info.Name))
				if len(info.Shape) != 2 || strings.Contains(info.Name, "embed") {
					require.Less(t, e, 1e-6, "%s: some tools turn bf16 into f16", info.Name)
					continue
				}
				require.Less(t, e, c.most, info.Name)
				if e > 0 {
					changed++
				}
			}
			require.Greater(t, changed, 5)
		})
	}
}

// AWQ folds its scales into the norms, so only the architecture and the shapes can be compared here.
func TestDenseAWQ(t *testing.T) {
	for _, path := range []string{"autoawq/qwen2-g128", "gptqmodel/qwen2-awq-gemm", "autoround/qwen2-layout-auto_awq", "autoround/qwen2-layout-auto_round", "llmcompressor/golm-llama.awq-w4a16-asym"} {
		d := openDense(t, shared(t, "golden", path))
		_, err := arch.Resolve(d.Meta().Config, d)
		require.NoError(t, err)
		for _, info := range d.Tensors() {
			for i, x := range floats(t, d, info.Name) {
				if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
					t.Fatalf("%s: element %d is %v", info.Name, i, x)
				}
			}
		}
	}
}

// Any byte range of a decoded tensor is that range of the whole, read by many at once.
func TestDenseRanges(t *testing.T) {
	d := openDense(t, shared(t, "golden", "gptqmodel", "qwen2-w4g128-actorder"))
	const name = "model.layers.1.mlp.down_proj.weight"
	info, ok := d.Lookup(name)
	require.True(t, ok)
	require.Equal(t, tensor.F32, info.DType)
	n, _ := info.Bytes()
	whole := make([]byte, n)
	require.NoError(t, d.ReadTensor(name, whole, 0))
	row := 4 * info.Shape[1]
	var wg sync.WaitGroup
	for _, r := range [][2]int64{{0, 0}, {0, 1}, {3, 5}, {row - 1, row + 1}, {row, 3 * row}, {n - 7, n}, {n, n}, {1, n - 1}} {
		wg.Go(func() {
			part := make([]byte, r[1]-r[0])
			if err := d.ReadTensor(name, part, r[0]); err != nil || string(part) != string(whole[r[0]:r[1]]) {
				t.Errorf("bytes %v differ: %v", r, err)
			}
		})
	}
	wg.Wait()
	require.ErrorIs(t, d.ReadTensor(name, make([]byte, 2), n-1), safeio.ErrCorrupt)
	require.ErrorIs(t, d.ReadTensor(name, nil, -1), safeio.ErrCorrupt)
	require.ErrorIs(t, d.ReadTensor("model.layers.1.mlp.down_proj.qweight", nil, 0), safeio.ErrCorrupt, "storage does not show")
}

// Converters see how a linear is stored, and its codes.
func TestStored(t *testing.T) {
	d := openDense(t, shared(t, "golden", "gptqmodel", "qwen2-w4g128-actorder"))
	const module = "model.layers.0.self_attn.q_proj"
	found, ok := Stored(d, module)
	require.True(t, ok)
	require.Equal(t, "gptq", found.Layout.Name)
	var names []string
	for _, p := range StoredTensors(d, module) {
		names = append(names, strings.TrimPrefix(p.Name, module+"."))
	}
	require.ElementsMatch(t, []string{"qweight", "qzeros", "scales", "g_idx"}, names)
	l, err := Unpacked(d, module)
	require.NoError(t, err)
	require.Len(t, l.Codes, found.Out*found.In)
	for _, other := range []string{"model.embed_tokens", "none"} {
		_, ok := Stored(d, other)
		require.False(t, ok)
		require.Empty(t, StoredTensors(d, other))
		_, err := Unpacked(d, other)
		require.ErrorIs(t, err, safeio.ErrUnsupported)
	}
}

// What no package here reads is refused by name, never shown as numbers that are not the weights.
func TestDenseRefuses(t *testing.T) {
	for path, want := range map[string]string{
		"bitsandbytes/llama-int8": "bitsandbytes",
	} {
		c, err := Open(context.Background(), shared(t, "golden", path))
		require.NoError(t, err)
		defer c.Close()
		require.Equal(t, want, c.Meta().Quant.Method)
		if _, err := Dense(c); err != nil { // a layout may learn to read it
			require.ErrorIs(t, err, safeio.ErrUnsupported)
			require.ErrorContains(t, err, want)
		}
	}
}

func TestDenseIdentity(t *testing.T) {
	c, err := Open(context.Background(), "../testdata/golm-llama")
	require.NoError(t, err)
	defer c.Close()
	d, err := Dense(c)
	require.NoError(t, err)
	require.Same(t, c, d)
	_, ok := GGUF(c)
	require.False(t, ok)
}

func TestOpenGGUF(t *testing.T) {
	path := shared(t, "assets", "stories-xs", "stories-xs-F32.gguf")
	c, err := Open(context.Background(), path)
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, "gguf", c.Meta().Kind)
	require.NoError(t, c.Meta().Unchanged())
	f, ok := GGUF(c)
	require.True(t, ok)
	require.Len(t, c.Tensors(), len(f.Tensors))
	for _, info := range c.Tensors() {
		n, ok := info.Bytes()
		require.True(t, ok)
		require.NoError(t, c.ReadTensor(info.Name, make([]byte, n), 0))
		_, off, stored, ok := c.Meta().Place(info.Name)
		require.True(t, ok)
		require.Equal(t, n, stored)
		var b [4]byte
		require.NoError(t, c.ReadTensor(info.Name, b[:], 0))
		file, err := os.Open(path)
		require.NoError(t, err)
		var raw [4]byte
		_, err = file.ReadAt(raw[:], off)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		require.Equal(t, binary.LittleEndian.Uint32(raw[:]), binary.LittleEndian.Uint32(b[:]))
	}
	d, err := Dense(c)
	require.NoError(t, err)
	_, err = arch.Resolve(d.Meta().Config, d)
	require.NoError(t, err)
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"pytorch_model.bin": "PK\x03\x04......", "old.pt": "\x80\x02}q\x00.", "notes.txt": "hello, world", "empty": ""} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		_, err := Open(context.Background(), path)
		require.ErrorIs(t, err, safeio.ErrUnsupported)
		require.ErrorContains(t, err, path)
	}
	_, err := Open(context.Background(), filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = Open(ctx, dir)
	require.ErrorIs(t, err, context.Canceled)
}
