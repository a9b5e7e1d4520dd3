package quant

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/internal/testmodel"
	"github.com/llmquant/quantize/quant/eval"
)

// calibrated loads block i of a model with the statistics that AWQ needs, and the hidden states in front of it.
func calibrated(t *testing.T, c testmodel.Config, scheme packing.Scheme) (*Layer, *stream, kernel.Mat) {
	r := NewAWQ(scheme, "awq", AWQOptions{})
	o := options(t)
	src := openModel(t, writeModel(t, c))
	plan, err := MakePlan(context.Background(), src, r, o)
	require.NoError(t, err)
	j := &job{src: src, recipe: &r, opts: &o, plan: plan, pool: newPool(2)}
	set := o.Calib
	s := &stream{job: j, runner: forward.NewRunner(plan.Model, j.pool, set.Windows, set.SeqLen)}
	s.hidden = &residual{states: newStates(len(set.IDs), plan.Model.Hidden, s.runner.ChunkTokens(), false)}
	require.NoError(t, s.runner.Embed(s.hidden.mem, set.IDs, src))
	l, err := j.load(0)
	require.NoError(t, err)
	g := newGather(s, l, r.Needs())
	before := kernel.MatF32(s.hidden.rows, s.hidden.cols, slices.Clone(s.hidden.mem.F32))
	require.NoError(t, s.hidden.forward(context.Background(), s.runner.Forward, l.Block, g.tap))
	g.finish(l)
	return l, s, before
}

// withScales makes every pair of the layer fold a strong, uneven, legal scale.
func withScales(l *Layer) [][]float32 {
	var all [][]float32
	pairs := l.Arch.AWQPairs()
	for i := range pairs {
		s := make([]float32, pairs[i].Width())
		for k := range s {
			s[k] = float32(0.25 + 0.05*float64((7*k+i)%50))
		}
		l.legal(&pairs[i], s)
		all = append(all, s)
	}
	return all
}

// Folding scales leaves what the block computes unchanged: norms, v → o under grouped-query attention, biases, routers,
// experts. The router's choices stay, although the activations it sees are scaled.
func TestFoldPreservesTheFunction(t *testing.T) {
	for name, c := range models() {
		t.Run(name, func(t *testing.T) {
			l, s, before := calibrated(t, c, int4)
			want := s.hidden.mem.F32
			check, err := newFoldCheck(l)
			require.NoError(t, err)
			pairs := l.Arch.AWQPairs()
			for i, scale := range withScales(l) {
				l.fold(&pairs[i], scale)
			}
			require.NoError(t, check.verify(l), "the run's own check")
			require.NoError(t, s.runner.Forward(context.Background(), l.Block, before, nil))
			require.Less(t, relError(before.F32, want), 1e-5)
		})
	}
}

// A transform that changes the function is caught by the run itself.
func TestFoldCheckCatchesDefects(t *testing.T) {
	for name, damage := range map[string]func(*Layer){
		"a reader":     func(l *Layer) { l.Weights(&l.Arch.K)[3] *= 1.01 },
		"a producer":   func(l *Layer) { l.Weights(&l.Arch.Up)[70] *= 2 },
		"not a number": func(l *Layer) { l.Weights(&l.Arch.O)[0] = float32(math.NaN()) },
	} {
		l, _, _ := calibrated(t, testmodel.Llama(), int4)
		check, err := newFoldCheck(l)
		require.NoError(t, err)
		damage(l)
		require.ErrorIs(t, check.verify(l), safeio.ErrCorrupt, name)
	}
}

