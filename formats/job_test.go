package formats

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/container"
	"github.com/llmquant/quantize/formats/safeio"
)

func TestJobPublishes(t *testing.T) {
	parent := t.TempDir()
	out := filepath.Join(parent, "deep", "out")
	require.NoError(t, tinyRun{out: out}.do(t))
	c, err := Open(context.Background(), out)
	require.NoError(t, err)
	defer c.Close()
	require.Len(t, c.Tensors(), 3*tinyLayers+2)
	for _, info := range c.Tensors() {
		n, _ := info.Bytes()
		data := make([]byte, n)
		require.NoError(t, c.ReadTensor(info.Name, data, 0))
		require.Equal(t, string(content(info.Name, n)), string(data))
	}
	require.Len(t, c.Meta().Side, 1)
	report, err := os.ReadFile(filepath.Join(out, "quantize_report.json"))
	require.NoError(t, err)
	require.Equal(t, "[]", string(report), "a document wins over a side file of its name")
	require.NoDirExists(t, out+".partial")

	require.ErrorIs(t, tinyRun{out: out}.do(t), safeio.ErrExists)
	require.NoDirExists(t, out+".partial", "a refused run leaves nothing behind")
	require.NoError(t, tinyRun{out: out, force: true}.do(t))
	require.Equal(t, golden(t, false), digestTree(t, filepath.Dir(out)))
}

func TestJobSingleFile(t *testing.T) {
	dir := filepath.Join(memDir(t), "golden")
	out := filepath.Join(dir, "out")
	require.NoError(t, tinyRun{out: out, single: true}.do(t))
	require.FileExists(t, out)
	require.FileExists(t, out+".report.json")
	require.ErrorIs(t, tinyRun{out: out, single: true}.do(t), safeio.ErrExists)
	require.NoError(t, os.Remove(out))
	require.NoError(t, tinyRun{out: out, single: true}.do(t), "a stale report alone is replaced")
	require.Equal(t, golden(t, true), digestTree(t, dir))
}

// A second run may not even look at the output while the first one works, and learns whom it waits for.
func TestJobLocked(t *testing.T) {
	r := tinyRun{out: filepath.Join(memDir(t), "out"), fs: fast()}
	j, err := OpenJob(context.Background(), r.options(t))
	require.NoError(t, err)
	err = r.do(t)
	require.ErrorIs(t, err, safeio.ErrLocked)
	require.ErrorContains(t, err, fmt.Sprint("pid ", os.Getpid(), " on "))
	require.NoError(t, j.Close())
	require.ErrorIs(t, j.Write("head", 0, nil), fs.ErrClosed)
	require.NoError(t, r.do(t))
}

func TestConcurrentStarts(t *testing.T) {
	for round := range 50 {
		r := tinyRun{out: filepath.Join(memDir(t), "out"), fs: fast(), force: round%2 == 1}
		start := make(chan struct{})
		won := make(chan *Job, 8)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				o := r.options(t)
				<-start
				j, err := OpenJob(context.Background(), o)
				if err == nil {
					won <- j
				} else if !errors.Is(err, safeio.ErrLocked) {
					t.Error(err)
				}
			})
		}
		close(start)
		wg.Wait()
		require.Len(t, won, 1)
		require.NoError(t, (<-won).Close())
		require.NoError(t, r.do(t))
	}
}

// The same, with runs so short that later starters find the work directory vanishing under them: whoever comes too late
// finds the output complete, and nobody ever publishes twice or damages it.
func TestConcurrentRuns(t *testing.T) {
	want := golden(t, false)
	for range 20 {
		r := tinyRun{out: filepath.Join(memDir(t), "golden", "out"), fs: fast()}
		errs := make([]error, 8)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = r.do(t) })
		}
		wg.Wait()
		published := 0
		for _, err := range errs {
			switch {
			case err == nil:
				published++
			case !errors.Is(err, safeio.ErrLocked) && !errors.Is(err, safeio.ErrExists):
				t.Error(err)
			}
		}
		require.Equal(t, 1, published)
		require.Equal(t, want, digestTree(t, filepath.Dir(r.out)))
	}
}

