package quant

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/testmodel"
)

// describe lists the tensors of a synthetic model.
func describe(t *testing.T, c testmodel.Config) []Desc {
	src := openModel(t, writeModel(t, c))
	m, err := arch.Resolve(src.Meta().Config, src)
	require.NoError(t, err)
	return Describe(m, src)
}

// Every tensor has its role, its layer and, in a mixture, its expert; quantizable are matrices alone.
func TestDescribe(t *testing.T) {
	count := map[arch.Role]int{}
	for _, d := range describe(t, testmodel.Qwen3MoE()) {
		count[d.Role]++
		require.Equal(t, strings.Contains(d.Info.Name, ".experts."), d.Expert >= 0, d.Info.Name)
		require.Equal(t, strings.HasPrefix(d.Info.Name, "model.layers."), d.Layer >= 0, d.Info.Name)
		if d.Linear != nil {
			require.Equal(t, []int64{int64(d.Linear.Out), int64(d.Linear.In)}, d.Info.Shape)
			require.Equal(t, d.Linear.Name, d.Module())
		}
	}
	require.Equal(t, map[arch.Role]int{arch.RoleEmbed: 1, arch.RoleHead: 1, arch.RoleNorm: 9, arch.RoleQ: 2, arch.RoleK: 2, arch.RoleV: 2,
		arch.RoleO: 2, arch.RoleRouter: 2, arch.RoleGate: 8, arch.RoleUp: 8, arch.RoleDown: 8}, count)
	count = map[arch.Role]int{}
	for _, d := range describe(t, testmodel.Qwen2()) {
		count[d.Role]++
	}
	require.Equal(t, 6, count[arch.RoleBias])
	require.Zero(t, count[arch.RoleHead], "the head is the embedding")
}

// By default linears inside the blocks are quantized; embeddings, head, norms, biases and routers are kept.
func TestUniform(t *testing.T) {
	descs := describe(t, testmodel.Qwen3MoE())
	choices, err := Uniform{int4}.Allocate(descs)
	require.NoError(t, err)
	for i, c := range choices {
		require.Equal(t, strings.Contains(descs[i].Info.Name, "_proj"), c.Quantize, descs[i].Info.Name)
	}
}

// The first matching rule wins; patterns without wildcards name whole components; case counts.
func TestOverrides(t *testing.T) {
	descs := describe(t, testmodel.Llama())
	allocate := func(rules ...Rule) map[string]Choice {
		choices, err := Overridden{Base: Uniform{int4}, Rules: rules, Default: int4}.Allocate(descs)
		require.NoError(t, err)
		byName := map[string]Choice{}
		for i, c := range choices {
			byName[descs[i].Info.Name] = c
		}
		return byName
	}
	c := allocate(Rule{"model.layers.0.mlp.*", "int8:g-1:sym"}, Rule{"down_proj", "keep"}, Rule{"*.norm.weight", "f32"}, Rule{"lm_head", "int8:g64"})
	require.Equal(t, packing.Scheme{Grid: "int", Bits: 8, GroupSize: -1, Sym: true}, c["model.layers.0.mlp.down_proj.weight"].Scheme)
	require.False(t, c["model.layers.1.mlp.down_proj.weight"].Quantize)
	require.Equal(t, "--tensor down_proj=keep", c["model.layers.1.mlp.down_proj.weight"].Reason)
	require.Equal(t, int4, c["model.layers.1.mlp.up_proj.weight"].Scheme)
	require.Equal(t, tensor.F32, c["model.norm.weight"].DType)
	require.Equal(t, tensor.Invalid, c["model.layers.0.input_layernorm.weight"].DType)
	require.Equal(t, packing.Scheme{Grid: "int", Bits: 8, GroupSize: 64}, c["lm_head.weight"].Scheme)

	for pattern, matches := range map[string]bool{
		"model.layers.1.self_attn.q_proj.weight": true, "model.layers.1.self_attn.q_proj": true, "q_proj": true, "layers.1": true, "1": true,
		"self_attn.q_proj": true, "*q_proj": true, "*.1.*": true, "model.layers.?.self_attn.[qk]_proj": true,
		"Q_proj": false, "proj": false, "layers": true, "layer": false, "q_proj*": false, "[": false, "": false,
	} {
		r := Rule{Pattern: pattern}
		name := "model.layers.1.self_attn.q_proj"
		require.Equal(t, matches, r.Matches(name+".weight") || r.Matches(name), pattern)
	}
	for _, bad := range []Rule{{"no_such", "keep"}, {"q_proj", "int5x"}, {"q_proj", "nonsense"}, {"input_layernorm", "int4"}, {"embed_tokens", "int8"}, {"q_proj", "int4:g0"}} {
		_, err := Overridden{Base: Uniform{int4}, Rules: []Rule{bad}, Default: int4}.Allocate(descs)
		require.ErrorContains(t, err, bad.Pattern+"="+bad.Spec)
	}
}

