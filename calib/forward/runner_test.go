package forward

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safetensors"
	"github.com/llmquant/quantize/internal/kernel"
)

func clone(m kernel.Mat) kernel.Mat {
	c := m
	c.F32 = slices.Clone(m.F32)
	return c
}

func randomHidden(m *arch.Model, tokens int, seed uint64) kernel.Mat {
	rng := rand.New(rand.NewPCG(seed, 1))
	x := newHidden(m, tokens)
	for i := range x.F32 {
		x.F32[i] = float32(rng.NormFloat64())
	}
	return x
}

func familyDir(t testing.TB, name string) string {
	return filepath.Join(repoRoot(t), "testdata", "families", name)
}

// TestThreadsAndChunks: hidden states and all statistics are the same bits at any thread count, and hidden states are
// the same when windows are handed over a few at a time.
func TestThreadsAndChunks(t *testing.T) {
	for _, name := range []string{"llama-yarn", "mistral-window", "qwen3moe-window"} {
		src, m := openModel(t, familyDir(t, name))
		b, err := Load(src, m, 0, LoadOptions{})
		require.NoError(t, err)
		const seq, windows = 40, 30 // more than one chunk
		input := randomHidden(m, seq*windows, 5)
		run := func(threads int) (kernel.Mat, *Collector) {
			p := kernel.NewPool(threads)
			r := NewRunner(m, p, windows, seq)
			h := clone(input)
			c := NewCollector(p, b.Arch, 7, func(arch.Input) Want { return WantAbsSum | WantSumSq | WantMaxAbs | WantGram | WantRows })
			require.NoError(t, r.Forward(context.Background(), b, h, c.Tap))
			return h, c
		}
		want, stats := run(1)
		for _, threads := range []int{2, 3, 8} {
			got, s := run(threads)
			require.Equal(t, want.F32, got.F32, "%s: %d threads", name, threads)
			require.Equal(t, stats.stats, s.stats, "%s: %d threads", name, threads)
		}
		r := NewRunner(m, nil, 4, seq)
		h := clone(input)
		for w := 0; w < windows; w += 4 {
			part := rows(h, w*seq, min(windows, w+4)*seq)
			require.NoError(t, r.Forward(context.Background(), b, part, nil))
		}
		require.Equal(t, want.F32, h.F32, name)
	}
}

// TestHalvesAndModules: Forward is its two halves; a half is the module on the normalised input plus the residual.
func TestHalvesAndModules(t *testing.T) {
	for _, dir := range familyDirs(t) {
		src, m := openModel(t, dir)
		r := NewRunner(m, kernel.NewPool(2), 3, 16)
		for layer := range m.Blocks {
			b, err := Load(src, m, layer, LoadOptions{})
			require.NoError(t, err)
			input := randomHidden(m, 48, uint64(layer))
			whole, halves, modules := clone(input), clone(input), clone(input)
			ctx := context.Background()
			require.NoError(t, r.Forward(ctx, b, whole, nil))
			require.NoError(t, r.ForwardAttn(ctx, b, halves, nil))
			require.NoError(t, r.ForwardMLP(ctx, b, halves, nil))
			require.Equal(t, whole.F32, halves.F32)

			out, xnorm := newHidden(m, 48), newHidden(m, 48)
			r.normInto(xnorm, modules, b.AttnNorm)
			r.Attention(b, out, xnorm)
			add(modules, out)
			r.normInto(xnorm, modules, b.MLPNorm)
			require.NoError(t, r.MLP(b, out, xnorm))
			add(modules, out)
			require.Less(t, distance(modules, whole), 1e-6)
		}
	}
}

func add(dst, x kernel.Mat) {
	for i, v := range x.F32 {
		dst.F32[i] += v
	}
}

// TestCollect: the same samples as Forward shows, up to the input asked for, without touching the hidden states.
func TestCollect(t *testing.T) {
	for _, name := range []string{"llama-bias", "qwen3moe-window"} {
		src, m := openModel(t, familyDir(t, name))
		b, err := Load(src, m, 0, LoadOptions{})
		require.NoError(t, err)
		r := NewRunner(m, nil, 5, 16)
		input := randomHidden(m, 5*16, 3)
		type seen struct {
			kind   arch.InputKind
			expert int
			x      []float32
			first  int
			tokens []int32
		}
		record := func(all *[]seen) Tap {
			return func(s Sample) {
				*all = append(*all, seen{s.Kind, s.Expert, slices.Clone(s.X.F32[:s.X.Rows*s.X.Stride]), s.First, slices.Clone(s.Tokens)})
			}
		}
		var want []seen
		out := clone(input)
		require.NoError(t, r.Forward(context.Background(), b, out, record(&want)))
		for last := arch.AttnIn; last <= arch.DownIn; last++ {
			var got []seen
			h := clone(input)
			require.NoError(t, r.Collect(context.Background(), b, h, Selection{Last: last}, record(&got)))
			require.Equal(t, input.F32, h.F32)
			var upTo []seen
			for _, s := range want {
				if s.kind <= last {
					upTo = append(upTo, s)
				}
			}
			require.Equal(t, upTo, got, "%s up to %v", name, last)
		}
		after := clone(input)
		require.NoError(t, r.ForwardAttn(context.Background(), b, after, nil))
		even := func(e int) bool { return e%2 == 0 }
		var got []seen
		require.NoError(t, r.CollectMLP(context.Background(), b, after, Selection{Last: arch.DownIn, Experts: even}, record(&got)))
		var chosen []seen
		for _, s := range want {
			if s.kind >= arch.MLPIn && (s.expert < 0 || even(s.expert)) {
				chosen = append(chosen, s)
			}
		}
		require.Equal(t, chosen, got, name)
	}
}

