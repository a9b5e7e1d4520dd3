package quant

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/testmodel"
	"github.com/llmquant/quantize/quant/exl2"
)

// byHand gives every linear that can be stored a candidate in turn.
func byHand(t testing.TB, dir string, candidates ...string) *exl2.Choice {
	src := openModel(t, dir)
	m, err := arch.Resolve(src.Meta().Config, src)
	require.NoError(t, err)
	c := &exl2.Choice{Target: 4, Modules: map[string]exl2.Candidate{}}
	slots := EXL2Slots(m)
	for i, s := range slots {
		cand, err := exl2.ParseCandidate(candidates[i%len(candidates)])
		require.NoError(t, err)
		for _, module := range s.Modules {
			c.Modules[module.Name] = cand
		}
	}
	require.NoError(t, c.Complete(slots))
	return c
}

var someCandidates = []string{"4/3 25/75 g32", "5/4 50/50 g32", "8/6 50/50 g32", "6/3/2 5/20/75 g32/64/64", "3 g32", "6/5 50/50 g32", "8/5/4 5/10/85 g32/64/128"}

// oddLlama has outputs that are no multiple of 32 (vocabulary, keys and values), and biases everywhere on attention.
func oddLlama() testmodel.Config {
	c := testmodel.Qwen2()
	c.KVHeads, c.HeadDim, c.Vocab, c.DType = 1, 16, 131, tensor.BF16
	return c
}

func configOf(t testing.TB, dir string) (v struct {
	DType string `json:"torch_dtype"`
	Tied  bool   `json:"tie_word_embeddings"`
	Quant struct {
		Method string  `json:"quant_method"`
		Head   int     `json:"head_bits"`
		Bits   float64 `json:"bits"`
	} `json:"quantization_config"`
}) {
	readJSON(t, filepath.Join(dir, "config.json"), &v)
	return v
}

// Whole directories follow the loader's rules: padded outputs and biases, tied heads, mixtures, permutations; what we
// decode from them is what the loader computes with. Reports and configs say what was stored.
func TestEXL2Loads(t *testing.T) {
	all := models()
	all["odd"] = oddLlama()
	for name, c := range all {
		dir := writeModel(t, c)
		r := NewEXL2(byHand(t, dir, someCandidates...), 4)
		o := options(t)
		o.MaxShard = 30_000
		rep, out := runTiny(t, dir, r, o)
		d := requireLoads(t, out)
		require.Contains(t, d.tensors, "lm_head.q_weight", name)
		v := configOf(t, out)
		require.Equal(t, "float16", v.DType, name)
		require.Equal(t, c.Tied, v.Tied, name)
		require.Equal(t, 4, v.Quant.Head)
		for _, row := range rep.Tensors {
			require.NotEmpty(t, row.Grid, row.Name)
			if !strings.HasPrefix(row.Grid, "exl2 ") {
				require.Equal(t, "f16", row.Grid, row.Name)
			}
		}
		res, err := verify(t, out, dir)
		require.NoError(t, err)
		require.True(t, res.OK, "%s: %+v", name, res.Tensors)
		// Back through conversion: the same codes from the dense view, the same directory but for the config's tie.
		dense := openDense(t, out)
		o = options(t)
		o.Calib = nil
		_, err = Run(context.Background(), dense, NewConvert(dense, exl2Name, tensor.Invalid), o)
		require.NoError(t, err)
		again := requireLoads(t, o.Out)
		for key, e := range d.tensors {
			require.Equal(t, e.data, again.tensors[key].data, "%s %s", name, key)
		}
		if name == "odd" {
			require.Len(t, d.tensors["model.layers.0.self_attn.k_proj.bias"].data, 2*32)
			require.Equal(t, []int{160}, d.tensors["lm_head.q_weight"].Shape[1:])
			require.Len(t, valuesOf(t, dense, "model.layers.0.self_attn.k_proj.bias"), 16)
		}
	}
}

// The trained models, biases and mixture of experts among them.
func TestEXL2LoadsGolm(t *testing.T) {
	for _, model := range []string{"golm-llama", "golm-qwen2", "golm-qwen3moe"} {
		dir := sharedFile(t, "models", model)
		o := options(t)
		o.Calib = windows(1, 48, 2000)
		_, out := runTiny(t, dir, NewEXL2(byHand(t, dir, someCandidates...), 6), o)
		d := requireLoads(t, out)
		require.Equal(t, model == "golm-qwen2", len(d.biases) > 0)
	}
}

// A directory without quantization_config is recognised by its tensors, as by the loader, and is not quantized again.
func TestEXL2WithoutConfig(t *testing.T) {
	dir := writeModel(t, oddLlama())
	_, out := runTiny(t, dir, NewEXL2(byHand(t, dir, someCandidates...), 6), options(t))
	path := filepath.Join(out, "config.json")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	v, err := safeio.ParseJSON(text)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(v.Without("quantization_config").Text()), 0o644))
	require.Equal(t, "exl2", openModel(t, out).Meta().Quant.Method)
	requireLoads(t, out)
	require.ErrorContains(t, RefuseQuantized(openModel(t, out)), "exl2")
}

