package forward

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/internal/kernel"
)

// scoreDirect computes a Score in float64 from whole rows of logits.
func scoreDirect(model, base []float32, target int) Score {
	logs := func(row []float32) ([]float64, int32) {
		top := 0
		for i, x := range row {
			if x > row[top] {
				top = i
			}
		}
		sum := 0.0
		for _, x := range row {
			sum += math.Exp(float64(x - row[top]))
		}
		p := make([]float64, len(row))
		for i, x := range row {
			p[i] = float64(x) - float64(row[top]) - math.Log(sum)
		}
		return p, int32(top)
	}
	p, top := logs(model)
	q, baseTop := logs(base)
	s := Score{NLL: -p[target], BaseNLL: -q[target], Top: top, BaseTop: baseTop}
	for i := range p {
		s.KL += math.Exp(q[i]) * (q[i] - p[i])
	}
	return s
}

// TestScores: losses and divergences over tiles of a vocabulary of 9,000 equal the direct computation, for ordinary
// logits and for logits far from zero, where the running maximum matters.
func TestScores(t *testing.T) {
	const hidden, vocab, tokens = 24, 9000, 600
	m := &arch.Model{Hidden: hidden, Vocab: vocab, Heads: 1, KVHeads: 1, HeadDim: 2, Eps: 1e-5}
	r := NewRunner(m, kernel.NewPool(2), 1, tokens)
	rng := rand.New(rand.NewPCG(1, 1))
	random := func(n int, scale float64) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(rng.NormFloat64() * scale)
		}
		return v
	}
	ones := make([]float32, hidden)
	for i := range ones {
		ones[i] = 1
	}
	for _, scale := range []float64{0.1, 1, 40} {
		w := random(vocab*hidden, scale)
		near := make([]float32, len(w))
		for i, e := range random(len(w), scale*0.02) {
			near[i] = w[i] + e
		}
		base, model := &Head{ones, kernel.MatF32(vocab, hidden, w)}, &Head{ones, kernel.MatF32(vocab, hidden, near)}
		x, y := kernel.MatF32(tokens, hidden, random(tokens*hidden, 1)), kernel.MatF32(tokens, hidden, make([]float32, tokens*hidden))
		for i, e := range random(tokens*hidden, 0.01) {
			y.F32[i] = x.F32[i] + e
		}
		targets := make([]int32, tokens)
		for i := range targets {
			targets[i] = int32(rng.IntN(vocab))
		}
		scores, err := r.Compare(context.Background(), base, model, x, y, targets)
		require.NoError(t, err)
		alone, err := r.Loss(context.Background(), model, y, targets)
		require.NoError(t, err)
		for _, lo := range []int{0, 520} {
			baseLogits, logits := kernel.MatF32(80, vocab, make([]float32, 80*vocab)), kernel.MatF32(80, vocab, make([]float32, 80*vocab))
			r.Logits(base, baseLogits, rows(x, lo, lo+80))
			r.Logits(model, logits, rows(y, lo, lo+80))
			for i := range 80 {
				want := scoreDirect(logits.Row(i), baseLogits.Row(i), int(targets[lo+i]))
				got := scores[lo+i]
				require.InDelta(t, want.NLL, got.NLL, 1e-6*(1+math.Abs(want.NLL)))
				require.InDelta(t, want.BaseNLL, got.BaseNLL, 1e-6*(1+math.Abs(want.BaseNLL)))
				require.InDelta(t, want.KL, got.KL, 1e-6*(1+want.KL))
				require.Equal(t, [2]int32{want.Top, want.BaseTop}, [2]int32{got.Top, got.BaseTop})
				require.Equal(t, got.NLL, alone[lo+i].NLL)
			}
		}
		same, err := r.Compare(context.Background(), base, base, x, x, targets[:50])
		require.NoError(t, err)
		for _, s := range same {
			require.Zero(t, s.KL)
			require.Equal(t, s.BaseNLL, s.NLL)
		}
	}
	_, err := r.Loss(context.Background(), &Head{ones, kernel.MatF32(3, hidden, make([]float32, 3*hidden))}, kernel.MatF32(1, hidden, ones), []int32{3})
	require.ErrorContains(t, err, "vocabulary of 3")
	_, err = r.Compare(context.Background(), &Head{ones, kernel.MatF32(2, 1, ones)}, &Head{ones, kernel.MatF32(3, 1, ones)}, kernel.Mat{}, kernel.Mat{}, nil)
	require.ErrorContains(t, err, "cannot be compared")
}

