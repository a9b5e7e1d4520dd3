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
	"github.com/llmquant/quantize/quant/gptq"
)

// verify compares an artifact with its base.
func verify(t *testing.T, out, base string) (*VerifyResult, error) {
	art, src := openModel(t, out), openModel(t, base)
	m, err := arch.Resolve(src.Meta().Config, src)
	require.NoError(t, err)
	return Verify(context.Background(), openDense(t, out), src, m, func(name string) bool { _, ok := art.Lookup(name); return !ok })
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
					require.Less(t, row.RelError, 1e-3, row.Name)
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
		"another final norm": {func(infos []tensor.Info, data map[string][]byte) []tensor.Info {
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
