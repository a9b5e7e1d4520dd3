package eval

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/internal/testmodel"
)

// repository is the root of the repository, seen from this package.
var repository = filepath.Join("..", "..")

// openModel opens the dense view of a model until the test ends.
func openModel(t testing.TB, path string) formats.Checkpoint {
	c, err := formats.Open(context.Background(), path)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	d, err := formats.Dense(c)
	require.NoError(t, err)
	return d
}

func synthetic(t testing.TB, c testmodel.Config) formats.Checkpoint {
	dir := filepath.Join(t.TempDir(), "model")
	require.NoError(t, c.Write(dir))
	return openModel(t, dir)
}

func run(t testing.TB, model, base formats.Checkpoint, o Options) *Result {
	o.Threads = max(o.Threads, 2)
	if o.DocStart == nil {
		o.DocStart = []int{0}
	}
	res, err := Run(context.Background(), model, base, o)
	require.NoError(t, err)
	return res
}

// evalIDs are the evaluation ids of the trained models.
func evalIDs(t testing.TB) []int32 {
	text, err := os.ReadFile(filepath.Join(repository, "testdata", "data", "golm-eval-ids.jsonl"))
	require.NoError(t, err)
	var row struct {
		IDs []int32 `json:"input_ids"`
	}
	require.NoError(t, json.Unmarshal(text, &row))
	require.Len(t, row.IDs, 50_000)
	return row.IDs
}

// The trained model has the cross-entropy that two independent forward passes found, testdata/golm-llama/README.md.
func TestCrossEntropyOfTrainedModel(t *testing.T) {
	model := openModel(t, filepath.Join(repository, "testdata", "golm-llama"))
	ids := evalIDs(t)
	res := run(t, model, nil, Options{Protocol: All, SeqLen: 512, IDs: ids[:4097], BOS: -1})
	require.InDelta(t, 2.2380, res.CrossEntropy, 6e-5)
	require.Equal(t, []int{8, 4096, 1}, []int{res.Windows, res.Tokens, res.Documents})
	require.InDelta(t, math.Exp(res.CrossEntropy), res.Perplexity, 1e-9)
	require.Nil(t, res.KL)

	if os.Getenv("QUANTIZE_LONG") != "" {
		res = run(t, model, nil, Options{Protocol: All, SeqLen: 512, IDs: ids, BOS: -1})
		require.InDelta(t, 2.409431, res.CrossEntropy, 1e-6)
		require.Equal(t, 49_999, res.Tokens)
	}
}

// llama-perplexity's running figures on the same documents, F32 file, 31 windows of 512. Separators are no part of its
// text.
func TestLlamaCppProtocolAgainstReference(t *testing.T) {
	model := openModel(t, filepath.Join(repository, "testdata", "golm-llama"))
	ids := slices.DeleteFunc(evalIDs(t), func(id int32) bool { return id == 2047 })
	want := map[int]float64{1: 7.8234, 2: 8.3883, 4: 10.0139}
	if os.Getenv("QUANTIZE_LONG") != "" {
		want = map[int]float64{1: 7.8234, 10: 8.4379, 20: 8.2379, 31: 8.8504}
	}
	for n, ppl := range want {
		res := run(t, model, nil, Options{Protocol: LlamaCpp, SeqLen: 512, IDs: ids[:n*512], BOS: -1})
		require.InEpsilon(t, ppl, res.Perplexity, 5e-4, "%d windows", n)
		require.Equal(t, 255*n, res.Tokens)
	}
}

// A model compared with itself: no divergence, full agreement, ratio one, and the loss of a run without a base.
func TestModelAgainstItself(t *testing.T) {
	for _, c := range []testmodel.Config{testmodel.Llama(), testmodel.Qwen3MoE()} {
		model := synthetic(t, c)
		o := Options{Protocol: GPTQ, SeqLen: 32, IDs: testmodel.IDs(400, c.Vocab, 0), BOS: -1}
		alone, res := run(t, model, nil, o), run(t, model, model, o)
		require.InDelta(t, alone.CrossEntropy, res.CrossEntropy, 1e-9)
		require.Equal(t, res.CrossEntropy, *res.BaseCrossEntropy)
		require.Equal(t, res.Perplexity, *res.BasePerplexity)
		require.InDelta(t, 0, res.KL.Max, 1e-9)
		require.Equal(t, 1.0, *res.Top1Agreement)
		require.Equal(t, Interval{1, 1, 1}, *res.PerplexityRatio)
	}
}