// Statistics stay true for the folded weights: what was gathered and divided equals what a new pass gathers.
func TestFoldKeepsStatisticsTrue(t *testing.T) {
	l, s, before := calibrated(t, testmodel.Llama(), int4)
	pairs := l.Arch.AWQPairs()
	for i, scale := range withScales(l) {
		l.fold(&pairs[i], scale)
	}
	fresh := &Layer{Arch: l.Arch, Block: l.Block, Model: l.Model, stats: map[inputKey]*Stats{}, pool: l.pool}
	g := newGather(s, fresh, NeedAbsMean|NeedGram)
	require.NoError(t, s.runner.Forward(context.Background(), l.Block, before, g.tap))
	g.finish(fresh)
	for key, want := range fresh.stats {
		got := l.stats[key]
		require.Equal(t, want.Tokens, got.Tokens)
		require.Less(t, relError(got.AbsMean, want.AbsMean), 1e-5, key)
		require.Less(t, relError(got.Gram32().F32, want.Gram32().F32), 1e-5, key)
	}
}

// The scales that the search returns are never worse than none by the search's own loss, and it finds some.
func TestSearchNeverLosesToNoScale(t *testing.T) {
	for name, c := range models() {
		for _, surrogate := range []bool{false, true} {
			l, _, _ := calibrated(t, c, int4)
			a := AWQScaling{AWQOptions{Surrogate: surrogate}}
			pairs, found := l.Arch.AWQPairs(), 0
			for i := range pairs {
				if !a.usable(l, &pairs[i]) {
					require.Equal(t, c.Experts-1, pairs[i].Expert, "only the expert without tokens has nothing to search")
					continue
				}
				s := a.search(context.Background(), l, &pairs[i])
				if s == nil {
					continue
				}
				found++
				judge := l.linearLoss(&pairs[i])
				if pairs[i].Scope != arch.ScopeLinear && !surrogate {
					judge = l.moduleLoss(&pairs[i])
				}
				require.Less(t, judge(s), judge(ones(len(s))), "%s pair %d", name, i)
			}
			require.Positive(t, found, name)
		}
	}
}

// Where rounding loses nothing no scale is applied: the identity is in the grid. The artifact then decodes to the source.
func TestNothingToGainChangesNothing(t *testing.T) {
	c := testmodel.Llama()
	c.Patch = onGrid
	dir := writeModel(t, c)
	rep, out := runTiny(t, dir, NewAWQ(int4, "awq", AWQOptions{}), options(t))
	dense, src := openDense(t, out), openModel(t, dir)
	for _, row := range rep.Tensors {
		require.Zero(t, row.RelError, row.Name)
		require.Equal(t, valuesOf(t, src, row.Name), valuesOf(t, dense, row.Name), row.Name)
	}
}

// onGrid puts the matrices of the blocks on a 4-bit grid with groups of 32: both ends of the range occur in every group.
func onGrid(name string, values []float32) {
	if !strings.Contains(name, "_proj.weight") {
		return
	}
	for i, v := range values {
		q := float32(math.Round(float64(max(min(v*24, 7), -8))))
		switch i % 32 {
		case 5:
			q = -8
		case 17:
			q = 7
		}
		values[i] = q / 32
	}
}

// A norm's weights are stored in 16 bits, so the scale is chosen such that the quotient is representable there: what a
// block computes with is what the file holds.
func TestNormScalesAreStoredExactly(t *testing.T) {
	for _, d := range []tensor.DType{tensor.BF16, tensor.F16, tensor.F32} {
		c := testmodel.Llama()
		c.DType = d
		l, _, _ := calibrated(t, c, int4)
		pairs := l.Arch.AWQPairs()
		for i, s := range withScales(l) {
			if pairs[i].Norm == "" {
				continue
			}
			for k, n := range l.norm(pairs[i].Norm) {
				quotient := n / s[k]
				require.InEpsilon(t, roundTo(d, quotient), quotient, 3e-7, "%v channel %d", d, k)
			}
		}
	}
}

