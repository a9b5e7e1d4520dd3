package ggml

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// root returns the directory of go.mod.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		require.NotEqual(t, parent, dir, "no go.mod above the test")
		dir = parent
	}
}

// shared returns the path of a file of the data directory beside the repository and skips the test without it.
func shared(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(root(t), "..", "shared", filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		t.Skipf("needs %s of the reference data beside the repository", name)
	}
	return path
}

// long reports whether slow tests were asked for.
func long() bool { return os.Getenv("QUANTIZE_LONG") == "1" }

// tensors is a safetensors file in memory.
type tensors struct {
	head map[string]struct {
		DType string
		Shape []int
		Off   [2]int64 `json:"data_offsets"`
	}
	data []byte
}

func openTensors(t testing.TB, path string) *tensors {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	if filepath.Ext(path) == ".gz" {
		z, err := gzip.NewReader(bytes.NewReader(b))
		require.NoError(t, err)
		b, err = io.ReadAll(z)
		require.NoError(t, err)
	}
	n := binary.LittleEndian.Uint64(b)
	var raw map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(b[8:8+n], &raw))
	delete(raw, "__metadata__")
	clean, err := json.Marshal(raw)
	require.NoError(t, err)
	f := &tensors{data: b[8+n:]}
	require.NoError(t, json.Unmarshal(clean, &f.head))
	return f
}

// bytes returns a tensor's data, nil when there is none of that name.
func (f *tensors) bytes(name string) []byte {
	h, ok := f.head[name]
	if !ok {
		return nil
	}
	return f.data[h.Off[0]:h.Off[1]]
}

// floats returns a tensor widened to float32.
func (f *tensors) floats(t testing.TB, name string) []float32 {
	t.Helper()
	ty, ok := ByName(f.head[name].DType)
	require.True(t, ok, name)
	b := f.bytes(name)
	x := make([]float32, len(b)/ty.Bytes)
	ty.DecodeRow(x, b)
	return x
}

// goldenFile opens the reference rows: all of them where the data directory is present, else those in testdata.
func goldenFile(t testing.TB) *tensors {
	t.Helper()
	full := filepath.Join(root(t), "..", "shared", "golden", "ggml-types.safetensors")
	if _, err := os.Stat(full); err == nil {
		return openTensors(t, full)
	}
	return openTensors(t, filepath.Join(root(t), "testdata", "ggml", "types.safetensors.gz"))
}

// gaussian returns n weights like those of a linear layer, a few of them outliers, and n importance values.
func gaussian(seed uint64, n int) (x, im []float32) {
	r := rand.New(rand.NewPCG(seed, 1))
	x, im = make([]float32, n), make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * 0.02)
		if r.IntN(200) == 0 {
			x[i] *= 8
		}
		im[i] = float32(r.ExpFloat64())
	}
	return x, im
}

// encode is EncodeRows into fresh memory.
func encode(t testing.TB, ty *Type, x []float32, rows, k int, im []float32) []byte {
	t.Helper()
	n, err := ty.RowBytes(k)
	require.NoError(t, err)
	dst := make([]byte, int(n)*rows)
	require.NoError(t, ty.EncodeRows(dst, x, rows, k, im), ty.Name)
	return dst
}

func nextUp(v float32) float32   { return math.Nextafter32(v, float32(math.Inf(1))) }
func nextDown(v float32) float32 { return math.Nextafter32(v, float32(math.Inf(-1))) }
