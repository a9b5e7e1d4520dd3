package quant

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/calib"
	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safetensors"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/testmodel"
	"github.com/llmquant/quantize/quant/gptq"
)

// int4 is the scheme of most tests: groups of 32, because the models are narrow.
var int4 = packing.Scheme{Grid: "int", Bits: 4, GroupSize: 32}

// int4Sym is int4 without zero points.
var int4Sym = packing.Scheme{Grid: "int", Bits: 4, GroupSize: 32, Sym: true}

// writeModel writes a synthetic checkpoint into a directory of the test and returns its path.
func writeModel(t testing.TB, c testmodel.Config) string {
	dir := filepath.Join(t.TempDir(), "model")
	require.NoError(t, c.Write(dir))
	return dir
}

// openModel opens a checkpoint until the test ends.
func openModel(t testing.TB, path string) formats.Checkpoint {
	c, err := formats.Open(context.Background(), path)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// openDense opens the dense view of a checkpoint or artifact.
func openDense(t testing.TB, path string) formats.Checkpoint {
	d, err := formats.Dense(openModel(t, path))
	require.NoError(t, err)
	return d
}

// windows is a calibration set of synthetic ids.
func windows(n, seqLen, vocab int) *calib.Set {
	return &calib.Set{IDs: testmodel.IDs(n*seqLen, vocab, 0), SeqLen: seqLen, Windows: n, Requested: n, Documents: 1,
		DocStart: []int{0}, TokensUsed: int64(n * seqLen), Files: []calib.FileStat{{Name: "synthetic"}}}
}

// options are those of most runs: a small calibration set, two threads.
func options(t testing.TB) Options {
	return Options{Out: filepath.Join(t.TempDir(), "out"), Calib: windows(4, 32, 128), Threads: 2, Version: "test"}
}

// recipes are one recipe per method, for tests that must hold for each.
func recipes() map[string]Recipe {
	return map[string]Recipe{
		"awq":  NewAWQ(int4, "awq", AWQOptions{}),
		"rtn":  NewRTN(int4, "compressed-tensors"),
		"gptq": NewGPTQ(int4Sym, "gptq", gptq.Best()),
	}
}

// runTiny quantizes a model at path and returns the report and the artifact's path.
func runTiny(t testing.TB, path string, r Recipe, o Options) (*Report, string) {
	rep, err := Run(context.Background(), openModel(t, path), r, o)
	require.NoError(t, err)
	return rep, o.Out
}

// valuesOf reads a tensor as float32.
func valuesOf(t testing.TB, src tensor.Source, name string) []float32 {
	info, ok := src.Lookup(name)
	require.True(t, ok, name)
	v, err := floats(src, info)
	require.NoError(t, err)
	return v
}

// digests hashes every file below dir, except for the report, which holds times.
func digests(t testing.TB, dir string) map[string]string {
	sums := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == ReportName {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		sum := sha256.Sum256(data)
		sums[rel] = hex.EncodeToString(sum[:])
		return err
	}))
	return sums
}

// onDisk adds up the sizes of files by name.
func onDisk(t testing.TB, dir string, names ...string) int64 {
	var sum int64
	for _, n := range names {
		info, err := os.Stat(filepath.Join(dir, n))
		require.NoError(t, err)
		sum += info.Size()
	}
	return sum
}

// recorder keeps the events of a run.
type recorder struct {
	mu     sync.Mutex
	events []Event
}

func (r *recorder) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// of returns the events of a kind.
func (r *recorder) of(kind string) (out []Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

func readJSON(t testing.TB, path string, v any) {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, v))
}

// repository is the root of the repository, seen from this package.
var repository = ".."

// golm is the trained test model of the repository.
var golm = filepath.Join(repository, "testdata", "golm-llama")

// sharedFile locates reference data kept beside the repository, or skips the test.
func sharedFile(t testing.TB, parts ...string) string {
	path := filepath.Join(append([]string{repository, "..", "shared"}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not beside the repository", filepath.Join(parts...))
	}
	return path
}

// rewrite replaces the weights of a checkpoint in one file by what edit makes of them.
func rewrite(t testing.TB, dir string, edit func(infos []tensor.Info, data map[string][]byte) []tensor.Info) {
	path := filepath.Join(dir, "model.safetensors")
	f, err := safetensors.Open(path, safeio.DefaultLimits())
	require.NoError(t, err)
	data := map[string][]byte{}
	for _, info := range f.Tensors() {
		data[info.Name], err = bytesOf(f, info)
		require.NoError(t, err)
	}
	infos := edit(append([]tensor.Info(nil), f.Tensors()...), data)
	require.NoError(t, f.Close())
	plan, _, err := safetensors.Plan(infos, 0, nil)
	require.NoError(t, err)
	file := make([]byte, plan.Files[0].Size)
	copy(file, plan.Files[0].Header)
	for _, p := range plan.Tensors {
		require.EqualValues(t, p.Bytes, copy(file[p.Offset:p.Offset+p.Bytes], data[p.Name]))
	}
	require.NoError(t, os.WriteFile(path, file, 0o644))
}

// addTensor adds one tensor to a checkpoint.
func addTensor(t testing.TB, dir string, info tensor.Info, content []byte) {
	rewrite(t, dir, func(infos []tensor.Info, data map[string][]byte) []tensor.Info {
		data[info.Name] = content
		return append(infos, info)
	})
}
