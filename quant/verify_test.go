package quant

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/testmodel"
	"github.com/llmquant/quantize/quant/gptq"
)

// verify compares an artifact with its base.
func verify(t *testing.T, out, base string) (*VerifyResult, error) {
	src, dense := openDense(t, base), openDense(t, out)
	m, err := arch.Resolve(src.Meta().Config, src)
	require.NoError(t, err)
	return Verify(context.Background(), dense, src, m, storedIn(dense))
}

// storedIn tells how an artifact stores a tensor.
func storedIn(dense formats.Checkpoint) func(string) (packing.Scheme, bool) {
	return func(name string) (packing.Scheme, bool) { return formats.StoredScheme(dense, name) }
}

// Scales that were folded into norms, values and up projections are recognised and taken out: what is left is rounding.
func TestVerifyUnfoldsScales(t *testing.T) {
	for name, c := range models() {
		dir := writeModel(t, c)
		for _, r := range []Recipe{NewAWQ(int4, "awq", AWQOptions{}), NewGPTQ(int4Sym, "gptq", gptq.Best(), Smooth{})} {
			_, out := runTiny(t, dir, r, options(t))
			res, err := verify(t, out, dir)
			require.NoError(t, err)
			require.True(t, res.OK)
			status := map[string]int{}
			for _, row := range res.Tensors {
				status[row.Status]++
				switch {
				case strings.HasSuffix(row.Name, "layernorm.weight"):
					require.Less(t, row.RelError, 0.08, "%s: the readers' rounding", row.Name)
				case strings.HasSuffix(row.Name, "mlp.gate.weight"):
					require.Less(t, row.RelError, 5e-3, "%s: the router's rounding to 16 bits", row.Name)
				case row.Status == "quantized":
					require.Less(t, row.RelError, 0.2, row.Name)
				case strings.Contains(row.Name, "embed") || strings.Contains(row.Name, "lm_head") || row.Name == "model.norm.weight":
					require.Equal(t, "exact", row.Status, row.Name)
				}
			}
			require.Positive(t, status["quantized"])
			require.Positive(t, status["kept"], "%s: folded norms", name)
		}
	}
}

// An artifact that does not stand for the base is found out.
func TestVerifyFindsDefects(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	damages := map[string]struct {
		damage func(infos []tensor.Info, data map[string][]byte) []tensor.Info
		bad    string // a tensor whose row must tell
		status string
	}{
		"swapped matrices": {func(infos []tensor.Info, data map[string][]byte) []tensor.Info {
			for _, part := range []string{"qweight", "scales", "qzeros"} {
				a, b := "model.layers.0.mlp.gate_proj."+part, "model.layers.0.mlp.up_proj."+part
				data[a], data[b] = data[b], data[a]
			}
			return infos
		}, "model.layers.0.mlp.gate_proj.weight", "quantized"},
		"swapped layers": {func(infos []tensor.Info, data map[string][]byte) []tensor.Info {
			for _, part := range []string{"qweight", "scales", "qzeros"} {
				a, b := "model.layers.0.self_attn.o_proj."+part, "model.layers.1.self_attn.o_proj."+part
				data[a], data[b] = data[b], data[a]
			}
			return infos
		}, "model.layers.1.self_attn.o_proj.weight", "quantized"},
		"lost scales": {func(infos []tensor.Info, data map[string][]byte) []tensor.Info {
			clear(data["model.layers.1.mlp.down_proj.scales"])
			return infos
		}, "model.layers.1.mlp.down_proj.weight", "quantized"},
		"swapped norms": {func(infos []tensor.Info, data map[string][]byte) []tensor.Info {
			a, b := "model.layers.0.input_layernorm.weight", "model.layers.1.input_layernorm.weight"
			data[a], data[b] = data[b], data[a]
			return infos
		}, "model.layers.1.self_attn.k_proj.weight", "quantized"},
		"lost norm": {func(infos []tensor.Info, data map[string][]byte) []tensor.Info {
			clear(data["model.layers.1.input_layernorm.weight"])
			return infos
		}, "model.layers.1.input_layernorm.weight", "kept"},
		"lost final norm": {func(infos []tensor.Info, data map[string][]byte) []tensor.Info {
			clear(data["model.norm.weight"])
			return infos
		}, "model.norm.weight", "kept"},
		"lost tensor": {func(infos []tensor.Info, _ map[string][]byte) []tensor.Info {
			for i := range infos {
				if infos[i].Name == "lm_head.weight" {
					return append(infos[:i:i], infos[i+1:]...)
				}
			}
			return infos
		}, "lm_head.weight", "missing"},
		"more than there was": {func(infos []tensor.Info, data map[string][]byte) []tensor.Info {
			data["more"] = []byte("1234")
			return append(infos, tensor.Info{Name: "more", DType: tensor.U8, Shape: []int64{4}})
		}, "more", "extra"},
	}
	for name, d := range damages {
		t.Run(name, func(t *testing.T) {
			_, out := runTiny(t, dir, NewAWQ(int4, "awq", AWQOptions{}), options(t))
			rewrite(t, out, d.damage)
			res, err := verify(t, out, dir)
			if err != nil {
				require.ErrorContains(t, err, strings.TrimSuffix(d.bad, ".weight"))
				return
			}
			require.False(t, res.OK)
			for _, row := range res.Tensors {
				if row.Name == d.bad {
					require.Equal(t, d.status, row.Status)
					require.True(t, d.status == "missing" || d.status == "extra" || row.RelError > 0.4, "%+v", row)
				}
			}
		})
	}
}

