package packing

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

func modules(layers int, names ...string) []string {
	var all []string
	for i := range layers {
		for _, n := range names {
			all = append(all, "model.layers."+string(rune('0'+i))+"."+n)
		}
	}
	return all
}

func TestConfigText(t *testing.T) {
	o := ConfigOptions{
		Scheme:    Scheme{Grid: "int", Bits: 4, GroupSize: 128, Sym: true},
		Quantized: modules(2, "self_attn.q_proj", "mlp.experts.0.gate_proj"),
		Ignore:    []string{"lm_head"}, Head: "lm_head", Tool: "quantize:1.0",
		GPTQ: GPTQMeta{Damp: 0.01, TrueSequential: true},
	}
	tests := []struct {
		layout Layout
		want   string
	}{
		{awq, `{"quant_method":"awq","version":"gemm","bits":4,"group_size":128,"zero_point":true,"modules_to_not_convert":["lm_head"]}`},
		{gptq, `{"bits":4,"group_size":128,"desc_act":false,"sym":true,"lm_head":false,"quant_method":"gptq","checkpoint_format":"gptq",` +
			`"pack_dtype":"int32","damp_percent":0.01,"static_groups":false,"true_sequential":true,"model_name_or_path":null,` +
			`"model_file_base_name":"model","meta":{"quantizer":["quantize:1.0"]}}`},
		{compressedTensors, `{"quant_method":"compressed-tensors","version":"0.11.0","format":"pack-quantized","quantization_status":"compressed",` +
			`"global_compression_ratio":null,"ignore":["lm_head"],"kv_cache_scheme":null,"config_groups":{"group_0":{"targets":["Linear"],` +
			`"weights":{"num_bits":4,"type":"int","symmetric":true,"strategy":"group","group_size":128,"dynamic":false,"actorder":null,` +
			`"block_structure":null,"observer":"minmax","observer_kwargs":{}},"input_activations":null,"output_activations":null}},` +
			`"sparsity_config":{},"transform_config":{}}`},
	}
	for _, tt := range tests {
		e, err := QuantizationConfig(&tt.layout, o)
		require.NoError(t, err)
		require.Equal(t, tt.want, string(e.Value))
	}
	e, err := QuantizationConfig(&gptqV2, o)
	require.NoError(t, err)
	require.Equal(t, "quantize_config.json", e.SideName)
	require.True(t, strings.HasPrefix(string(e.Side), "{\n  \"bits\": 4,\n"))
	require.Contains(t, string(e.Side), `"checkpoint_format": "gptq_v2"`)
	_, err = QuantizationConfig(&awqGemv, o)
	require.ErrorIs(t, err, safeio.ErrUnsupported)
}

// vLLM takes AWQ's entries as substrings: a router's name must not swallow a projection.
func TestAWQIgnoreIsASubstring(t *testing.T) {
	o := ConfigOptions{Scheme: Scheme{Grid: "int", Bits: 4, GroupSize: 128}, Quantized: modules(1, "mlp.gate_proj"), Ignore: []string{"model.layers.0.mlp.gate"}}
	_, err := QuantizationConfig(&awq, o)
	require.ErrorContains(t, err, "model.layers.0.mlp.gate_proj")
	o.Quantized = modules(1, "mlp.experts.0.gate_proj")
	_, err = QuantizationConfig(&awq, o)
	require.NoError(t, err)
}

func TestGPTQListsInnerModules(t *testing.T) {
	o := ConfigOptions{
		Scheme:    Scheme{Grid: "int", Bits: 4, GroupSize: 128, Sym: true},
		Quantized: modules(2, "self_attn.q_proj", "mlp.up_proj"),
		Ignore:    append(modules(2, "mlp.down_proj"), "lm_head"), Head: "lm_head",
	}
	e, err := QuantizationConfig(&gptq, o)
	require.NoError(t, err)
	require.Contains(t, string(e.Value), `"modules_in_block_to_quantize":[["self_attn.q_proj","mlp.up_proj"]]`)
	// A projection that is dense in one block only needs full names.
	o.Ignore = []string{"model.layers.1.mlp.up_proj"}
	o.Quantized = o.Quantized[:3]
	e, err = QuantizationConfig(&gptq, o)
	require.NoError(t, err)
	require.Contains(t, string(e.Value), `[["model.layers.0.self_attn.q_proj","model.layers.0.mlp.up_proj","model.layers.1.self_attn.q_proj"]]`)
}