func TestParseSpec(t *testing.T) {
	base := packing.Scheme{Grid: "int", Bits: 4, GroupSize: 128, ScaleType: tensor.BF16}
	for spec, want := range map[string]Choice{
		"keep":          {},
		"bf16":          {DType: tensor.BF16},
		"f16":           {DType: tensor.F16},
		"f32":           {DType: tensor.F32},
		"int4":          {Quantize: true, Scheme: base},
		"int8:g64":      {Quantize: true, Scheme: packing.Scheme{Grid: "int", Bits: 8, GroupSize: 64, ScaleType: tensor.BF16}},
		"int3:sym:g-1":  {Quantize: true, Scheme: packing.Scheme{Grid: "int", Bits: 3, GroupSize: -1, Sym: true, ScaleType: tensor.BF16}},
		"int4:sym:asym": {Quantize: true, Scheme: base},
	} {
		got, err := ParseSpec(spec, base)
		require.NoError(t, err, spec)
		require.Equal(t, want, got, spec)
	}
	for _, bad := range []string{"", "int", "int04", "int4 ", "Int4", "int4:", "int4:g", "int4:g-2", "int4:g1x", "int4:symm", "keep:g3", "bf16:sym", "q4_k_m"} {
		_, err := ParseSpec(bad, base)
		require.Error(t, err, bad)
	}
}

// Overrides reach the artifact: mixed schemes are written as the loaders of each layout expect, and read back.
func TestOverriddenRuns(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	rules := []Rule{{"model.layers.0.self_attn.*", "int8:g64"}, {"down_proj", "keep"}, {"norm", "f32"}}
	for _, layout := range []string{"gptq", "compressed-tensors"} {
		r := NewRTN(int4Sym, layout)
		r.Allocation = Overridden{Base: r.Allocation, Rules: rules, Default: int4Sym}
		rep, out := runTiny(t, dir, r, options(t))
		require.Equal(t, []string{"model.layers.0.self_attn.*=int8:g64", "down_proj=keep", "norm=f32"}, rep.Recipe.Overrides)
		dense, src := openDense(t, out), openModel(t, dir)
		for _, row := range rep.Tensors {
			e := relError(valuesOf(t, dense, row.Name), valuesOf(t, src, row.Name))
			require.InDelta(t, row.RelError, e, 1e-6, row.Name)
			switch {
			case strings.Contains(row.Name, "layers.0.self_attn"):
				require.Equal(t, "int8 g64 sym", row.Grid)
				require.Less(t, e, 0.02)
			case strings.Contains(row.Name, "down_proj"), !strings.Contains(row.Name, "proj"):
				require.Zero(t, e)
			}
		}
	}
	r := NewRTN(int4, "awq")
	r.Allocation = Overridden{Base: r.Allocation, Rules: rules, Default: int4}
	rep, err := Run(context.Background(), openModel(t, dir), r, options(t))
	require.NoError(t, err)
	require.Equal(t, 4, len(rep.Events), "AWQ stores 4 bits alone: q, k, v and o of a layer fall back")
}
