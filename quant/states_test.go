package quant

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/internal/testmodel"
	"github.com/llmquant/quantize/quant/gptq"
)

// manyWindows are enough for several chunks, the last of them short.
func manyWindows(o Options) Options {
	o.Calib = windows(45, 32, 128)
	return o
}

// tight returns the largest limit under which the hidden states have to stay on disk.
func tight(t testing.TB, dir string, r Recipe, o Options) int64 {
	p, err := MakePlan(context.Background(), openModel(t, dir), r, o)
	require.NoError(t, err)
	require.False(t, p.StatesOnDisk)
	o.Memory = p.Memory - p.Replay - 1
	onDisk, err := MakePlan(context.Background(), openModel(t, dir), r, o)
	require.NoError(t, err)
	require.True(t, onDisk.StatesOnDisk)
	require.Less(t, onDisk.Memory, p.Memory)
	require.Equal(t, p.Scratch, onDisk.Scratch, "a resumed run needs the files in any case")
	return o.Memory
}

// diskRecipes are a parallel method, a sequential one with two streams, and one that quantizes the head as well.
func diskRecipes() map[string]Recipe {
	head := NewGPTQ(int4Sym, "gptq", gptq.Best())
	head.Allocation = Overridden{Base: head.Allocation, Rules: []Rule{{Pattern: "lm_head", Spec: "int4:g32:sym"}}, Default: int4Sym}
	narrow := NewGPTQ(int4Sym, "gptq", gptq.Normal())
	narrow.BF16 = true
	return map[string]Recipe{"awq": NewAWQ(int4, "awq", AWQOptions{}), "gptq": NewGPTQ(int4Sym, "gptq", gptq.Best()), "head": head, "bf16": narrow}
}

// One hash, wherever the hidden states are and at any number of threads.
func TestMemoryChangesNoByte(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	for name, r := range diskRecipes() {
		o := manyWindows(options(t))
		want := ""
		for threads := 1; threads <= 3; threads++ {
			o.Threads, o.Memory = threads, 0
			p, err := MakePlan(context.Background(), openModel(t, dir), r, o)
			require.NoError(t, err)
			some := p.Memory - 1 // keeps the inputs of half of the tokens between passes
			for _, memory := range []int64{0, some, tight(t, dir, r, o)} {
				o.Memory, o.Out = memory, filepath.Join(t.TempDir(), "out")
				_, out := runTiny(t, dir, r, o)
				if got := treeHash(t, out); want == "" {
					want = got
				} else {
					require.Equal(t, want, got, "%s with %d threads and a limit of %d", name, threads, memory)
				}
			}
		}
	}
}

// A mixture's chunks and a GGUF file as well.
func TestMemoryChangesNoByteOfOtherKinds(t *testing.T) {
	moe := writeModel(t, testmodel.Qwen3MoE())
	r, o := NewGPTQ(int4Sym, "gptq", gptq.Best()), options(t)
	o.Calib = windows(100, 32, 128)
	limit := tight(t, moe, r, o)
	_, want := runTiny(t, moe, r, o)
	o.Memory, o.Out = limit, filepath.Join(t.TempDir(), "out")
	_, got := runTiny(t, moe, r, o)
	require.Equal(t, treeHash(t, want), treeHash(t, got))

	dir := tinyGGUF(t)
	gr := GGUFRecipe{Mixture: ggufType(t, "Q4_0").Mixture, Rounder: GPTQ{Options: gptq.Options{}}}
	o = Options{Threads: 2, Calib: windows(60, 64, 2000)}
	p, err := PlanGGUF(context.Background(), openModel(t, dir), gr, o)
	require.NoError(t, err)
	_, ample := runGGUF(t, openModel(t, dir), gr, o)
	o.Memory = p.Memory - p.blocks.Replay - 1
	p, err = PlanGGUF(context.Background(), openModel(t, dir), gr, o)
	require.NoError(t, err)
	require.True(t, p.StatesOnDisk)
	_, onDisk := runGGUF(t, openModel(t, dir), gr, o)
	require.Equal(t, fileSum(t, ample), fileSum(t, onDisk))
}

// A run is stopped anywhere in one mode and continued in the other. It never takes more disk than planned, and nothing
// of it is left.
func TestResumeInTheOtherMode(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	r := NewGPTQ(int4Sym, "gptq", gptq.Best())
	o := manyWindows(options(t))
	limits := []int64{tight(t, dir, r, o), 0}
	_, out := runTiny(t, dir, r, o)
	want := treeHash(t, out)
	plan, err := MakePlan(context.Background(), openModel(t, dir), r, o)
	require.NoError(t, err)
	stops := 0
	for n, finished := 4, false; !finished; n += 37 {
		o.Out, o.Memory = filepath.Join(t.TempDir(), "out"), limits[n%2]
		o.Events = func(Event) {
			files, _ := filepath.Glob(filepath.Join(o.Out+".partial", "blob-*"))
			sum := int64(0)
			for _, f := range files {
				if info, err := os.Stat(f); err == nil {
					sum += info.Size()
				}
			}
			require.LessOrEqual(t, sum, plan.Scratch)
		}
		_, err := Run(newCountdown(n), openModel(t, dir), r, o)
		if finished = err == nil; !finished {
			require.ErrorIs(t, err, context.Canceled)
			stops++
			o.Memory = limits[(n+1)%2]
			_, err = Run(context.Background(), openModel(t, dir), r, o)
		}
		require.NoError(t, err)
		require.Equal(t, want, treeHash(t, o.Out), "stopped at %d", n)
		require.NoDirExists(t, o.Out+".partial")
	}
	require.Greater(t, stops, 3)
}

