package formats

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/container"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safetensors"
	"github.com/llmquant/quantize/formats/tensor"
)

// The tests of this package run one tiny quantization again and again: three layers and a head in two shards, hidden
// states between layers, side files. Its bytes depend on nothing but the recipe below, so any interruption must end in
// the same tree.
type tinyRun struct {
	out    string
	fs     *safeio.FS
	force  bool
	single bool
	key    string
	mark   func(unit string) // called when Finish has returned
}

const tinyLayers = 3

func tinyPlan(t testing.TB, single bool, out string) (*container.Plan, []byte) {
	var infos []tensor.Info
	for l := range tinyLayers {
		for _, name := range []string{"qweight", "scales", "g_idx"} {
			infos = append(infos, tensor.Info{Name: fmt.Sprintf("layers.%d.%s", l, name), DType: tensor.I32, Shape: []int64{8, int64(4 + len(name))}})
		}
	}
	infos = append(infos, tensor.Info{Name: "head", DType: tensor.F16, Shape: []int64{3, 5}}, tensor.Info{Name: "empty", DType: tensor.F32, Shape: []int64{0}})
	if single {
		plan, _, err := safetensors.Plan(infos, 0, func(int, int) string { return filepath.Base(out) })
		require.NoError(t, err)
		plan.Files[0].Size += 5 // padding at the end, as GGUF has
		return plan, nil
	}
	plan, index, err := safetensors.Plan(infos, 1000, nil)
	require.NoError(t, err)
	require.Greater(t, len(plan.Files), 1)
	return plan, index
}

func content(name string, n int64) []byte {
	var b []byte
	for i := 0; int64(len(b)) < n; i++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", name, i))
		b = append(b, sum[:]...)
	}
	return b[:n]
}

func (r tinyRun) options(t testing.TB) JobOptions {
	plan, _ := tinyPlan(t, r.single, r.out)
	key := "key-1"
	if r.key != "" {
		key = r.key
	}
	return JobOptions{Out: r.out, Key: key, Describe: map[string]string{"method": key, "model": "tiny"}, Plan: plan,
		Force: r.force, SingleFile: r.single, FS: r.fs}
}