// Channels of v that feed several query heads have one scale, the geometric mean of what the heads asked for.
func TestSharedHeadsShareScales(t *testing.T) {
	l, _, _ := calibrated(t, testmodel.Llama(), int4)
	p := &l.Arch.AWQPairs()[1]
	require.Equal(t, 2, p.Shared)
	s := make([]float32, p.Width())
	for k := range s {
		s[k] = float32(k + 1)
	}
	l.legal(p, s)
	// Heads 0 and 1 read value head 0, heads 2 and 3 value head 1; a head has 16 channels.
	for k := range 16 {
		require.Equal(t, s[k], s[16+k])
		require.Equal(t, s[32+k], s[48+k])
		require.InEpsilon(t, math.Sqrt(float64((k+1)*(k+17))), s[k], 1e-6)
	}
}

// A weight of zero in a norm cannot be divided; its channel keeps scale 1.
func TestZeroNormChannelKeepsScaleOne(t *testing.T) {
	c := testmodel.Llama()
	c.Patch = func(name string, values []float32) {
		if strings.HasSuffix(name, "input_layernorm.weight") {
			values[5] = 0
		}
	}
	l, _, _ := calibrated(t, c, int4)
	s := withScales(l)[0]
	require.EqualValues(t, 1, s[5])
	require.NotEqualValues(t, 1, s[6])
	_, out := runTiny(t, writeModel(t, c), NewAWQ(int4, "awq", AWQOptions{}), options(t))
	require.Zero(t, valuesOf(t, openModel(t, out), "model.layers.0.input_layernorm.weight")[5])
}

// candidate is s = xm^r/(wm^(1−r)+1e-4), centred; degenerate statistics give usable scales.
func TestCandidate(t *testing.T) {
	s := candidate([]float32{4, 1, 0.25}, []float32{0.5, 0.5, 0.5}, 0.5)
	require.InEpsilon(t, 2, s[0], 1e-3)
	require.InEpsilon(t, 1, s[1], 1e-3)
	require.InEpsilon(t, 0.5, s[2], 1e-3)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, xm := range [][]float32{{0, 0, 0}, {0, 1, 1e30}, {nan, 1, 2}, {inf, 1, 2}} {
		for _, r := range []float64{0, 0.3, 0.95} {
			for _, v := range candidate(xm, []float32{0, 0.1, 1}, r) {
				require.True(t, v > 0 && !math.IsInf(float64(v), 0), "%v at %v: %v", xm, r, v)
			}
		}
	}
}

// An expert that no token reaches is rounded plainly and said so; --strict refuses that.
func TestExpertWithoutTokens(t *testing.T) {
	dir := writeModel(t, testmodel.Qwen3MoE())
	for _, method := range []string{"awq", "gptq"} {
		rec := &recorder{}
		o := options(t)
		o.Events = rec.add
		rep, _ := runTiny(t, dir, recipes()[method], o)
		fallen := map[string]bool{}
		for _, row := range rep.Tensors {
			if strings.Contains(row.Fallback, "no calibration token") {
				require.Contains(t, row.Name, ".experts.3.")
				fallen[row.Name] = true
			}
		}
		require.Len(t, fallen, 6, "gate, up and down of the last expert in two layers")
		require.Len(t, rec.of(EventFallback), 6)

		o = options(t)
		o.Strict = true
		_, err := Run(context.Background(), openModel(t, dir), recipes()[method], o)
		require.ErrorIs(t, err, safeio.ErrUnsupported)
		require.ErrorContains(t, err, "experts.3.")
		require.NoDirExists(t, o.Out)
	}
}

// The router keeps its numbers but for the folded scale, which Verify takes out again.
func TestRouterIsFolded(t *testing.T) {
	dir := writeModel(t, testmodel.Qwen3MoE())
	_, out := runTiny(t, dir, NewAWQ(int4, "awq", AWQOptions{}), options(t))
	src, got := openModel(t, dir), openModel(t, out)
	for _, name := range []string{"model.layers.0.mlp.gate.weight", "model.layers.1.mlp.gate.weight"} {
		norm := strings.Replace(name, "mlp.gate", "post_attention_layernorm", 1)
		n0, n1 := valuesOf(t, src, norm), valuesOf(t, got, norm)
		w0, w1 := valuesOf(t, src, name), valuesOf(t, got, name)
		require.NotEqual(t, w0, w1)
		for i := range w0 {
			k := i % len(n0)
			require.InDelta(t, w0[i]*n0[k], w1[i]*n1[k], 0.01*math.Abs(float64(w0[i]*n0[k]))+1e-6)
		}
	}
}

