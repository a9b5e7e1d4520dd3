package quant

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/calib"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/testmodel"
	"github.com/llmquant/quantize/quant/gptq"
)

// poisoned is a model with non-finite values at given places of one tensor.
func poisoned(c testmodel.Config, tensor string, value float32, at ...int) testmodel.Config {
	c.Patch = func(name string, values []float32) {
		if name == tensor {
			for _, i := range at {
				values[i] = value
			}
		}
	}
	return c
}

// Non-finite weights stop the run with tensor, count and the first index; nothing is left behind. Told to, the run
// replaces them by zero and reports the same.
func TestNonFiniteWeights(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for _, x := range []struct {
		tensor string
		value  float32
		at     []int
		first  string
	}{
		{"model.layers.0.self_attn.q_proj.weight", nan, []int{3*64 + 7, 500, 501}, "[3 7]"},
		{"model.layers.1.mlp.down_proj.weight", inf, []int{64*128 - 1}, "[63 127]"},
		{"model.layers.1.post_attention_layernorm.weight", nan, []int{9, 10}, "[9]"},
	} {
		dir := writeModel(t, poisoned(testmodel.Llama(), x.tensor, x.value, x.at...))
		for method, r := range recipes() {
			o := options(t)
			_, err := Run(context.Background(), openModel(t, dir), r, o)
			require.ErrorIs(t, err, safeio.ErrCorrupt, method)
			require.ErrorContains(t, err, x.tensor)
			require.ErrorContains(t, err, fmt.Sprintf("%d NaN or infinite", len(x.at)))
			require.ErrorContains(t, err, "first at "+x.first)
			require.NoDirExists(t, o.Out)

			o = options(t)
			o.NaNZero = true
			rep, out := runTiny(t, dir, r, o)
			require.Len(t, findings(rep, x.tensor), 1, method)
			e := findings(rep, x.tensor)[0]
			require.EqualValues(t, len(x.at), e.Count)
			require.Contains(t, e.Message, x.first)
			for _, info := range openModel(t, out).Tensors() {
				if info.DType.IsFloat() {
					for _, v := range valuesOf(t, openModel(t, out), info.Name) {
						require.False(t, math.IsNaN(float64(v)) || math.IsInf(float64(v), 0), info.Name)
					}
				}
			}
		}
	}
}

// Tensors outside the blocks are held to the same rule, whether they are quantized or kept.
func TestNonFiniteOutsideTheBlocks(t *testing.T) {
	for _, x := range []struct{ tensor, spec string }{
		{"lm_head.weight", "int8:g64"}, {"lm_head.weight", "keep"}, {"model.embed_tokens.weight", "keep"}, {"model.norm.weight", "keep"},
		{"model.norm.weight", "f32"},
	} {
		dir := writeModel(t, poisoned(testmodel.Llama(), x.tensor, float32(math.NaN()), 5))
		r := NewRTN(int4, "compressed-tensors")
		r.Allocation = Overridden{Base: r.Allocation, Rules: []Rule{{x.tensor, x.spec}}, Default: int4}
		o := options(t)
		_, err := Run(context.Background(), openModel(t, dir), r, o)
		require.ErrorIs(t, err, safeio.ErrCorrupt, "%s %s", x.tensor, x.spec)
		require.ErrorContains(t, err, x.tensor)
		require.NoDirExists(t, o.Out)

		o.NaNZero, o.Out = true, filepath.Join(t.TempDir(), "zero")
		rep, out := runTiny(t, dir, r, o)
		require.Len(t, findings(rep, x.tensor), 1)
		require.Zero(t, valuesOf(t, openDense(t, out), x.tensor)[5])
	}
}

func findings(rep *Report, tensor string) (out []Event) {
	for _, e := range rep.Events {
		if e.Tensor == tensor && e.Kind == EventFinding {
			out = append(out, e)
		}
	}
	return out
}

