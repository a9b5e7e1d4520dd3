package gptq

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safetensors"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid"
)

// GPTQModel recorded the Hessians of one run over golm-qwen2 and the artifacts that came of it. Solving from the same
// Hessians must give the same codes but for a few that rounding noise in the reference's float32 decides.

// shared returns a path below the directory of reference data beside the repository, and skips the test without it.
func shared(t testing.TB, elem ...string) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		require.NotEqual(t, dir, parent, "no go.mod above the package")
		dir = parent
	}
	path := filepath.Join(append([]string{dir, "..", "shared"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("reference data %s is not here", filepath.Join(elem...))
	}
	return path
}

func openShared(t testing.TB, elem ...string) *safetensors.File {
	t.Helper()
	f, err := safetensors.Open(shared(t, elem...), safeio.DefaultLimits())
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func bytesOf(t testing.TB, f *safetensors.File, name string) []byte {
	t.Helper()
	info, ok := f.Lookup(name)
	if !ok {
		return nil
	}
	n, _ := info.Bytes()
	b := make([]byte, n)
	require.NoError(t, f.ReadTensor(name, b, 0))
	return b
}

func floats(t testing.TB, f *safetensors.File, name string) []float32 {
	t.Helper()
	info, ok := f.Lookup(name)
	require.True(t, ok, name)
	n, _ := info.Elements()
	v := make([]float32, n)
	require.NoError(t, tensor.ToFloat32(v, info.DType, bytesOf(t, f, name)))
	return v
}

var judged = []struct{ name, hessian string }{
	{"self_attn.q_proj", "self_attn.q_proj"}, {"self_attn.k_proj", "self_attn.q_proj"}, {"self_attn.v_proj", "self_attn.q_proj"},
	{"self_attn.o_proj", "self_attn.o_proj"}, {"mlp.gate_proj", "mlp.gate_proj"}, {"mlp.up_proj", "mlp.gate_proj"}, {"mlp.down_proj", "mlp.down_proj"},
}

// problem reads a weight of golm-qwen2's layer 0 and its recorded Hessian.
func problem(t testing.TB, name, hessian string) (w []float32, out int, st *Stats) {
	t.Helper()
	model := openShared(t, "models", "golm-qwen2", "model.safetensors")
	hs := openShared(t, "golden", "gptqmodel", "qwen2-w4g128-hessian-layer0.safetensors")
	w = floats(t, model, "model.layers.0."+name+".weight")
	h32 := floats(t, hs, "layer0."+hessian)
	st = &Stats{K: int(math.Round(math.Sqrt(float64(len(h32)))))}
	st.H = make([]float64, len(h32))
	for i, v := range h32 {
		st.H[i] = float64(v)
	}
	return w, len(w) / st.K, st
}

func TestReferenceCodes(t *testing.T) {
	tests := []struct {
		artifact string
		config   string
		linears  int // of judged: the recorded Hessians of o and down belong to the 4 bit run alone
		most     int // codes that may differ: as many as a float64 replay of the same solve has
	}{
		{"qwen2-w4g128", `{"quant_method":"gptq","checkpoint_format":"gptq","group_size":128,"sym":true}`, 7, 91},
		{"qwen2-w3g128", `{"quant_method":"gptq","checkpoint_format":"gptq","group_size":128,"sym":true}`, 3, 21},
		{"qwen2-w2g64", `{"quant_method":"gptq","checkpoint_format":"gptq","group_size":64,"sym":true}`, 3, 0},
		{"qwen2-w4g128-asym-v2", `{"quant_method":"gptq","checkpoint_format":"gptq_v2","group_size":128,"sym":false}`, 3, 241},
	}
	for _, tt := range tests {
		v, err := safeio.ParseJSON(tt.config)
		require.NoError(t, err)
		config, err := packing.ParseConfig(v)
		require.NoError(t, err)
		f := openShared(t, "golden", "gptqmodel", tt.artifact, "model.safetensors")
		for _, j := range judged[:tt.linears] {
			module := "model.layers.0." + j.name
			found, ok, err := packing.Detect(config, packing.Module{Name: module, Info: func(s string) (tensor.Info, bool) { return f.Lookup(module + "." + s) }})
			require.NoError(t, err)
			require.True(t, ok)
			want, err := found.Unpack(func(s string) []byte { return bytesOf(t, f, module+"."+s) })
			require.NoError(t, err)

			w, out, st := problem(t, j.name, j.hessian)
			scheme := found.Scheme
			scheme.ScaleType = tensor.F32 // the reference rounds scales when it packs, after the solve
			g, err := grid.NewInt(scheme, st.K, grid.IntOptions{})
			require.NoError(t, err)
			got, rep, err := Solve(context.Background(), kernel.NewPool(2), Problem{W: w, Out: out, Stats: st, Grid: g}, Reference(0.05, Natural))
			require.NoError(t, err)
			require.Empty(t, rep.Fallback)
			differ := 0
			for n, q := range got.Codes {
				if q != want.Codes[n] {
					differ++
				}
			}
			t.Logf("%s %s: %d of %d codes differ, loss %.6g, nearest %.6g", tt.artifact, j.name, differ, len(got.Codes), rep.Loss, rep.NearestLoss)
			require.LessOrEqual(t, differ, tt.most, "%s %s", tt.artifact, j.name)
		}
	}
}