func TestJobRefusesOtherKey(t *testing.T) {
	r := tinyRun{out: filepath.Join(memDir(t), "golden", "out"), fs: fast()}
	j, err := OpenJob(context.Background(), r.options(t))
	require.NoError(t, err)
	require.NoError(t, fill(j, "head", 30))
	require.NoError(t, j.Finish("head", []string{"head", "empty"}, nil))
	require.NoError(t, j.Close())

	other := r
	other.key = "key-2"
	err = other.do(t)
	require.ErrorIs(t, err, safeio.ErrExists)
	require.ErrorContains(t, err, `method was "key-1", is now "key-2"`)
	require.NotContains(t, err.Error(), "tiny", "what is equal is not mentioned")

	j, err = OpenJob(context.Background(), r.options(t))
	require.NoError(t, err)
	require.True(t, j.Done("head"), "the refusal has not touched the work")
	require.NoError(t, j.Close())
	other.force = true
	require.NoError(t, other.do(t))
	require.Equal(t, golden(t, false), digestTree(t, filepath.Dir(r.out)))
}

// Every byte is written exactly once, inside its tensor, before its unit is finished.
func TestJobRefusesMisuse(t *testing.T) {
	r := tinyRun{out: filepath.Join(memDir(t), "out"), fs: fast()}
	j, err := OpenJob(context.Background(), r.options(t))
	require.NoError(t, err)
	defer j.Close()
	ctx := context.Background()
	verify := func(err error) { t.Helper(); require.ErrorIs(t, err, safeio.ErrVerify) }
	verify(j.Write("nothing", 0, nil))
	verify(j.Write("head", 0, make([]byte, 31)))
	verify(j.Write("head", -1, make([]byte, 3)))
	verify(j.Write("head", 31, nil))
	require.NoError(t, j.Write("head", 10, make([]byte, 10)))
	verify(j.Write("head", 19, make([]byte, 2)))
	verify(j.Write("head", 5, make([]byte, 20)))
	verify(j.Write("head", 0, make([]byte, 11)))
	verify(j.Finish("head", []string{"head"}, nil))
	require.NoError(t, j.Write("head", 0, make([]byte, 10)))
	require.NoError(t, j.Write("head", 20, make([]byte, 10)))
	verify(j.Read("head", 0, make([]byte, 1)))
	verify(j.Finish("", []string{"head"}, nil))
	verify(j.Finish("head", []string{"nothing"}, nil))
	require.NoError(t, j.Finish("head", []string{"head"}, nil))
	require.NoError(t, j.Read("head", 1, make([]byte, 29)))
	verify(j.Read("head", 1, make([]byte, 30)))
	verify(j.Write("head", 0, make([]byte, 1)))
	verify(j.Finish("head", nil, nil))
	verify(j.Finish("again", []string{"head"}, nil))
	verify(j.Publish(ctx, nil, nil))
	require.NoDirExists(t, r.out)
}

// A bit that flips on disk between Finish and Publish stops the publication; between two runs it costs the unit, which is
// done again.
func TestJobNoticesCorruption(t *testing.T) {
	want := golden(t, false)
	flip := func(path string, at int64) {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		defer f.Close()
		var b [1]byte
		_, err = f.ReadAt(b[:], at)
		require.NoError(t, err)
		b[0] ^= 4
		_, err = f.WriteAt(b[:], at)
		require.NoError(t, err)
	}
	o := tinyRun{out: "out"}.options(t)
	for _, place := range o.Plan.Tensors {
		if place.Bytes == 0 {
			continue
		}
		r := tinyRun{out: filepath.Join(memDir(t), "golden", "out"), fs: fast()}
		file := filepath.Join(r.out+".partial", "new", o.Plan.Files[place.File].Name)
		marks := 0
		r.mark = func(unit string) {
			if marks++; unit == "head" {
				flip(file, place.Offset+place.Bytes-1)
			}
		}
		require.ErrorIs(t, r.do(t), safeio.ErrVerify)
		require.NoDirExists(t, r.out)
		marks, r.mark = 0, func(string) { marks++ }
		require.NoError(t, r.do(t))
		require.NotZero(t, marks, "the damaged unit was done again")
		require.Equal(t, want, digestTree(t, filepath.Dir(r.out)))
	}
	r := tinyRun{out: filepath.Join(memDir(t), "golden", "out"), fs: fast()}
	r.mark = func(unit string) {
		if unit == "head" {
			flip(filepath.Join(r.out+".partial", "new", o.Plan.Files[0].Name), 20) // in the header
		}
	}
	require.ErrorIs(t, r.do(t), safeio.ErrVerify)
	r.mark = nil
	require.NoError(t, r.do(t))
	require.Equal(t, want, digestTree(t, filepath.Dir(r.out)))
}

