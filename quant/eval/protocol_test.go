package eval

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/calib/forward"
)

// stream is 0, 1, 2, … so that windows can be written down by hand.
func stream(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i)
	}
	return ids
}

func TestProtocols(t *testing.T) {
	const __ = -1
	for name, x := range map[string]struct {
		n, seqLen, stride int
		p                 Protocol
		bos               int32
		want              []window
	}{
		"gptq drops the tail and each window's first token": {10, 4, 0, GPTQ, -1, []window{
			{0, []int32{0, 1, 2, 3}, []int32{1, 2, 3, __}}, {4, []int32{4, 5, 6, 7}, []int32{5, 6, 7, __}}}},
		"all predicts across windows and keeps the tail": {10, 4, 0, All, -1, []window{
			{0, []int32{0, 1, 2, 3}, []int32{1, 2, 3, 4}}, {4, []int32{4, 5, 6, 7}, []int32{5, 6, 7, 8}}, {8, []int32{8, 9}, []int32{9, __}}}},
		"all without a tail": {8, 4, 0, All, -1, []window{
			{0, []int32{0, 1, 2, 3}, []int32{1, 2, 3, 4}}, {4, []int32{4, 5, 6, 7}, []int32{5, 6, 7, __}}}},
		"a tail of one token predicts nothing": {9, 4, 0, All, -1, []window{
			{0, []int32{0, 1, 2, 3}, []int32{1, 2, 3, 4}}, {4, []int32{4, 5, 6, 7}, []int32{5, 6, 7, 8}}}},
		"llama.cpp scores second halves": {9, 4, 0, LlamaCpp, -1, []window{
			{0, []int32{0, 1, 2, 3}, []int32{__, __, 3, __}}, {4, []int32{4, 5, 6, 7}, []int32{__, __, 7, __}}}},
		"llama.cpp overwrites the first token by BOS": {8, 4, 0, LlamaCpp, 99, []window{
			{0, []int32{99, 1, 2, 3}, []int32{__, __, 3, __}}, {4, []int32{99, 5, 6, 7}, []int32{__, __, 7, __}}}},
		"BOS changes nothing elsewhere": {4, 4, 0, GPTQ, 99, []window{{0, []int32{0, 1, 2, 3}, []int32{1, 2, 3, __}}}},
		"a stride scores new tokens only": {9, 4, 2, GPTQ, -1, []window{
			{0, []int32{0, 1, 2, 3}, []int32{1, 2, 3, __}}, {2, []int32{2, 3, 4, 5}, []int32{__, 4, 5, __}},
			{4, []int32{4, 5, 6, 7}, []int32{__, 6, 7, __}}, {6, []int32{6, 7, 8}, []int32{__, 8, __}}}},
		"too little": {3, 4, 0, GPTQ, -1, nil},
	} {
		got, err := windows(&Options{IDs: stream(x.n), Protocol: x.p, SeqLen: x.seqLen, Stride: x.stride, BOS: x.bos})
		require.NoError(t, err)
		require.Equal(t, x.want, got, name)
	}
}

// Windows never change the stream they are cut from.
func TestWindowsLeaveTheStream(t *testing.T) {
	ids := stream(64)
	_, err := windows(&Options{IDs: ids, Protocol: LlamaCpp, SeqLen: 8, BOS: 999})
	require.NoError(t, err)
	require.Equal(t, stream(64), ids)
}

// Every protocol scores a token once at most; strides and `all` score every one but the first.
func TestEveryTokenOnce(t *testing.T) {
	for n := range 70 {
		for seq := 2; seq <= 17; seq++ {
			for stride := 0; stride <= seq; stride++ {
				for _, p := range []Protocol{GPTQ, All, LlamaCpp} {
					ws, err := windows(&Options{IDs: stream(n), Protocol: p, SeqLen: seq, Stride: stride, BOS: -1})
					if stride > 0 && p != GPTQ {
						require.Error(t, err)
						continue
					}
					require.NoError(t, err)
					checkScored(t, ws, n, p == All || stride > 0 && stride < seq)
				}
			}
		}
	}
}