// A tensor of another shape is a failed verification, and so is one more or one less byte of metadata.
func TestVerifyOtherModel(t *testing.T) {
	c := testmodel.Llama()
	dir := writeModel(t, c)
	c.Vocab = 256
	other := writeModel(t, c)
	_, out := runTiny(t, other, RTN(4, 32), options(t))
	_, err := verify(t, out, dir)
	require.ErrorIs(t, err, safeio.ErrVerify)
	require.ErrorContains(t, err, "shape")
	c = testmodel.Llama()
	c.Patch = func(_ string, v []float32) {
		for i := range v {
			v[i] = -v[i]
		}
	}
	res, err := verify(t, writeModel(t, c), dir)
	require.NoError(t, err)
	require.False(t, res.OK, "the same shapes with other numbers")
}

// One flipped byte anywhere in the weights is found by their checksums, wherever it is.
func TestCheckFilesFindsOneByte(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	_, out := runTiny(t, dir, RTN(4, 32), options(t))
	require.NoError(t, CheckFiles(context.Background(), openModel(t, out)))
	require.NoError(t, CheckFiles(context.Background(), openModel(t, dir)), "no report, nothing to compare")
	path := filepath.Join(out, "model.safetensors")
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, at := range []int{-1, -5000, len(whole) / 2} {
		flip(t, path, at)
		err := CheckFiles(context.Background(), openModel(t, out))
		require.ErrorIs(t, err, safeio.ErrVerify)
		require.ErrorContains(t, err, "model.safetensors")
		require.NoError(t, os.WriteFile(path, whole, 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(out, ReportName), []byte("{"), 0o644))
	require.ErrorIs(t, CheckFiles(context.Background(), openModel(t, out)), safeio.ErrCorrupt)
}

// goldenArtifacts are artifacts of other tools, with the model each was made from.
var goldenArtifacts = map[string][]string{
	"golm-qwen2": {"autoawq/qwen2-g128", "autoround/qwen2-layout-auto_awq", "gptqmodel/qwen2-awq-gemm", "gptqmodel/qwen2-dynamic",
		"gptqmodel/qwen2-w2g64", "gptqmodel/qwen2-w3g128", "gptqmodel/qwen2-w4g128-actorder", "gptqmodel/qwen2-w4g128-asym-v1",
		"llmcompressor/golm-qwen2.w3a16-rtn", "llmcompressor/golm-qwen2.w8a16-rtn", "llmcompressor/golm-qwen2.w4a16-gptq-actgroup",
		"llamacpp/golm-qwen2-Q5_0.gguf"},
	"golm-llama": {"gptqmodel/llama-head", "llmcompressor/golm-llama.awq-w4a16-asym", "llmcompressor/golm-llama.w4a16-gptq",
		"llamacpp/golm-llama-F16.gguf", "llamacpp/golm-llama-IQ2_XXS.gguf", "llamacpp/golm-llama-Q2_K.gguf",
		"llamacpp/golm-llama-Q4_0-00001-of-00003.gguf", "llamacpp/golm-llama-Q4_K_M.gguf"},
	"golm-llama-outlier": {"llmcompressor/golm-llama-outlier.awq-w4a16-asym"},
	"golm-qwen3moe":      {"llmcompressor/golm-qwen3moe.w4a16-gptq", "llamacpp/golm-qwen3moe-MXFP4_MOE.gguf"},
}

// What other tools made of a model stands for it.
func TestVerifyAcceptsOtherTools(t *testing.T) {
	for base, artifacts := range goldenArtifacts {
		model := sharedFile(t, "models", base)
		for _, a := range artifacts {
			res, err := verify(t, sharedFile(t, "golden", a), model)
			require.NoError(t, err, a)
			require.True(t, res.OK, "%s: %+v", a, res.Tensors)
		}
	}
}

// Our own artifacts of coarse grids stand for their models as well: few bits, mixed bits, whole rows.
func TestVerifyAcceptsCoarseGrids(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	for name, r := range map[string]Recipe{
		"rtn 2 bits":         NewRTN(packing.Scheme{Grid: "int", Bits: 2, GroupSize: 32}, "gptq"),
		"gptq 2 bits":        NewGPTQ(packing.Scheme{Grid: "int", Bits: 2, GroupSize: -1, Sym: true}, "gptq", gptq.Best()),
		"gptq 3 bits scaled": NewGPTQ(packing.Scheme{Grid: "int", Bits: 3, GroupSize: 64, Sym: true}, "gptq", gptq.Best(), AWQScaling{}),
		"8 bits per row":     NewRTN(packing.Scheme{Grid: "int", Bits: 8, GroupSize: -1, Sym: true}, "compressed-tensors"),
		"exl2":               mixed(t, dir, 3, 2),
	} {
		_, out := runTiny(t, dir, r, options(t))
		res, err := verify(t, out, dir)
		require.NoError(t, err)
		require.True(t, res.OK, "%s: %+v", name, res.Tensors)
	}
	gguf := tinyGGUF(t)
	for _, name := range []string{"Q2_K", "Q3_K_S", "Q4_1", "Q6_K", "Q8_0", "IQ4_XS", "TQ1_0", "MXFP4_MOE"} {
		_, out := runGGUF(t, openModel(t, gguf), ggufType(t, name), Options{Threads: 2})
		res, err := verify(t, out, gguf)
		require.NoError(t, err)
		require.True(t, res.OK, "%s: %+v", name, res.Tensors)
	}
}

// Four bits leave no room for a norm, a linear, a zero point or an order of columns that belongs elsewhere.
func TestVerifyIsStrictAtFourBits(t *testing.T) {
	base := sharedFile(t, "models", "golm-qwen2")
	swap := func(data map[string][]byte, a, b string) { data[a], data[b] = data[b], data[a] }
	for name, damage := range map[string]func(map[string][]byte){
		"norms": func(d map[string][]byte) {
			swap(d, "model.layers.0.input_layernorm.weight", "model.layers.1.input_layernorm.weight")
		},
		"norms 2": func(d map[string][]byte) {
			swap(d, "model.layers.0.post_attention_layernorm.weight", "model.layers.1.post_attention_layernorm.weight")
		},
		"linears": func(d map[string][]byte) {
			for _, part := range []string{"qweight", "scales", "qzeros"} {
				swap(d, "model.layers.0.self_attn.k_proj."+part, "model.layers.1.self_attn.k_proj."+part)
			}
		},
		"linears of a pair": func(d map[string][]byte) {
			for _, part := range []string{"qweight", "scales", "qzeros"} {
				swap(d, "model.layers.0.mlp.up_proj."+part, "model.layers.0.mlp.gate_proj."+part)
			}
		},
		"zero points": func(d map[string][]byte) {
			for i, z := range d["model.layers.1.mlp.gate_proj.qzeros"] {
				d["model.layers.1.mlp.gate_proj.qzeros"][i] = z ^ 0x11 // each off by one
			}
		},
		"scales": func(d map[string][]byte) { clear(d["model.layers.1.self_attn.q_proj.scales"]) },
		"codes": func(d map[string][]byte) { // rows of packed codes in another order
			q := d["model.layers.0.mlp.down_proj.qweight"]
			copy(q, append(q[len(q)/2:len(q):len(q)], q[:len(q)/2]...))
		},
		"biases": func(d map[string][]byte) {
			swap(d, "model.layers.0.self_attn.q_proj.bias", "model.layers.1.self_attn.q_proj.bias")
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS(sharedFile(t, "golden", "autoawq", "qwen2-g128"))))
			rewrite(t, dir, func(infos []tensor.Info, data map[string][]byte) []tensor.Info {
				damage(data)
				return infos
			})
			res, err := verify(t, dir, base)
			require.NoError(t, err)
			require.False(t, res.OK)
		})
	}
}