// KL, agreement and ratio of two models are those of their distributions, computed here from one-token scores.
func TestDivergenceOfTwoModels(t *testing.T) {
	c := testmodel.Llama()
	base := synthetic(t, c)
	c.Patch = func(name string, v []float32) {
		if name == "lm_head.weight" {
			for i := range v {
				v[i] *= 1.05 // all logits grow by 5 %: the ranking stays, the distribution sharpens
			}
		}
	}
	model := synthetic(t, c)
	o := Options{Protocol: GPTQ, SeqLen: 32, IDs: testmodel.IDs(32*40, c.Vocab, 0), BOS: -1}
	res := run(t, model, base, o)
	require.Greater(t, res.KL.Mean, 0.0)
	require.Less(t, res.KL.Mean, 0.02)
	require.LessOrEqual(t, res.KL.Median, res.KL.P99)
	require.LessOrEqual(t, res.KL.P99, res.KL.Max)
	require.LessOrEqual(t, res.KL.Low, res.KL.Mean)
	require.GreaterOrEqual(t, res.KL.High, res.KL.Mean)
	require.Greater(t, *res.Top1Agreement, 0.99)
	require.InDelta(t, res.Perplexity/(*res.BasePerplexity), res.PerplexityRatio.Value, 1e-9)
	require.True(t, res.PerplexityRatio.Low <= res.PerplexityRatio.Value && res.PerplexityRatio.Value <= res.PerplexityRatio.High)
}

// Results do not depend on threads, on how windows are batched together, or on the run.
func TestEvaluationIsDeterministic(t *testing.T) {
	c := testmodel.Qwen2()
	model, base := synthetic(t, c), synthetic(t, testmodel.Llama())
	var first *Result
	for _, threads := range []int{1, 2, 5} {
		res := run(t, model, base, Options{Protocol: All, SeqLen: 48, IDs: testmodel.IDs(777, c.Vocab, 0), DocStart: []int{0, 300, 600}, Threads: threads, BOS: -1})
		res.Seconds = 0
		if first == nil {
			first = res
		}
		require.Equal(t, first, res)
	}
}

// Progress ends at one and never goes back.
func TestProgress(t *testing.T) {
	last := 0.0
	run(t, synthetic(t, testmodel.Llama()), synthetic(t, testmodel.Llama()), Options{Protocol: All, SeqLen: 16, IDs: testmodel.IDs(100, 128, 0), BOS: -1,
		Progress: func(done float64) {
			require.GreaterOrEqual(t, done, last)
			last = done
		}})
	require.Equal(t, 1.0, last)
}