func checkScored(t *testing.T, ws []window, n int, complete bool) {
	scored := make([]int, n)
	for _, w := range ws {
		lo, hi := scoredRange(w.targets)
		for i, target := range w.targets {
			require.Equal(t, target >= 0, i >= lo && i < hi, "scored positions are contiguous")
			if target >= 0 {
				require.EqualValues(t, w.start+i+1, target, "a position predicts the next token")
				scored[target]++
			}
		}
	}
	for tok, times := range scored {
		require.LessOrEqual(t, times, 1)
		if complete && tok > 0 {
			require.Equal(t, 1, times, "token %d of %d", tok, n)
		}
	}
}

// sample is a set of scores with a known loss and divergence per token.
func sample(tokens, docs int) *scores {
	s, rng := &scores{}, counter{key: 1}
	for i := range tokens {
		nll := 2 + math.Sin(float64(i))
		s.add(forward.Score{NLL: nll + 0.01*float64(i%7), BaseNLL: nll, KL: 0.02 * float64(rng.below(11)), Top: int32(i % 3), BaseTop: 0}, i/8, i*docs/tokens, true)
	}
	return s
}

func TestSummary(t *testing.T) {
	s := sample(1100, 50)
	r := s.result(Options{Protocol: All, SeqLen: 8}, true)
	var nll, base, kl float64
	for i := range 1100 {
		nll, base, kl = nll+s.nll[i], base+s.baseNLL[i], kl+s.kl[i]
	}
	require.InDelta(t, nll/1100, r.CrossEntropy, 1e-12)
	require.InDelta(t, base/1100, *r.BaseCrossEntropy, 1e-12)
	require.InDelta(t, kl/1100, r.KL.Mean, 1e-12)
	require.InDelta(t, 0.1, r.KL.Median, 0.021)
	require.InDelta(t, 0.2, r.KL.Max, 1e-12)
	require.InDelta(t, 367.0/1100, *r.Top1Agreement, 1e-12)
	require.InDelta(t, math.Exp((nll-base)/1100), r.PerplexityRatio.Value, 1e-12)
	require.NotNil(t, r.Gates, "JSON wants a list")
	require.Equal(t, "quantize-eval/1", r.Schema)
}

// The intervals are the same on every run, contain the value, shrink with more documents, and are paired: what both
// models share does not widen the ratio's.
func TestBootstrap(t *testing.T) {
	a, b := sample(1100, 50).result(Options{}, true), sample(1100, 50).result(Options{}, true)
	require.Equal(t, a, b)
	require.True(t, a.KL.Low < a.KL.Mean && a.KL.Mean < a.KL.High)
	large := sample(11_000, 500).result(Options{}, true)
	require.Less(t, large.KL.High-large.KL.Low, 0.7*(a.KL.High-a.KL.Low))

	s := sample(1100, 50)
	for i := range s.nll {
		s.nll[i] = s.baseNLL[i] + 0.03 // always exactly three hundredths worse
	}
	r := s.result(Options{}, true)
	require.InDelta(t, math.Exp(0.03), r.PerplexityRatio.Low, 1e-12)
	require.InDelta(t, math.Exp(0.03), r.PerplexityRatio.High, 1e-12)
}

// With few documents windows are resampled, with many documents whole documents are.
func TestBootstrapUnits(t *testing.T) {
	s := sample(1100, 5)
	s.result(Options{}, true)
	require.Equal(t, s.window, s.unit)
	s = sample(1100, minDocuments)
	s.result(Options{}, true)
	require.Equal(t, s.doc, s.unit)
}

// A text's only window, one document, one token: there is nothing to resample, and nothing divides by zero.
func TestSmallestSummary(t *testing.T) {
	r := sample(1, 1).result(Options{}, true)
	require.Equal(t, r.KL.Mean, r.KL.Low)
	require.Equal(t, r.KL.Mean, r.KL.High)
	require.False(t, math.IsNaN(r.Perplexity))
}

func TestDocumentOfToken(t *testing.T) {
	e := &evaluation{o: Options{DocStart: []int{0, 10, 10, 25}}}
	docs := []int{}
	for _, tok := range []int{0, 9, 10, 24, 25, 1000} {
		docs = append(docs, e.document(tok))
	}
	require.Equal(t, []int{0, 0, 2, 2, 3, 3}, docs)
	require.True(t, slices.IsSorted(docs))
}

// The counter gives every residue about equally often.
func TestCounter(t *testing.T) {
	c := counter{key: 7}
	hits := make([]int, 10)
	for range 100_000 {
		hits[c.below(10)]++
	}
	for _, n := range hits {
		require.InDelta(t, 10_000, n, 400)
	}
}