// Activations that leave float32's range stop a calibrated run with the layer.
func TestOverflowingModel(t *testing.T) {
	c := testmodel.Llama()
	c.Patch = func(name string, values []float32) {
		if strings.Contains(name, "layers.1.mlp.") {
			for i := range values {
				values[i] *= 1e18
			}
		}
	}
	o := options(t)
	o.Calib = windows(4, 32, 128)
	_, err := Run(context.Background(), openModel(t, writeModel(t, c)), AWQ(4, 32), o)
	require.Error(t, err)
	require.ErrorContains(t, err, "layer 1")
	require.NoDirExists(t, o.Out)
}

// Scales below and above what the layout's 16 bits hold: the run ends in a finite artifact or in an error that names the
// tensor, never in infinities or zeros.
func TestExtremeScales(t *testing.T) {
	for _, factor := range []float32{1e-30, 1e-9, 1e5, 1e6, 1e30} {
		c := testmodel.Llama()
		c.Patch = func(name string, values []float32) {
			if strings.Contains(name, "layers.0.self_attn.v_proj") {
				for i := range values {
					values[i] *= factor
				}
			}
		}
		dir := writeModel(t, c)
		for _, r := range []Recipe{NewRTN(int4, "awq"), NewRTN(int4Sym, "gptq"), NewRTN(int4, "compressed-tensors"), NewGPTQ(int4Sym, "gptq", gptq.Best())} {
			o := options(t)
			_, err := Run(context.Background(), openModel(t, dir), r, o)
			if err != nil {
				require.ErrorContains(t, err, "v_proj", "%g %s", factor, r.Layout)
				continue
			}
			for _, v := range valuesOf(t, openDense(t, o.Out), "model.layers.0.self_attn.v_proj.weight") {
				require.False(t, math.IsNaN(float64(v)) || math.IsInf(float64(v), 0))
			}
		}
	}
}

// Linears whose inputs the group size does not divide are all kept, with those that engines fuse with them; --strict
// refuses, naming all.
func TestShapesThatDoNotFit(t *testing.T) {
	c := testmodel.Llama()
	c.Inter = 96 // down_proj's inputs
	dir := writeModel(t, c)
	s := packing.Scheme{Grid: "int", Bits: 4, GroupSize: 64}
	for _, layout := range []string{"awq", "gptq", "compressed-tensors"} {
		rec := &recorder{}
		o := options(t)
		o.Events = rec.add
		rep, out := runTiny(t, dir, NewRTN(s, layout), o)
		art := openModel(t, out)
		for _, row := range rep.Tensors {
			if strings.Contains(row.Name, "down_proj") {
				require.Contains(t, row.Fallback, "96")
				require.Contains(t, row.Fallback, "32", "the message says which group size fits")
				require.Equal(t, "bf16", row.Grid)
				require.Equal(t, valuesOf(t, openModel(t, dir), row.Name), valuesOf(t, art, row.Name))
			} else {
				require.Empty(t, row.Fallback)
			}
		}
		require.Len(t, rec.of(EventFallback), 2)
		config := string(art.Meta().Config)
		told := strings.Contains(config, "modules_in_block_to_quantize") != strings.Contains(config, "down_proj")
		require.True(t, told, "loaders are told which linears are quantized, or which are not: %s", config)

		o = options(t)
		o.Strict = true
		_, err := Run(context.Background(), openModel(t, dir), NewRTN(s, layout), o)
		require.ErrorIs(t, err, safeio.ErrUnsupported)
		for l := range c.Layers {
			require.ErrorContains(t, err, fmt.Sprintf("model.layers.%d.mlp.down_proj", l))
		}
		require.NoDirExists(t, o.Out)
	}

	// k and v are too narrow for GPTQ's words of 32 rows; q goes with them because engines load the three as one.
	c = testmodel.Llama()
	c.HeadDim, c.KVHeads = 8, 1
	rep, out := runTiny(t, writeModel(t, c), NewRTN(int4, "awq"), options(t))
	require.Zero(t, countFallbacks(rep), "8 outputs fill one word of AWQ")
	rep, _ = runTiny(t, writeModel(t, c), NewRTN(packing.Scheme{Grid: "int", Bits: 3, GroupSize: 32, Sym: true}, "gptq"), options(t))
	openDense(t, out)
	for _, row := range rep.Tensors {
		kept := strings.Contains(row.Name, "q_proj") || strings.Contains(row.Name, "k_proj") || strings.Contains(row.Name, "v_proj")
		require.Equal(t, kept, row.Fallback != "", row.Name)
	}
}