// TestStat compares every statistic with its definition, over samples of several lengths.
func TestStat(t *testing.T) {
	const width = 300
	rng := rand.New(rand.NewPCG(2, 2))
	s := NewStat(width, WantAbsSum|WantSumSq|WantMaxAbs|WantGram|WantRows, 3)
	require.Equal(t, make([]float64, width), s.Mean(s.AbsSum))
	abs, sq, top := make([]float64, width), make([]float64, width), make([]float32, width)
	gram := make([]float64, width*width)
	var kept []int64
	first := 0
	for _, n := range []int{5, 1, 70} {
		x := kernel.MatF32(n, width, make([]float32, n*width))
		for i := range x.F32 {
			x.F32[i] = float32(rng.NormFloat64())
		}
		for i := range n {
			for j, v := range x.Row(i) {
				abs[j] += math.Abs(float64(v))
				sq[j] += float64(v) * float64(v)
				top[j] = max(top[j], v, -v)
				for k := range j + 1 {
					gram[j*width+k] += float64(v) * float64(x.Row(i)[k])
				}
			}
			if (first+i)%3 == 0 {
				kept = append(kept, int64(first+i))
			}
		}
		s.Add(nil, Sample{X: x, First: first})
		first += n
	}
	require.Equal(t, int64(76), s.Tokens)
	require.Equal(t, top, s.MaxAbs)
	require.Equal(t, kept, s.Kept)
	require.Equal(t, len(kept), s.Matrix().Rows)
	for j := range width {
		require.InDelta(t, abs[j], s.AbsSum[j], 1e-9)
		require.InDelta(t, sq[j], s.SumSq[j], 1e-9)
		require.InDelta(t, abs[j]/76, s.Mean(s.AbsSum)[j], 1e-9)
		for k := range j + 1 {
			require.InDelta(t, gram[j*width+k], s.Gram[j*width+k], 1e-3)
		}
	}
	// an expert's sample carries its own token numbers
	e := NewStat(2, WantRows, 2)
	e.Add(nil, Sample{X: kernel.MatF32(3, 2, []float32{1, 2, 3, 4, 5, 6}), First: 10, Tokens: []int32{0, 1, 4}})
	require.Equal(t, []int64{10, 14}, e.Kept)
	require.Equal(t, []float32{1, 2, 5, 6}, e.Rows)
}

// TestCollectorGroups: each group of a mixture is collected on its own, and experts' tokens add up.
func TestCollectorGroups(t *testing.T) {
	src, m := openModel(t, familyDir(t, "qwen3moe-window"))
	b, err := Load(src, m, 0, LoadOptions{})
	require.NoError(t, err)
	c := NewCollector(nil, b.Arch, 1, func(in arch.Input) Want {
		if in.Kind == arch.OIn {
			return 0
		}
		return WantSumSq
	})
	r := NewRunner(m, nil, 2, 24)
	require.NoError(t, r.Forward(context.Background(), b, randomHidden(m, 48, 1), c.Tap))
	require.Nil(t, c.Stat(arch.OIn, -1))
	require.Nil(t, c.Stat(arch.MLPIn, 99))
	require.Equal(t, int64(48), c.Stat(arch.AttnIn, -1).Tokens)
	require.Equal(t, int64(48), c.Stat(arch.MLPIn, -1).Tokens)
	var routed int64
	for e := range b.Experts {
		require.Equal(t, c.Stat(arch.MLPIn, e).Tokens, c.Stat(arch.DownIn, e).Tokens)
		routed += c.Stat(arch.DownIn, e).Tokens
	}
	require.Equal(t, int64(48*2), routed)
}