// What cannot be evaluated says why.
func TestImpossibleEvaluations(t *testing.T) {
	model := synthetic(t, testmodel.Llama())
	other := testmodel.Llama()
	other.Vocab = 256
	ids := testmodel.IDs(100, 128, 0)
	bad := append(slices.Clone(ids), 128)
	for text, x := range map[string]struct {
		base formats.Checkpoint
		o    Options
	}{
		"unknown protocol":               {nil, Options{Protocol: "x", SeqLen: 16, IDs: ids}},
		"do not fill one window of 64":   {nil, Options{Protocol: GPTQ, SeqLen: 64, IDs: ids[:63]}},
		"longer than the context of 64":  {nil, Options{Protocol: GPTQ, SeqLen: 65, IDs: ids}},
		"windows of 1 tokens":            {nil, Options{Protocol: GPTQ, SeqLen: 1, IDs: ids}},
		"stride 17":                      {nil, Options{Protocol: GPTQ, SeqLen: 16, Stride: 17, IDs: ids}},
		"needs --protocol gptq":          {nil, Options{Protocol: All, SeqLen: 16, Stride: 8, IDs: ids}},
		"outside the vocabulary of 128":  {nil, Options{Protocol: GPTQ, SeqLen: 16, IDs: bad}},
		"vocabulary of 128, the base of": {synthetic(t, other), Options{Protocol: GPTQ, SeqLen: 16, IDs: ids}},
	} {
		x.o.DocStart = []int{0}
		_, err := Run(context.Background(), model, x.base, x.o)
		require.ErrorContains(t, err, text)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Run(ctx, model, nil, Options{Protocol: GPTQ, SeqLen: 16, IDs: ids, DocStart: []int{0}})
	require.ErrorIs(t, err, context.Canceled)
}

// Greedy continuation stops where told, at the end of the context, and gives the same tokens at any number of threads.
func TestContinue(t *testing.T) {
	model := synthetic(t, testmodel.Llama())
	prompt := testmodel.IDs(10, 128, 3)
	greedy := func(n, threads, stopAfter int) (ids []int32, err error) {
		err = Continue(context.Background(), model, prompt, n, threads, func(id int32) bool {
			ids = append(ids, id)
			return len(ids) != stopAfter
		})
		return ids, err
	}
	long, err := greedy(20, 1, -1)
	require.NoError(t, err)
	require.Len(t, long, 20)
	for threads := range 3 {
		again, err := greedy(20, threads+1, -1)
		require.NoError(t, err)
		require.Equal(t, long, again)
	}
	short, err := greedy(20, 1, 5)
	require.NoError(t, err)
	require.Equal(t, long[:5], short)
	full, err := greedy(1000, 2, -1)
	require.NoError(t, err)
	require.Equal(t, long, full[:20])
	require.Len(t, full, 64-10+1, "to the end of the context, and the token behind it")

	err = Continue(context.Background(), model, testmodel.IDs(65, 128, 0), 1, 1, func(int32) bool { return true })
	require.ErrorContains(t, err, "context of 64")
}

// Documents behind the tokens that are scored do not count.
func TestDocumentsAreThoseScored(t *testing.T) {
	model := synthetic(t, testmodel.Llama())
	starts := []int{0, 20, 40, 90, 95}
	res := run(t, model, nil, Options{Protocol: GPTQ, SeqLen: 32, IDs: testmodel.IDs(70, 128, 0), DocStart: starts, BOS: -1})
	require.Equal(t, 3, res.Documents)
}

// Less memory takes fewer windows through a block at a time and changes no figure.
func TestMemoryChangesNoFigure(t *testing.T) {
	model := synthetic(t, testmodel.Llama())
	o := Options{Protocol: All, SeqLen: 32, IDs: testmodel.IDs(32*20, 100, 1), BOS: -1}
	want := run(t, model, model, o)
	o.Memory = 3 * memoryShare * 4 * 64 * 2 * 32 // three windows of both models
	got := run(t, model, model, o)
	want.Seconds, got.Seconds = 0, 0
	require.Equal(t, want, got)
}

// The end of a text is what the model's files say, as one number or as a list; damaged files say nothing.
func TestStopIDs(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, testmodel.Llama().Write(dir))
	config := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(config, append([]byte(`{"eos_token_id": 7,`), text[1:]...), 0o666))
	for content, want := range map[string][]int32{
		`{"eos_token_id": [5, 6]}`: {7, 5, 6}, `{"eos_token_id": 5}`: {7, 5}, `{"eos_token_id": null}`: {7},
		`{"eos_token_id": -1}`: {7}, `{"eos_token_id": ["x"]}`: {7}, `{`: {7}, `{"eos_token_id": 1e300}`: {7},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(content), 0o666))
		model, err := formats.Open(context.Background(), dir)
		require.NoError(t, err)
		require.Equal(t, want, StopIDs(model), content)
		require.NoError(t, model.Close())
	}
}