// do performs what is left of the run, as quant.Run does.
func (r tinyRun) do(t testing.TB) (err error) {
	o := r.options(t)
	j, err := OpenJob(context.Background(), o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	sizes := map[string]int64{}
	for _, p := range o.Plan.Tensors {
		sizes[p.Name] = p.Bytes
	}
	var kept, next *Blob // the state in front of the layer, and the one behind it
	defer func() { err = errors.Join(err, kept.Close(), next.Close()) }()
	for l := range tinyLayers {
		unit := fmt.Sprintf("layer %d", l)
		if j.Done(unit) {
			continue
		}
		if kept == nil {
			if kept, err = r.hidden(j, l); err != nil {
				return err
			}
		}
		var names []string
		for _, suffix := range []string{"qweight", "scales", "g_idx"} {
			name := fmt.Sprintf("layers.%d.%s", l, suffix)
			if err := fill(j, name, sizes[name]); err != nil {
				return err
			}
			names = append(names, name)
		}
		if err := r.save(j, l+1, &next); err != nil {
			return err
		}
		if err := r.finish(j, unit, names, fmt.Appendf(nil, `{"rows":%d}`, l)); err != nil {
			return err
		}
		if kept, next = next, kept; next != nil {
			if err := next.Reuse(); err != nil {
				return err
			}
		}
	}
	if !j.Done("head") {
		if err := fill(j, "head", sizes["head"]); err != nil {
			return err
		}
		if err := r.finish(j, "head", []string{"head", "empty"}, nil); err != nil {
			return err
		}
	}
	var states string
	for unit, state := range j.States() {
		states += unit + string(state) + ";"
	}
	require.Equal(t, `layer 0{"rows":0};layer 1{"rows":1};layer 2{"rows":2};head;`, states)
	side, last := r.company(t)
	return j.Publish(context.Background(), side, func(files []FileSum) (map[string][]byte, error) {
		for i, f := range files {
			require.Equal(t, o.Plan.Files[i].Name, f.Name)
			data, err := os.ReadFile(filepath.Join(r.out+".partial", "new", f.Name))
			require.NoError(t, err)
			sum := sha256.Sum256(data)
			require.Equal(t, FileSum{f.Name, int64(len(data)), hex.EncodeToString(sum[:])}, f)
		}
		return last, nil
	})
}

// save writes the state in front of a layer, the end of odd ones first.
func (r tinyRun) save(j *Job, l int, b **Blob) (err error) {
	name := fmt.Sprint("hidden ", l)
	data := content(name, 700)
	if *b == nil {
		if *b, err = j.NewBlob(int64(len(data))); err != nil {
			return err
		}
	}
	for _, from := range []int{300 * (l % 2), 300 - 300*(l%2)} {
		to := 300
		if from > 0 {
			to = len(data)
		}
		if _, err := (*b).WriteAt(data[from:to], int64(from)); err != nil {
			return err
		}
	}
	return (*b).Commit(name)
}

// hidden loads the state in front of a layer; one that is lost would be computed again.
func (r tinyRun) hidden(j *Job, l int) (*Blob, error) {
	if l == 0 {
		return nil, nil
	}
	name := fmt.Sprint("hidden ", l)
	b, err := j.OpenBlob(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data := make([]byte, b.size)
	if _, err := b.ReadAt(data, 0); err != nil {
		return nil, err
	}
	if !bytes.Equal(data, content(name, 700)) {
		return nil, fmt.Errorf("wrong hidden states: %q", data)
	}
	return b, nil
}

func (r tinyRun) finish(j *Job, unit string, names []string, state []byte) error {
	err := j.Finish(unit, names, state)
	if err == nil && r.mark != nil {
		r.mark(unit)
	}
	return err
}

func (r tinyRun) company(t testing.TB) ([]SideFile, map[string][]byte) {
	if r.single {
		return nil, map[string][]byte{filepath.Base(r.out) + ".report.json": []byte("{}\n")}
	}
	_, index := tinyPlan(t, r.single, r.out)
	text := []byte("tokens")
	side := []SideFile{
		{Name: "tokenizer.json", Size: int64(len(text)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }},
		{Name: "quantize_report.json", Size: 1, Open: func() (io.ReadCloser, error) { return nil, errors.New("replaced by a document") }},
	}
	return side, map[string][]byte{"config.json": []byte("{}"), "quantize_report.json": []byte("[]"), safetensors.IndexName: index}
}

// fill writes a tensor in three pieces, the last two out of order.
func fill(j *Job, name string, n int64) error {
	data := content(name, n)
	a, b := n/3, n*2/3
	return errors.Join(j.Write(name, 0, data[:a]), j.Write(name, b, data[b:]), j.Write(name, a, data[a:b]))
}

// fast is the real file system without waiting for the disk; tests that simulate crashes keep their own account of what
// would have been durable.
func fast() *safeio.FS {
	f := safeio.OS()
	f.Sync = func(*os.File) error { return nil }
	f.SyncDir = func(string) error { return nil }
	return f
}

// golden returns the digest of the directory in which an uninterrupted run has published.
func golden(t testing.TB, single bool) string {
	out := filepath.Join(memDir(t), "golden", "out")
	require.NoError(t, tinyRun{out: out, fs: fast(), single: single}.do(t))
	return digestTree(t, filepath.Dir(out))
}

// goldenOut returns the digest of the published directory or file itself.
func goldenOut(t testing.TB, single bool) string {
	out := filepath.Join(memDir(t), "out")
	require.NoError(t, tinyRun{out: out, fs: fast(), single: single}.do(t))
	return digestTree(t, out)
}

// memDir is t.TempDir in memory where the system has such a place: tests of thousands of runs spend their time creating
// files.
func memDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "job")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// digestTree hashes names, kinds and contents of everything below dir.
func digestTree(t testing.TB, dir string) string {
	h := sha256.New()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %v\n", rel, d.Type())
		if d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(h, "%d ", len(data))
			h.Write(data)
		}
		return nil
	}))
	return hex.EncodeToString(h.Sum(nil))
}