// A caller that cannot go on with what is left starts over, under the same lock.
func TestJobRestarts(t *testing.T) {
	r := tinyRun{out: filepath.Join(memDir(t), "golden", "out"), fs: fast()}
	j, err := OpenJob(context.Background(), r.options(t))
	require.NoError(t, err)
	require.NoError(t, fill(j, "head", 30))
	require.NoError(t, j.Finish("head", []string{"head", "empty"}, nil))
	require.NoError(t, j.Restart())
	require.False(t, j.Done("head"))
	require.ErrorIs(t, r.do(t), safeio.ErrLocked)
	require.NoError(t, fill(j, "head", 30))
	require.NoError(t, j.Finish("head", []string{"head", "empty"}, nil))
	require.NoError(t, j.Close())
	require.Error(t, j.Restart())
	require.NoError(t, r.do(t))
	require.Equal(t, golden(t, false), digestTree(t, filepath.Dir(r.out)))
}

func TestJobChecksSpace(t *testing.T) {
	r := tinyRun{out: filepath.Join(memDir(t), "out"), fs: fast()}
	r.fs.Free = func(string) (int64, error) { return 100, nil }
	err := r.do(t)
	require.ErrorIs(t, err, syscall.ENOSPC)
	var e *safeio.Error
	require.ErrorAs(t, err, &e)
	var need int64
	for _, f := range r.options(t).Plan.Files {
		need += f.Size
	}
	require.ErrorContains(t, err, fmt.Sprintf("%d bytes are needed, 100 are free", need))
	require.Equal(t, fmt.Sprintf("free %d bytes or choose another output path", need-100), e.Hint)
	require.NoDirExists(t, r.out+".partial")
}

// File systems that lack an operation are used without it, and the user is told once.
func TestJobToleratesMissingSync(t *testing.T) {
	r := tinyRun{out: filepath.Join(memDir(t), "golden", "out"), fs: safeio.OS()}
	r.fs.Sync = func(f *os.File) error { return &os.PathError{Op: "sync", Path: f.Name(), Err: syscall.ENOTSUP} }
	r.fs.SyncDir = func(string) error { return syscall.EINVAL }
	r.fs.Free = func(string) (int64, error) { return 0, syscall.ENOSYS }
	j, err := OpenJob(context.Background(), r.options(t))
	require.NoError(t, err)
	require.Len(t, j.Warnings(), 1)
	require.NoError(t, j.Close())
	require.NoError(t, r.do(t))
	require.Equal(t, golden(t, false), digestTree(t, filepath.Dir(r.out)))
}

func TestJobKeepsApartFromInputs(t *testing.T) {
	dir := memDir(t)
	model := filepath.Join(dir, "model")
	require.NoError(t, os.MkdirAll(filepath.Join(model, "sub"), 0o755))
	weights := filepath.Join(model, "w.gguf")
	require.NoError(t, os.WriteFile(weights, []byte("x"), 0o644))
	require.NoError(t, os.Symlink(model, filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink(weights, filepath.Join(dir, "out.gguf")))
	refused := []struct{ out, in string }{
		{model, model}, {filepath.Join(dir, "x", "..", "model"), model}, {filepath.Join(dir, "link"), model}, {model, filepath.Join(dir, "link")},
		{filepath.Join(model, "out"), model}, {filepath.Join(dir, "link", "out"), model}, {filepath.Join(model, "new", "deep", "out"), model},
		{model, filepath.Join(model, "sub")}, {model, weights}, {dir, model}, {weights, weights}, {filepath.Join(dir, "out.gguf"), weights},
		{filepath.Join(dir, "model", "sub", ".."), model},
	}
	for _, c := range refused {
		_, err := OpenJob(context.Background(), JobOptions{Out: c.out, Inputs: []string{c.in}, Plan: &container.Plan{}, Force: true})
		require.ErrorIs(t, err, safeio.ErrUnsupported, "%s from %s", c.out, c.in)
		require.NoDirExists(t, c.out+".partial")
	}
	for _, c := range []struct{ out, in string }{{filepath.Join(dir, "model-awq"), model}, {filepath.Join(model, "other.gguf"), weights}} {
		require.NoError(t, apart(c.out, []string{c.in}))
	}
	_, err := OpenJob(context.Background(), JobOptions{Out: filepath.Join(dir, "o"), Inputs: []string{filepath.Join(dir, "none")}, Plan: &container.Plan{}})
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// Side files are copied byte for byte at any size; one that grew, shrank or fails stops the publication.
func TestSideFiles(t *testing.T) {
	publish := func(size int64, open func() (io.ReadCloser, error)) (string, error) {
		out := filepath.Join(memDir(t), "out")
		j, err := OpenJob(context.Background(), JobOptions{Out: out, Plan: &container.Plan{}, FS: fast()})
		require.NoError(t, err)
		defer j.Close()
		return out, j.Publish(context.Background(), []SideFile{{Name: "s", Size: size, Open: open}},
			func([]FileSum) (map[string][]byte, error) { return nil, nil })
	}
	for _, n := range []int64{0, 1, hashChunk - 1, hashChunk, hashChunk + 1, 2 * hashChunk} {
		want := content("side", n)
		from := func(data []byte) func() (io.ReadCloser, error) {
			return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
		}
		out, err := publish(n, from(want))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(out, "s"))
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "%d bytes", n)
		_, err = publish(n, from(append(want, 0)))
		require.ErrorIs(t, err, safeio.ErrCorrupt, "%d bytes and one more", n)
		_, err = publish(n+1, from(want[:n]))
		require.ErrorIs(t, err, safeio.ErrCorrupt, "%d bytes are one less", n)
	}
	_, err := publish(9, func() (io.ReadCloser, error) { return nil, fs.ErrPermission })
	require.ErrorIs(t, err, fs.ErrPermission)
	out, err := publish(9, func() (io.ReadCloser, error) { return io.NopCloser(iotest.ErrReader(io.ErrClosedPipe)), nil })
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.NoDirExists(t, out)
}

