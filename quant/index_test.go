package quant

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/internal/testmodel"
	"github.com/llmquant/quantize/quant/gptq"
)

// Groups in activation order survive the way through the file: the config says desc_act, the reader finds g_idx and the
// same values; engines that lost it are named; layouts without a place for it are refused.
func TestGroupsInActivationOrder(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	o := gptq.Best()
	o.Order = gptq.Indexed
	rep, out := runTiny(t, dir, NewGPTQ(int4Sym, "gptq", o), options(t))
	for _, e := range rep.Engines {
		require.Equal(t, slices.Contains([]string{"transformers 5.24", "exllamav2 0.3"}, e.Engine), e.Loads, "%s: %s", e.Engine, e.Reason)
	}
	require.Contains(t, openModel(t, out).Meta().Quant.Raw.Text(), `"desc_act": true`)
	indexed := false
	for _, name := range []string{"q_proj", "o_proj"} {
		idx := make([]byte, 4*64)
		require.NoError(t, openModel(t, out).ReadTensor("model.layers.0.self_attn."+name+".g_idx", idx, 0))
		for k := range 64 {
			indexed = indexed || int(idx[4*k]) != k/32
		}
	}
	require.True(t, indexed)
	source, dense := openModel(t, dir), openDense(t, out) // decodes by g_idx
	for _, r := range rep.Tensors {
		if r.RelError > 0 {
			require.Less(t, relError(valuesOf(t, dense, r.Name), valuesOf(t, source, r.Name)), 0.2, r.Name)
		}
	}
	for _, layout := range []string{"awq", "compressed-tensors"} {
		_, err := MakePlan(context.Background(), openModel(t, dir), NewGPTQ(int4Sym, layout, o), options(t))
		require.ErrorIs(t, err, ErrOptions)
		require.ErrorContains(t, err, "g_idx")
	}
}

// Sums in float32 take less memory, say so in the plan, and give nearly the same artifact.
func TestNarrowHessians(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	wide := NewGPTQ(int4Sym, "gptq", gptq.Best())
	narrow := wide
	narrow.Rounder = GPTQ{Options: gptq.Best(), Search: true, Narrow: true}
	plan, err := MakePlan(context.Background(), openModel(t, dir), narrow, options(t))
	require.NoError(t, err)
	in := arch.Input{Width: 28672} // of Llama-3-70B's down_proj
	require.Less(t, sequentialMemory(plan.Model, in, narrow.Needs(), 0), sequentialMemory(plan.Model, in, wide.Needs(), 0)*2/3)
	for _, own := range []bool{false, true} { // also where the layer's own output is matched
		wide.Rounder = GPTQ{Options: gptq.Best(), Search: true, NoShift: own}
		narrow.Rounder = GPTQ{Options: gptq.Best(), Search: true, NoShift: own, Narrow: true}
		a, _ := runTiny(t, dir, wide, options(t))
		b, _ := runTiny(t, dir, narrow, options(t))
		require.Equal(t, len(a.Tensors), len(b.Tensors))
		for i := range a.Tensors {
			require.InDelta(t, a.Tensors[i].OutError, b.Tensors[i].OutError, 0.01, a.Tensors[i].Name)
		}
	}
}

// Long calibration runs a part of its windows through the full-precision model.
func TestShiftWindows(t *testing.T) {
	for _, c := range []struct{ windows, seqLen, every, kept int }{
		{128, 512, 1, 128}, {128, 2048, 2, 64}, {131, 2048, 2, 66}, {1, 32, 1, 1}, {512, 2048, 8, 64},
	} {
		s := &stream{every: shiftEvery(c.windows, c.seqLen)}
		require.Equal(t, c.every, s.every)
		require.Equal(t, c.kept, s.shiftWindows(c.windows))
	}
}

// Windows that come in equal pairs have the statistics of half as many: when one in two runs through the full-precision
// model, nothing is lost, whichever chunk a window falls into and wherever the states are.
func TestOneWindowInTwo(t *testing.T) {
	if os.Getenv("QUANTIZE_LONG") == "" {
		t.Skip("set QUANTIZE_LONG=1")
	}
	c := testmodel.Llama()
	dir := writeModel(t, c)
	once := windows(shiftTokens/c.Context, c.Context, c.Vocab)
	twice := *once
	twice.Windows *= 2
	twice.IDs = nil
	for i := 0; i < len(once.IDs); i += c.Context {
		window := once.IDs[i : i+c.Context]
		twice.IDs = append(append(twice.IDs, window...), window...)
	}
	require.Equal(t, 1, shiftEvery(once.Windows, c.Context))
	require.Equal(t, 2, shiftEvery(twice.Windows, c.Context))
	r := NewGPTQ(int4Sym, "gptq", gptq.Best())
	o := options(t)
	o.Calib = once
	a, _ := runTiny(t, dir, r, o)
	o = options(t)
	o.Calib, o.Memory = &twice, 70<<20 // on disk
	b, _ := runTiny(t, dir, r, o)
	for i := range a.Tensors {
		require.InDelta(t, a.Tensors[i].OutError, b.Tensors[i].OutError, 2e-3, a.Tensors[i].Name)
	}
}