// A dense head is the tied embedding or its own F16 matrix; the config says 16 bits then.
func TestEXL2DenseHead(t *testing.T) {
	for _, c := range []testmodel.Config{testmodel.Llama(), testmodel.Qwen2()} {
		dir := writeModel(t, c)
		_, out := runTiny(t, dir, NewEXL2(byHand(t, dir, "4 g32"), 16), options(t))
		d := requireLoads(t, out)
		require.NotContains(t, d.tensors, "lm_head.q_weight")
		require.Equal(t, !c.Tied, d.has("lm_head.weight"))
		require.Equal(t, 16, configOf(t, out).Quant.Head)
	}
}

// Modules that the loader wants quantized as a whole are refused in part, by name; dense as a whole is fine.
func TestEXL2Mixed(t *testing.T) {
	for _, c := range []testmodel.Config{testmodel.Llama(), testmodel.Qwen3MoE()} {
		dir := writeModel(t, c)
		for _, part := range []string{"model.layers.1.self_attn.o_proj", "model.layers.1.self_attn.k_proj", "down_proj"} {
			choice := byHand(t, dir, "4 g32")
			for name := range choice.Modules {
				if strings.HasSuffix(name, part) && strings.Contains(name, "layers.1.") {
					choice.Modules[name] = exl2.Candidate{}
				}
			}
			_, err := MakePlan(context.Background(), openModel(t, dir), NewEXL2(choice, 6), options(t))
			require.ErrorIs(t, err, safeio.ErrUnsupported)
			require.ErrorContains(t, err, part)
			require.ErrorContains(t, err, "of layer 1 quantized or dense as a whole")
		}
		choice := byHand(t, dir, "4 g32")
		for name := range choice.Modules {
			if strings.Contains(name, "layers.1.mlp") || strings.Contains(name, "layers.0.self_attn") {
				choice.Modules[name] = exl2.Candidate{}
			}
		}
		_, out := runTiny(t, dir, NewEXL2(choice, 6), options(t))
		d := requireLoads(t, out)
		require.True(t, d.has("model.layers.0.self_attn.q_proj.weight") && d.has("model.layers.1.self_attn.q_proj.q_weight"))
	}
}

// A width that is no multiple of 32 keeps its whole module dense; nothing that can be stored at all is refused.
func TestEXL2Unstorable(t *testing.T) {
	c := testmodel.Llama()
	c.Inter = 120
	dir := writeModel(t, c)
	rep, out := runTiny(t, dir, NewEXL2(byHand(t, dir, "4 g32"), 6), options(t))
	d := requireLoads(t, out)
	require.True(t, d.has("model.layers.0.mlp.up_proj.weight"))
	for _, row := range rep.Tensors {
		if strings.Contains(row.Name, "mlp") {
			require.Contains(t, row.Fallback, "120 input columns", row.Name)
		}
	}
	c.Hidden, c.HeadDim = 72, 18
	dir = writeModel(t, c)
	_, err := MakePlan(context.Background(), openModel(t, dir), NewEXL2(&exl2.Choice{Target: 4}, 6), options(t))
	require.ErrorIs(t, err, safeio.ErrUnsupported)
	require.ErrorContains(t, err, "none of the model's linears")
	_, err = MeasureEXL2(context.Background(), openModel(t, dir), options(t), "")
	require.ErrorContains(t, err, "none of the model's linears")
}

// Values that F16 cannot hold are refused by name before anything is measured or written.
func TestEXL2BeyondHalf(t *testing.T) {
	for _, name := range []string{"model.embed_tokens.weight", "model.layers.1.self_attn.k_proj.bias", "model.layers.0.input_layernorm.weight",
		"model.layers.1.mlp.up_proj.weight"} {
		dir := writeModel(t, poisoned(oddLlama(), name, 1e5, 7))
		r := NewEXL2(byHand(t, dir, "4 g32"), 6)
		o := options(t)
		_, err := Run(context.Background(), openModel(t, dir), r, o)
		require.ErrorIs(t, err, safeio.ErrUnsupported, name)
		require.ErrorContains(t, err, name[:strings.LastIndexByte(name, '.')])
		require.NoDirExists(t, o.Out)
		_, err = MeasureEXL2(context.Background(), openModel(t, dir), options(t), "")
		require.ErrorIs(t, err, safeio.ErrUnsupported, name)
	}
}

// Scales that a transform folds into norms and biases are F16 and padded like the others, the tied head has its own, and
// verification takes them out again.
func TestEXL2Transforms(t *testing.T) {
	for name, c := range map[string]testmodel.Config{"odd": oddLlama(), "llama": testmodel.Llama(), "moe": testmodel.Qwen3MoE()} {
		dir := writeModel(t, c)
		for _, transform := range []Transform{AWQScaling{}, Smooth{}} {
			r := NewEXL2(byHand(t, dir, "5 g32"), 6)
			r.Transforms = []Transform{transform}
			_, out := runTiny(t, dir, r, options(t))
			requireLoads(t, out)
			require.NotEqual(t, valuesOf(t, openModel(t, dir), "model.norm.weight"), valuesOf(t, openModel(t, out), "model.norm.weight"), name)
			require.Equal(t, valuesOf(t, openModel(t, dir), "model.embed_tokens.weight"), valuesOf(t, openModel(t, out), "model.embed_tokens.weight"))
			res, err := verify(t, out, dir)
			require.NoError(t, err)
			require.True(t, res.OK, "%s %s: %+v", name, transform.Name(), res.Tensors)
			for _, row := range res.Tensors {
				require.Less(t, row.RelError, 0.25, "%s %s %s", name, transform.Name(), row.Name)
			}
		}
	}
}