func TestJobRefusesBadPlans(t *testing.T) {
	file := func(size int64) []container.File {
		return []container.File{{Name: "a", Header: []byte("head"), Size: size}}
	}
	plans := map[string]*container.Plan{
		"header larger than file": {Files: file(3)},
		"path in a name":          {Files: []container.File{{Name: "../a"}}},
		"names collide":           {Files: []container.File{{Name: "a"}, {Name: "A"}}},
		"tensor twice":            {Files: file(9), Tensors: []container.Tensor{{Name: "t", Offset: 4, Bytes: 1}, {Name: "t", Offset: 5, Bytes: 1}}},
		"no such file":            {Files: file(9), Tensors: []container.Tensor{{Name: "t", File: 1}}},
		"negative file":           {Files: file(9), Tensors: []container.Tensor{{Name: "t", File: -1}}},
		"inside the header":       {Files: file(9), Tensors: []container.Tensor{{Name: "t", Offset: 3, Bytes: 1}}},
		"overlap":                 {Files: file(9), Tensors: []container.Tensor{{Name: "t", Offset: 4, Bytes: 2}, {Name: "u", Offset: 5, Bytes: 2}}},
		"behind the end":          {Files: file(9), Tensors: []container.Tensor{{Name: "t", Offset: 4, Bytes: 6}}},
		"overflow":                {Files: file(9), Tensors: []container.Tensor{{Name: "t", Offset: 4, Bytes: 1<<63 - 1}}},
		"negative size":           {Files: file(9), Tensors: []container.Tensor{{Name: "t", Offset: 4, Bytes: -1}}},
		"sum overflows":           {Files: append(file(1<<63-1), container.File{Name: "b", Size: 1})},
	}
	for name, plan := range plans {
		out := filepath.Join(memDir(t), "out")
		_, err := OpenJob(context.Background(), JobOptions{Out: out, Plan: plan})
		require.ErrorIs(t, err, safeio.ErrCorrupt, name)
		require.NoDirExists(t, out+".partial")
	}
	for _, out := range []string{"", "/", filepath.Join(memDir(t), strings.Repeat("n", 300))} {
		_, err := OpenJob(context.Background(), JobOptions{Out: out, Plan: &container.Plan{}})
		require.Error(t, err)
	}
}

// The journal says nothing about the machine or the time: equal runs leave equal journals.
func TestJournalIsReproducible(t *testing.T) {
	var texts []string
	for range 2 {
		r := tinyRun{out: filepath.Join(memDir(t), "out"), fs: fast()}
		r.mark = func(unit string) {
			if unit == "layer 1" {
				data, err := os.ReadFile(filepath.Join(r.out+".partial", "journal"))
				require.NoError(t, err)
				texts = append(texts, string(data))
			}
		}
		require.NoError(t, r.do(t))
	}
	require.Equal(t, texts[0], texts[1])
	for line := range strings.Lines(texts[0]) {
		require.True(t, json.Valid([]byte(line[linePrefix:])), line)
	}
}