// What cannot fit at all is refused with a limit that would do, and that limit does.
func TestTooLittleMemoryNamesEnough(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	for name, r := range map[string]Recipe{"awq": AWQ(4, 32), "rtn": RTN(4, 32)} {
		o := manyWindows(options(t))
		o.Memory = 1 << 20
		_, err := MakePlan(context.Background(), openModel(t, dir), r, o)
		require.ErrorIs(t, err, safeio.ErrLimit)
		require.Equal(t, r.Needs() != 0, strings.Contains(err.Error(), "hidden states on disk"), name)
		m := regexp.MustCompile(`--memory (\d+)MB would do`).FindStringSubmatch(err.Error())
		require.NotNil(t, m, err.Error())
		var mb int64
		_, err = fmt.Sscan(m[1], &mb)
		require.NoError(t, err)
		o.Memory = mb * 1_000_000
		_, err = MakePlan(context.Background(), openModel(t, dir), r, o)
		require.NoError(t, err)
	}
}

// The importance matrix is the same as well, and its file has no name.
func TestImatrixOnDisk(t *testing.T) {
	dir, out := writeModel(t, testmodel.Qwen2()), filepath.Join(t.TempDir(), "m.gguf")
	o := manyWindows(Options{Threads: 2, Out: out})
	src := openModel(t, dir)
	want, err := Imatrix(context.Background(), src, o)
	require.NoError(t, err)
	o.Memory = 1 << 20
	_, err = Imatrix(context.Background(), src, o)
	require.ErrorIs(t, err, safeio.ErrLimit)
	model, err := MakePlan(context.Background(), src, RTN(4, 32), Options{})
	require.NoError(t, err)
	o.Memory = imatrixMemory(model.Model, &o, imatrixFit{statesOnDisk: true})
	o.Events = func(Event) {
		entries, err := os.ReadDir(filepath.Dir(out))
		require.NoError(t, err)
		require.Empty(t, entries)
	}
	got, err := Imatrix(context.Background(), src, o)
	require.NoError(t, err)
	require.Equal(t, want, got)
	o.Out = filepath.Join(t.TempDir(), "nowhere", "m.gguf")
	_, err = Imatrix(context.Background(), src, o)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Experts of a mixture are read when they are needed, where they do not fit all at once.
func TestImatrixReadsExpertsOneByOne(t *testing.T) {
	o := Options{Threads: 2, Out: filepath.Join(t.TempDir(), "m.gguf"), Calib: windows(100, 32, 128)}
	src := openModel(t, writeModel(t, testmodel.Qwen3MoE()))
	want, err := Imatrix(context.Background(), src, o)
	require.NoError(t, err)
	p, err := MakePlan(context.Background(), src, RTN(4, 32), Options{})
	require.NoError(t, err)
	least := imatrixFit{statesOnDisk: true, lazyExperts: true}
	o.Memory = imatrixMemory(p.Model, &o, least)
	fit, err := fitImatrix(p.Model, &o)
	require.NoError(t, err)
	require.Equal(t, least, fit)
	got, err := Imatrix(context.Background(), src, o)
	require.NoError(t, err)
	require.Equal(t, want, got)
	o.Memory--
	_, err = Imatrix(context.Background(), src, o)
	require.ErrorIs(t, err, safeio.ErrLimit)
}

// memoryFile is a backing in memory.
type memoryFile []byte

func (f memoryFile) ReadAt(p []byte, off int64) (int, error)  { return copy(p, f[off:]), nil }
func (f memoryFile) WriteAt(p []byte, off int64) (int, error) { return copy(f[off:], p), nil }

// Samples and errors count tokens from the start of all windows, not of a chunk, for chunks of any size.
func TestChunksCountTokens(t *testing.T) {
	for _, step := range []int{1, 3, 7, 10, 11} {
		s := newStates(10, 4, step, true)
		file := memoryFile(make([]byte, s.bytes()))
		s.piece = s.piece[:8] // less than a row
		s.from, s.to = file, file
		require.NoError(t, s.embed(context.Background(), func(dst kernel.Mat, ids []int32) error {
			for i, id := range ids {
				dst.Row(i)[1] = float32(id)
			}
			return nil
		}, []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}))
		add := func(_ context.Context, _ *forward.Block, x kernel.Mat, tap forward.Tap) error {
			for i := range x.Rows {
				x.Row(i)[2] = 2 * x.Row(i)[1]
				tap(forward.Sample{X: x.Slice(i, i+1, 0, 4), First: i})
			}
			return nil
		}
		seen := 0
		require.NoError(t, s.forward(context.Background(), add, nil, func(in forward.Sample) {
			require.Equal(t, seen, in.First)
			require.EqualValues(t, seen, in.X.Row(0)[1])
			seen++
		}))
		require.Equal(t, 10, seen)
		require.NoError(t, s.look(context.Background(), func(first int, x kernel.Mat) error {
			require.EqualValues(t, 2*first, x.Row(0)[2])
			return nil
		}))
		fail := func(_ context.Context, _ *forward.Block, x kernel.Mat, _ forward.Tap) error {
			for i := range x.Rows {
				if x.Row(i)[1] == 8 {
					return &forward.NonFiniteStateError{Token: i}
				}
			}
			return nil
		}
		var bad *forward.NonFiniteStateError
		require.ErrorAs(t, s.forward(context.Background(), fail, nil, nil), &bad)
		require.Equal(t, 8, bad.Token)
	}
}