func TestMixtures(t *testing.T) {
	eight := Scheme{Grid: "int", Bits: 8, GroupSize: 64, Sym: true}
	o := ConfigOptions{
		Scheme:    Scheme{Grid: "int", Bits: 4, GroupSize: 128, Sym: true},
		Quantized: modules(3, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.down_proj", "mlp.experts.0.up_proj"),
		Overrides: map[string]Scheme{}, Head: "lm_head",
	}
	for _, m := range modules(3, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")[3:] {
		o.Overrides[m] = eight
	}
	o.Overrides["model.layers.0.mlp.experts.0.up_proj"] = eight
	o.Overrides["lm_head"] = eight
	e, err := QuantizationConfig(&gptq, o)
	require.NoError(t, err)
	require.Contains(t, string(e.Value), `"dynamic":{"+:^lm_head$":{"bits":8,"group_size":64,"sym":true},`+
		`"+:^model\\.layers\\.(0)\\.mlp\\.experts(\\.|$)":{"bits":8,"group_size":64,"sym":true},`+
		`"+:^model\\.layers\\.(1|2)\\.self_attn\\.(q_proj|k_proj|v_proj|qkv_proj)$":{"bits":8,"group_size":64,"sym":true}}`)

	c := parseConfig(t, string(e.Value))
	for module, want := range map[string]int{"model.layers.1.self_attn.qkv_proj": 64, "model.layers.0.self_attn.q_proj": 128, "lm_head": 64, "model.layers.2.mlp.down_proj": 128} {
		_, size, skip, err := c.forModule(module)
		require.NoError(t, err)
		require.False(t, skip)
		require.Equal(t, want, size, module)
	}

	e, err = QuantizationConfig(&compressedTensors, o)
	require.NoError(t, err)
	c = parseConfig(t, string(e.Value))
	for module, want := range map[string]int{"model.layers.1.self_attn.k_proj": 8, "model.layers.0.self_attn.q_proj": 4} {
		g, ok := c.group(module)
		require.True(t, ok)
		s, err := ctScheme(g)
		require.NoError(t, err)
		require.Equal(t, want, s.Bits)
	}
	_, err = QuantizationConfig(&awq, o)
	require.ErrorIs(t, err, safeio.ErrUnsupported)

	o.Overrides["model.layers.0.mlp.experts.1.up_proj"] = Scheme{Grid: "int", Bits: 2, GroupSize: 64}
	_, err = QuantizationConfig(&gptq, o)
	require.ErrorContains(t, err, "one scheme")
}

func TestW8A8Config(t *testing.T) {
	o := ConfigOptions{Scheme: Scheme{Grid: "int", Bits: 8, GroupSize: -1, Sym: true}}
	for mode, want := range map[string]string{
		"":       `"strategy":"token","group_size":null,"dynamic":true`,
		"static": `"strategy":"tensor","group_size":null,"dynamic":false`,
	} {
		o.Activations = mode
		e, err := QuantizationConfig(&ctInt8, o)
		require.NoError(t, err)
		require.Contains(t, string(e.Value), want)
		require.Contains(t, string(e.Value), `"strategy":"channel","group_size":null`)
	}
	o.Activations = "sometimes"
	_, err := QuantizationConfig(&ctInt8, o)
	require.Error(t, err)
}

func TestParseConfigSpellings(t *testing.T) {
	c := parseConfig(t, `{"w_bit":4,"q_group_size":64,"zero_point":true,"version":"GEMM"}`)
	require.Equal(t, Config{Method: "awq", Version: "gemm", Bits: 4, GroupSize: 64}, *c)
	c = parseConfig(t, `{"bits":4,"group_size":-1,"desc_act":true,"damp_percent":0.01}`)
	require.Equal(t, Config{Method: "gptq", Bits: 4, GroupSize: -1, Sym: true}, *c)
	c = parseConfig(t, `{"quant_method":"compressed_tensors","format":"pack-quantized","config_groups":{"a":{"targets":["re:.*up_proj$"],"weights":{"num_bits":8}},"b":{"targets":["Linear"],"weights":{"num_bits":4}}}}`)
	for module, bits := range map[string]int{"model.layers.0.mlp.up_proj": 8, "model.layers.0.mlp.down_proj": 4} {
		g, ok := c.group(module)
		require.True(t, ok)
		s, err := ctScheme(g)
		require.NoError(t, err)
		require.Equal(t, bits, s.Bits)
	}
	for _, bad := range []string{
		`{"quant_method":"gptq","bits":"4"}`,
		`{"quant_method":"gptq","bits":-7}`,
		`{"quant_method":"gptq","dynamic":{"(?=x)":{}}}`,
		`{"quant_method":"gptq","dynamic":{"` + strings.Repeat("x", maxPattern+1) + `":{}}}`,
		`{"quant_method":"compressed-tensors","config_groups":{"a":{}}}`,
		`{"quant_method":7}`,
	} {
		v, err := safeio.ParseJSON(bad)
		require.NoError(t, err)
		_, err = ParseConfig(v)
		require.Error(t, err, bad)
	}
}

func TestDetectRefuses(t *testing.T) {
	l := randomLinear(newRand(9), Scheme{Bits: 4, GroupSize: 32, Sym: true}, 32, 64, tensor.F16)
	files := packed(t, gptq, l)
	tests := []struct{ config, want string }{
		{`{"quant_method":"gptq","checkpoint_format":"marlin"}`, "marlin"},
		{`{"quant_method":"gptq","checkpoint_format":"gptq","dynamic":{"m":{"sym":"yes"}}}`, "sym"},
	}
	for _, tt := range tests {
		_, _, err := Detect(parseConfig(t, tt.config), files.module("m"))
		require.ErrorContains(t, err, tt.want)
	}
	for _, config := range []string{`{"quant_method":"fp8"}`, `{"quant_method":"awq","version":"marlin"}`} {
		_, ok, err := Detect(parseConfig(t, config), files.module("m"))
		require.NoError(t, err)
		require.False(t, ok)
	}
	_, ok := Lookup("marlin")
	require.False(t, ok)
	l2, ok := Lookup("gptq_v2")
	require.True(t, ok)
	require.Equal(t, "gptq_v2", l2.Name)
}
