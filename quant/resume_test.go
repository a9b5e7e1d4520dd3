package quant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/testmodel"
	"github.com/llmquant/quantize/quant/grid/mixture"
)

// countdown is a context that is cancelled when it was asked for the n-th time whether it is.
type countdown struct {
	context.Context
	cancel context.CancelFunc
	left   atomic.Int64
}

func newCountdown(n int) *countdown {
	ctx, cancel := context.WithCancel(context.Background())
	c := &countdown{Context: ctx, cancel: cancel}
	c.left.Store(int64(n))
	return c
}

func (c *countdown) Err() error {
	if c.left.Add(-1) < 0 {
		c.cancel()
	}
	return c.Context.Err()
}

// interrupted is one job that tests stop and continue.
type interrupted struct {
	name string
	run  func(ctx context.Context, o Options) error
	want string // hash of what an uninterrupted run leaves
}

// jobs are the runs that must survive interruption: a calibrated parallel method, a sequential one, plain rounding in
// shards, a mixture of experts, and a GGUF file.
func jobs(t *testing.T) []interrupted {
	c := testmodel.Llama()
	c.Layers = 3
	moe := testmodel.Qwen3MoE()
	dirs := map[string]string{"dense": writeModel(t, c), "mixture": writeModel(t, moe)}
	var all []interrupted
	for _, x := range []struct{ name, model, method string }{
		{"awq", "dense", "awq"}, {"gptq", "dense", "gptq"}, {"rtn", "dense", "rtn"}, {"awq experts", "mixture", "awq"},
	} {
		j := interrupted{name: x.name, run: func(ctx context.Context, o Options) error {
			src, err := formats.Open(context.Background(), dirs[x.model])
			if err != nil {
				return err
			}
			defer src.Close()
			o.MaxShard = 40_000
			_, err = Run(ctx, src, recipes()[x.method], o)
			return err
		}}
		o := options(t)
		require.NoError(t, j.run(context.Background(), o))
		j.want = treeHash(t, o.Out)
		all = append(all, j)
	}
	return all
}

// stop runs the job until the context is asked n times, and says whether it finished.
func (j *interrupted) stop(t *testing.T, o Options, n int) (finished bool) {
	err := j.run(newCountdown(n), o)
	if err == nil {
		return true
	}
	require.ErrorIs(t, err, context.Canceled, j.name)
	require.NoDirExists(t, o.Out, "nothing under the final name")
	return false
}

// A run that is cancelled wherever it looks at its context leaves nothing under the final name and continues to the
// same bytes, with another number of threads, once interrupted or twice.
func TestCancelAnywhereAndResume(t *testing.T) {
	step := 2
	if os.Getenv("QUANTIZE_LONG") != "" {
		step = 1
	}
	for _, j := range jobs(t) {
		t.Run(j.name, func(t *testing.T) {
			stops := 0
			for n, finished := 0, false; !finished; n += 1 + n/step {
				o := options(t)
				if finished = j.stop(t, o, n); !finished {
					stops++
					o.Threads = 1 + n%3
					if n%2 == 1 {
						finished = j.stop(t, o, n/2) // interrupted while continuing
					}
				}
				if !finished {
					require.NoError(t, j.run(context.Background(), o))
				}
				require.Equal(t, j.want, treeHash(t, o.Out), "stopped at %d", n)
				require.NoDirExists(t, o.Out+".partial")
			}
			require.Greater(t, stops, 8)
		})
	}
}

// A run that is stopped behind every unit boundary does only what is left, and reports everything.
func TestResumeDoesWhatIsLeft(t *testing.T) {
	for _, j := range jobs(t) {
		for stopAt := 1; ; stopAt++ {
			o := options(t)
			ctx, cancel := context.WithCancel(context.Background())
			layers := 0
			o.Events = func(e Event) {
				if strings.HasPrefix(e.Stage, "layer ") {
					if layers++; layers == stopAt+1 { // unit stopAt is durable
						cancel()
					}
				}
			}
			err := j.run(ctx, o)
			if err == nil {
				require.Greater(t, stopAt, 1, "the job has layers")
				cancel()
				break
			}
			require.ErrorIs(t, err, context.Canceled)
			var again []string
			o.Events = func(e Event) {
				if strings.HasPrefix(e.Stage, "layer ") {
					again = append(again, e.Stage)
				}
			}
			require.NoError(t, j.run(context.Background(), o))
			require.NotEmpty(t, again)
			require.True(t, strings.HasPrefix(again[0], fmt.Sprintf("layer %d of", stopAt+1)), "%s continued with %q", j.name, again[0])
			require.Equal(t, j.want, treeHash(t, o.Out))
			cancel()

			var rep Report
			readJSON(t, filepath.Join(o.Out, ReportName), &rep)
			seen := map[string]bool{}
			for _, row := range rep.Tensors {
				require.NotEmpty(t, row.Name, "a row is missing")
				require.NotEmpty(t, row.Grid)
			}
			for _, e := range rep.Events {
				require.False(t, seen[e.Tensor+e.Message], "reported twice: %+v", e)
				seen[e.Tensor+e.Message] = true
			}
		}
	}
}