// TestWindowsAreIndependent: every window starts anew, and a shorter last window is like any other.
func TestWindowsAreIndependent(t *testing.T) {
	src, m := openModel(t, familyDir(t, "qwen2-layers"))
	b, err := Load(src, m, 1, LoadOptions{})
	require.NoError(t, err)
	all := randomHidden(m, 20*3+9, 8)
	parts := clone(all)
	require.NoError(t, NewRunner(m, nil, 4, 20).Forward(context.Background(), b, all, nil))
	for _, w := range [][2]int{{0, 20}, {20, 40}, {40, 60}, {60, 69}} {
		part := rows(parts, w[0], w[1])
		require.NoError(t, NewRunner(m, nil, 1, w[1]-w[0]).Forward(context.Background(), b, part, nil))
	}
	require.Equal(t, parts.F32, all.F32)
}

// TestCausalAndWindow: changing a token changes itself and later tokens only, and with a sliding window of 5 only the
// four that follow.
func TestCausalAndWindow(t *testing.T) {
	for name, reach := range map[string]int{"llama-linear": 24, "mistral-window": 5} {
		src, m := openModel(t, familyDir(t, name))
		b, err := Load(src, m, 0, LoadOptions{})
		require.NoError(t, err)
		r := NewRunner(m, nil, 1, 24)
		x := randomHidden(m, 24, 9)
		y := clone(x)
		y.Row(10)[3] += 1
		require.NoError(t, r.Forward(context.Background(), b, x, nil))
		require.NoError(t, r.Forward(context.Background(), b, y, nil))
		for i := range 24 {
			same := slices.Equal(x.Row(i), y.Row(i))
			require.Equal(t, i < 10 || i >= 10+reach, same, "%s token %d", name, i)
		}
	}
}

func TestForwardStops(t *testing.T) {
	src, m := openModel(t, familyDir(t, "llama-bias"))
	b, err := Load(src, m, 0, LoadOptions{})
	require.NoError(t, err)
	r := NewRunner(m, nil, 2, 8)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, r.Forward(ctx, b, randomHidden(m, 16, 1), nil), context.Canceled)

	b.Down.Bias[7] = float32(math.Inf(1))
	var bad *NonFiniteStateError
	require.True(t, errors.As(r.Forward(context.Background(), b, randomHidden(m, 16, 1), nil), &bad))
	require.Equal(t, NonFiniteStateError{Layer: 0, Token: 0, Channel: 7}, *bad)
	require.ErrorContains(t, bad, "layer 0")
}

// TestScratchBytes: the estimate covers what a Runner allocates, and does not grow with the number of windows.
func TestScratchBytes(t *testing.T) {
	for _, dir := range familyDirs(t) {
		src, m := openModel(t, dir)
		r := NewRunner(m, nil, 60, 24)
		h := randomHidden(m, 60*24, 1)
		for layer := range m.Blocks {
			b, err := Load(src, m, layer, LoadOptions{})
			require.NoError(t, err)
			ignore := func(Sample) {}
			require.NoError(t, r.Collect(context.Background(), b, h, Selection{Last: arch.DownIn}, ignore))
			require.NoError(t, r.Forward(context.Background(), b, h, nil))
		}
		half := NewRunner(m, nil, 60, 24)
		half.UseBF16()
		require.NoError(t, half.Forward(context.Background(), mustLoad(t, src, m, len(m.Blocks)-1), h, nil))
		require.LessOrEqual(t, int64(2*(cap(half.narrow)+cap(half.weight))), BF16Bytes(m, 60, 24))
		tl := <-r.tiles
		e := &r.experts
		used := 0
		for _, f := range [][]float32{r.norm, r.keep, r.q, r.k, r.v, r.gate, r.up, r.rope.cos, r.rope.sin, e.logits, e.weights, e.in, e.out, tl.q, tl.o, tl.scores} {
			used += 4 * cap(f)
		}
		used += 4 * (cap(e.chosen) + cap(e.slots))
		require.LessOrEqual(t, int64(used), ScratchBytes(m, 1, 60, 24), dir)
		require.Equal(t, ScratchBytes(m, 1, 5000, 24), ScratchBytes(m, 1, 50000, 24))
	}
}

func mustLoad(t testing.TB, src *safetensors.File, m *arch.Model, layer int) *Block {
	b, err := Load(src, m, layer, LoadOptions{})
	require.NoError(t, err)
	return b
}

func TestTopK(t *testing.T) {
	for _, c := range []struct {
		probs []float32
		index []int32
	}{
		{[]float32{0.1, 0.5, 0.2, 0.2}, []int32{1, 2}},
		{[]float32{0.25, 0.25, 0.25, 0.25}, []int32{0, 1}},
		{[]float32{0, 0.1, 0.1, 0.8}, []int32{3, 1}},
		{[]float32{0.8, 0.2}, []int32{0, 1}},
	} {
		index, value := make([]int32, 2), make([]float32, 2)
		topK(index, value, c.probs)
		require.Equal(t, c.index, index)
		require.Equal(t, []float32{c.probs[index[0]], c.probs[index[1]]}, value)
	}
}

// TestSincos compares with the standard library, which is accurate to a unit of float64.
func TestSincos(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 200000 {
		x := rng.Float64() * 2
		if i%2 == 0 {
			x = math.Floor(rng.Float64() * 1e6)
		}
		s, c := sincos(x)
		require.InDelta(t, math.Sin(x), s, 3e-16, "sin %v", x)
		require.InDelta(t, math.Cos(x), c, 3e-16, "cos %v", x)
	}
}
