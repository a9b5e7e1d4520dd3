package forward

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safetensors"
	"github.com/llmquant/quantize/internal/kernel"
)

// repoRoot finds the directory of go.mod.
func repoRoot(t testing.TB) string {
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		require.NotEqual(t, dir, filepath.Dir(dir), "no go.mod above the package")
		dir = filepath.Dir(dir)
	}
}

// shared finds a path beside the repository, or skips the test.
func shared(t testing.TB, parts ...string) string {
	p := filepath.Join(append([]string{filepath.Dir(repoRoot(t)), "shared"}, parts...)...)
	if _, err := os.Stat(p); err != nil {
		t.Skipf("%s is not here; it is not part of the repository", filepath.Join(append([]string{"shared"}, parts...)...))
	}
	return p
}

func openTensors(t testing.TB, path string) *safetensors.File {
	f, err := safetensors.Open(path, safeio.DefaultLimits())
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// openModel resolves a model directory with a single weight file.
func openModel(t testing.TB, dir string) (*safetensors.File, *arch.Model) {
	src := openTensors(t, filepath.Join(dir, "model.safetensors"))
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	m, err := arch.Resolve(config, src)
	require.NoError(t, err)
	require.Empty(t, m.Unknown)
	return src, m
}

// tensorF32 reads a whole tensor of a reference file.
func tensorF32(t testing.TB, f *safetensors.File, name string) kernel.Mat {
	info, ok := f.Lookup(name)
	require.True(t, ok, name)
	n, _ := info.Elements()
	cols := int(info.Shape[len(info.Shape)-1])
	w, bad, err := readMatrix(f, info, int(n)/cols, cols, LoadOptions{})
	require.NoError(t, err)
	require.Zero(t, bad.count)
	return w
}

// tensorI32 reads a tensor of 32-bit integers.
func tensorI32(t testing.TB, f *safetensors.File, name string) []int32 {
	info, ok := f.Lookup(name)
	require.True(t, ok, name)
	n, _ := info.Elements()
	buf := make([]byte, 4*n)
	require.NoError(t, f.ReadTensor(name, buf, 0))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(buf[4*i]) | int32(buf[4*i+1])<<8 | int32(buf[4*i+2])<<16 | int32(buf[4*i+3])<<24
	}
	return ids
}

// distance is the relative L2 distance of a from the reference.
func distance(a, ref kernel.Mat) float64 {
	var diff, norm float64
	for i := range ref.Rows {
		x := a.Row(i)
		for j, r := range ref.Row(i) {
			d := float64(x[j]) - float64(r)
			diff += d * d
			norm += float64(r) * float64(r)
		}
	}
	return math.Sqrt(diff / norm)
}

// golmIDs reads the evaluation ids of the golm models.
func golmIDs(t testing.TB, n int) []int32 {
	b, err := os.ReadFile(shared(t, "data", "golm-eval.u16"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(b), 2*n)
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(b[2*i]) | int32(b[2*i+1])<<8
	}
	return ids
}

func newHidden(m *arch.Model, tokens int) kernel.Mat {
	return kernel.MatF32(tokens, m.Hidden, make([]float32, tokens*m.Hidden))
}

// runAll embeds ids and runs every block; see is called after each.
func runAll(t testing.TB, r *Runner, src *safetensors.File, m *arch.Model, ids []int32, tap func(layer int) Tap, see func(layer int, hidden kernel.Mat)) kernel.Mat {
	hidden := newHidden(m, len(ids))
	require.NoError(t, r.Embed(hidden, ids, src))
	for layer := range m.Blocks {
		b, err := Load(src, m, layer, LoadOptions{Pool: r.pool})
		require.NoError(t, err)
		var tp Tap
		if tap != nil {
			tp = tap(layer)
		}
		require.NoError(t, r.Forward(context.Background(), b, hidden, tp))
		if see != nil {
			see(layer, hidden)
		}
	}
	return hidden
}