func countFallbacks(rep *Report) (n int) {
	for _, row := range rep.Tensors {
		if row.Fallback != "" {
			n++
		}
	}
	return n
}

// Calibration that cannot be used is refused before anything is written, with the reason.
func TestUnusableCalibration(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	outside := windows(2, 32, 128)
	outside.IDs[40] = 128
	negative := windows(2, 32, 128)
	negative.IDs[1] = -1
	for name, x := range map[string]struct {
		set  *calib.Set
		text string
	}{
		"none":             {nil, "needs calibration"},
		"no window":        {&calib.Set{SeqLen: 32}, "needs calibration"},
		"too long":         {windows(1, 65, 128), "context of 64"},
		"id outside":       {outside, "128"},
		"negative id":      {negative, "-1"},
		"longest possible": {windows(1, 64, 128), ""},
	} {
		for _, method := range []string{"awq", "gptq"} {
			o := options(t)
			o.Calib = x.set
			_, err := Run(context.Background(), openModel(t, dir), recipes()[method], o)
			if x.text == "" {
				require.NoError(t, err, name)
				continue
			}
			require.ErrorContains(t, err, x.text, name)
			require.NoDirExists(t, o.Out)
			require.NoDirExists(t, o.Out+".partial")
		}
		o := options(t)
		o.Calib = x.set
		_, err := Run(context.Background(), openModel(t, dir), RTN(4, 32), o)
		require.NoError(t, err, "plain rounding reads no text")
	}
}

// One token per window, one window, more search windows than there are: degenerate sizes still work.
func TestSmallestCalibration(t *testing.T) {
	dir := writeModel(t, testmodel.Qwen3MoE())
	for _, set := range []*calib.Set{windows(1, 1, 128), windows(1, 2, 128), windows(3, 1, 128)} {
		for _, method := range []string{"awq", "gptq"} {
			o := options(t)
			o.Calib = set
			_, out := runTiny(t, dir, recipes()[method], o)
			openDense(t, out)
		}
	}
}

// Weights that are all zero, constant, or identical in every row round to themselves.
func TestDegenerateWeights(t *testing.T) {
	for name, fill := range map[string]func(i int) float32{
		"zero": func(int) float32 { return 0 }, "constant": func(int) float32 { return 0.25 }, "negative": func(int) float32 { return -0.5 },
	} {
		c := testmodel.Llama()
		c.Patch = func(tensor string, values []float32) {
			if strings.Contains(tensor, "layers.0.") && strings.Contains(tensor, "_proj") {
				for i := range values {
					values[i] = fill(i)
				}
			}
		}
		dir := writeModel(t, c)
		for method, r := range recipes() {
			_, out := runTiny(t, dir, r, options(t))
			got := valuesOf(t, openDense(t, out), "model.layers.0.mlp.gate_proj.weight")
			norm := valuesOf(t, openDense(t, out), "model.layers.0.post_attention_layernorm.weight")
			before := valuesOf(t, openModel(t, dir), "model.layers.0.post_attention_layernorm.weight")
			for i, v := range got {
				want := fill(i)
				if k := i % 64; norm[k] != 0 {
					want *= before[k] / norm[k]
				}
				step := 0.07
				if method != "rtn" { // error feedback and descent may take a neighbouring code to make up for errors in front
					step = 0.15
				}
				require.InDelta(t, want, v, step*math.Abs(float64(want))+1e-6, "%s %s", name, method)
			}
		}
	}
}