// On a model with a large channel scaling pays: predictions are closer to the source's than those of plain rounding.
func TestScalingBeatsPlainRounding(t *testing.T) {
	c := testmodel.Llama()
	dir := writeModel(t, c)
	kl := func(r Recipe) float64 {
		_, out := runTiny(t, dir, r, options(t))
		ids := testmodel.IDs(2048, c.Vocab, 1)
		res, err := eval.Run(context.Background(), openDense(t, out), openModel(t, dir), eval.Options{Protocol: eval.All, SeqLen: 64, IDs: ids, DocStart: []int{0}, Threads: 2, BOS: -1})
		require.NoError(t, err)
		return res.KL.Mean
	}
	awq, rtn := kl(NewAWQ(int4, "awq", AWQOptions{})), kl(NewRTN(int4, "awq"))
	t.Logf("KL awq %.5f, plain rounding %.5f", awq, rtn)
	require.Less(t, awq, 0.8*rtn)
}

// Transforms and rounders of other packages see what they asked for, and their events reach the report.
type spy struct {
	t     *testing.T
	needs Need
	calls *int
}

func (s spy) Name() string { return "spy" }
func (s spy) Needs() Need  { return s.needs }

func (s spy) Apply(ctx context.Context, l *Layer) error {
	*s.calls++
	st := l.Stats(arch.DownIn, -1)
	require.NotNil(s.t, st)
	require.Equal(s.t, s.needs.Has(NeedGram), st.Gram != nil)
	require.Equal(s.t, s.needs.Has(NeedAbsMean), st.AbsMean != nil)
	require.Equal(s.t, s.needs.Has(NeedMaxAbs), st.MaxAbs != nil)
	require.EqualValues(s.t, 128, st.Tokens)
	Emit(ctx, Event{Kind: EventFinding, Layer: l.Index, Message: "seen"})
	return nil
}

func TestOwnTransform(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	for _, needs := range []Need{NeedGram, NeedAbsMean, NeedMaxAbs, NeedGram | NeedMaxAbs | NeedModules} {
		calls := 0
		r := RTN(4, 32)
		r.Transforms = []Transform{spy{t, needs, &calls}}
		rep, _ := runTiny(t, dir, r, options(t))
		require.Equal(t, 2, calls)
		require.Len(t, rep.Events, 2)
		require.Equal(t, []string{"spy"}, rep.Recipe.Transforms)
	}
}

// What AWQ records for a golden reference of the field: on the trained model every pair improves in most layers.
func TestTrainedModelFindsScales(t *testing.T) {
	o := options(t)
	o.Calib = windows(1, 128, 2000)
	src := openModel(t, golm)
	r := AWQ(4, 128)
	rec := &recorder{}
	o.Events = rec.add
	rep, err := Run(context.Background(), src, r, o)
	require.NoError(t, err)
	require.Empty(t, rec.of(EventFallback))
	out := openModel(t, o.Out)
	changed := 0
	for _, info := range src.Tensors() {
		if strings.HasSuffix(info.Name, "norm.weight") && !slices.Equal(valuesOf(t, src, info.Name), valuesOf(t, out, info.Name)) {
			changed++
		}
	}
	require.GreaterOrEqual(t, changed, 4, "of 8 norms in front of linears")
	require.InDelta(t, 4.156, rep.Totals.BitsPerWeightLinear, 0.01)
	require.FileExists(t, filepath.Join(o.Out, "tokenizer.json"))
}