// stopBehind runs the job until layer n (from 1) is durable.
func stopBehind(t *testing.T, j interrupted, o Options, n int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	o.Events = func(e Event) {
		if strings.HasPrefix(e.Stage, fmt.Sprintf("layer %d of", n+1)) {
			cancel()
		}
	}
	require.ErrorIs(t, j.run(ctx, o), context.Canceled)
}

// Damage to unfinished work is noticed and costs work only: bytes of a finished layer, saved hidden states, a whole
// file, the journal's tail.
func TestDamagedWorkIsDoneAgain(t *testing.T) {
	damages := map[string]func(t *testing.T, work string){
		"a byte of every weight file": func(t *testing.T, work string) {
			files, err := filepath.Glob(filepath.Join(work, "new", "*.safetensors"))
			require.NoError(t, err)
			require.NotEmpty(t, files)
			for _, f := range files[:1] {
				flip(t, f, -3)
			}
		},
		"a header": func(t *testing.T, work string) {
			files, _ := filepath.Glob(filepath.Join(work, "new", "*.safetensors"))
			flip(t, files[0], 20)
		},
		"saved states": func(t *testing.T, work string) {
			files, _ := filepath.Glob(filepath.Join(work, "blob-*"))
			for _, f := range files {
				flip(t, f, 5)
			}
		},
		"lost states": func(t *testing.T, work string) {
			files, _ := filepath.Glob(filepath.Join(work, "blob-*"))
			for _, f := range files {
				require.NoError(t, os.Remove(f))
			}
		},
		"truncated states": func(t *testing.T, work string) {
			files, _ := filepath.Glob(filepath.Join(work, "blob-*"))
			for _, f := range files {
				require.NoError(t, os.Truncate(f, 100))
			}
		},
		"lost weights": func(t *testing.T, work string) {
			require.NoError(t, os.RemoveAll(filepath.Join(work, "new")))
		},
		"the journal's tail": func(t *testing.T, work string) {
			info, err := os.Stat(filepath.Join(work, "journal"))
			require.NoError(t, err)
			require.NoError(t, os.Truncate(filepath.Join(work, "journal"), info.Size()-7))
		},
	}
	for _, j := range jobs(t) {
		if strings.Contains(j.name, "experts") {
			continue // two layers are too few to damage the first of several
		}
		for name, damage := range damages {
			o := options(t)
			stopBehind(t, j, o, 2)
			damage(t, o.Out+".partial")
			require.NoError(t, j.run(context.Background(), o), "%s, %s", j.name, name)
			require.Equal(t, j.want, treeHash(t, o.Out), "%s, %s", j.name, name)
		}
	}
}

// flip changes one byte of a file; at < 0 counts from the end.
func flip(t *testing.T, path string, at int) {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	if at < 0 {
		at += len(data)
	}
	data[at] ^= 0x10
	require.NoError(t, os.WriteFile(path, data, 0o644))
}

// Unfinished work is continued by the same job only: another recipe, text, option or version is told apart, and the
// message says what differs. --force starts over.
func TestAnotherJobDoesNotContinue(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	awq := NewAWQ(int4, "awq", AWQOptions{})
	start := func(t *testing.T) Options {
		o := options(t)
		stopBehind(t, interrupted{run: func(ctx context.Context, o Options) error {
			_, err := Run(ctx, openModel(t, dir), awq, o)
			return err
		}}, o, 1)
		return o
	}
	other := testmodel.Llama()
	other.Patch = func(_ string, v []float32) { v[0]++ }
	otherDir := writeModel(t, other)
	for name, change := range map[string]func(*string, *Recipe, *Options){
		"recipe":      func(_ *string, r *Recipe, _ *Options) { *r = NewAWQ(int4, "awq", AWQOptions{Grid: 10}) },
		"recipe ":     func(_ *string, r *Recipe, _ *Options) { *r = NewRTN(int4, "awq") },
		"calibration": func(_ *string, _ *Recipe, o *Options) { o.Calib = windows(3, 32, 128) },
		"version":     func(_ *string, _ *Recipe, o *Options) { o.Version = "other" },
		"nan":         func(_ *string, _ *Recipe, o *Options) { o.NaNZero = true },
		"input":       func(p *string, _ *Recipe, _ *Options) { *p = otherDir },
		"plan":        func(_ *string, r *Recipe, _ *Options) { r.Allocation = Uniform{int4Sym} },
	} {
		t.Run(name, func(t *testing.T) {
			o, path, r := start(t), dir, awq
			change(&path, &r, &o)
			_, err := Run(context.Background(), openModel(t, path), r, o)
			require.ErrorIs(t, err, safeio.ErrExists)
			require.ErrorContains(t, err, strings.TrimSpace(name))
			o.Force = true
			_, err = Run(context.Background(), openModel(t, path), r, o)
			require.NoError(t, err)
			require.DirExists(t, o.Out)
		})
	}
	t.Run("threads, memory and events are no part of it", func(t *testing.T) {
		o := start(t)
		o.Threads, o.Memory, o.Events = 7, 1<<34, func(Event) {}
		_, err := Run(context.Background(), openModel(t, dir), awq, o)
		require.NoError(t, err)
	})
}

// A finished output is replaced only by force, and stays whole when the replacement fails.
func TestExistingOutput(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	rep, out := runTiny(t, dir, RTN(4, 32), options(t))
	require.NotNil(t, rep)
	before := treeHash(t, out)
	o := Options{Out: out, Threads: 1, Version: "test"}
	_, err := Run(context.Background(), openModel(t, dir), RTN(4, 64), o)
	require.ErrorIs(t, err, safeio.ErrExists)
	require.Equal(t, before, treeHash(t, out))

	o.Force = true
	ctx, cancel := context.WithCancel(context.Background())
	o.Events = func(e Event) {
		if strings.HasPrefix(e.Stage, "layer 2") {
			cancel()
		}
	}
	_, err = Run(ctx, openModel(t, dir), RTN(4, 64), o)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, before, treeHash(t, out), "the old output is there until the new one is complete")
	o.Events = nil
	_, err = Run(context.Background(), openModel(t, dir), RTN(4, 64), o)
	require.NoError(t, err)
	require.NotEqual(t, before, treeHash(t, out))
}

// The source is read only, may not contain the output, and may not change while it is quantized.
func TestSourceIsSafe(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	before := treeHash(t, dir)
	for _, out := range []string{dir, filepath.Join(dir, "out"), filepath.Join(dir, "..", "model", "x", "..", "y"), filepath.Dir(dir)} {
		o := options(t)
		o.Out, o.Force = out, true
		_, err := Run(context.Background(), openModel(t, dir), RTN(4, 32), o)
		require.Error(t, err, out)
		require.Equal(t, before, treeHash(t, dir), out)
	}
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	o := options(t)
	o.Out = filepath.Join(link, "out")
	_, err := Run(context.Background(), openModel(t, dir), RTN(4, 32), o)
	require.Error(t, err)
	require.Equal(t, before, treeHash(t, dir))

	o = options(t)
	o.Events = func(e Event) {
		if strings.HasPrefix(e.Stage, "layer 2") {
			data, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), data[:len(data)-2], 0o644))
		}
	}
	_, err = Run(context.Background(), openModel(t, dir), RTN(4, 32), o)
	require.Error(t, err)
	require.NoDirExists(t, o.Out)
}

// A GGUF run continues as well; its units are ranges of tensors.
func TestResumeGGUF(t *testing.T) {
	file, _ := mixture.ParseFileType("Q8_0")
	run := func(ctx context.Context, o Options) error {
		_, err := RunGGUF(ctx, openModel(t, golm), GGUFRecipe{Mixture: mixture.Options{File: file}}, o)
		return err
	}
	o := Options{Out: filepath.Join(t.TempDir(), "whole.gguf"), Threads: 2, Version: "test"}
	require.NoError(t, run(context.Background(), o))
	want := treeHash(t, o.Out)
	for n, finished := 0, false; !finished; n += 3 + n/2 {
		o.Out = filepath.Join(t.TempDir(), "whole.gguf")
		err := run(newCountdown(n), o)
		if finished = err == nil; !finished {
			require.True(t, errors.Is(err, context.Canceled), err)
			require.NoFileExists(t, o.Out)
			o.Threads = 1 + n%3
			require.NoError(t, run(context.Background(), o))
		}
		require.Equal(t, want, treeHash(t, o.Out))
	}
}
