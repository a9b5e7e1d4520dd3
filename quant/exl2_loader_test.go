package quant

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// exl2Dir is a directory as ExLlamaV2's loader sees it: every safetensors file merged, tensors found by name alone.
// Nothing of the project's readers is used.
type exl2Dir struct {
	*testing.T
	config  map[string]any
	tensors map[string]exl2Tensor
	used    map[string]bool
	linears map[string][]float64 // what the loader multiplies with, [out, in], padding included
	biases  map[string][]float64
}

type exl2Tensor struct {
	DType string   `json:"dtype"`
	Shape []int    `json:"shape"`
	At    [2]int64 `json:"data_offsets"`
	data  []byte
}

func loadEXL2(t *testing.T, dir string) *exl2Dir {
	d := &exl2Dir{T: t, tensors: map[string]exl2Tensor{}, used: map[string]bool{}, linears: map[string][]float64{}, biases: map[string][]float64{}}
	readJSON(t, filepath.Join(dir, "config.json"), &d.config)
	files, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	require.NoError(t, err)
	for _, f := range files {
		require.True(t, strings.HasPrefix(filepath.Base(f), "output"))
		raw, err := os.ReadFile(f)
		require.NoError(t, err)
		n := binary.LittleEndian.Uint64(raw)
		header := map[string]json.RawMessage{}
		require.NoError(t, json.Unmarshal(raw[8:8+n], &header))
		delete(header, "__metadata__")
		for name, text := range header {
			require.NotContains(t, d.tensors, name)
			var e exl2Tensor
			require.NoError(t, json.Unmarshal(text, &e))
			e.data = raw[8+int64(n)+e.At[0] : 8+int64(n)+e.At[1]]
			d.tensors[name] = e
		}
	}
	require.NoFileExists(t, filepath.Join(dir, "model.safetensors.index.json"))
	d.model()
	return d
}

func (d *exl2Dir) number(key string) int {
	v, ok := d.config[key].(float64)
	require.True(d, ok, key)
	return int(v)
}

// model walks the modules that the loader builds from config.json. Whatever it would assert is required.
func (d *exl2Dir) model() {
	require.Len(d, d.config["architectures"], 1)
	arch := d.config["architectures"].([]any)[0]
	h, vocab, heads := d.number("hidden_size"), d.number("vocab_size"), d.number("num_attention_heads")
	kv, width := d.number("num_key_value_heads"), d.number("head_dim")
	attentionBias, _ := d.config["attention_bias"].(bool)
	qkv, o := attentionBias, attentionBias
	if arch == "Qwen2ForCausalLM" {
		qkv, o = true, false
	}
	qkNorm := arch == "Qwen3MoeForCausalLM" || arch == "Qwen3ForCausalLM"
	d.half("model.embed_tokens.weight", vocab, h)
	for l := range d.number("num_hidden_layers") {
		p := "model.layers." + strconv.Itoa(l) + "."
		d.half(p+"input_layernorm.weight", h)
		d.half(p+"post_attention_layernorm.weight", h)
		a := p + "self_attn."
		q := d.linear(a+"q_proj", h, heads*width, qkv)
		require.Equal(d, q, d.linear(a+"k_proj", h, kv*width, qkv), "partially quantized attention layer")
		require.Equal(d, q, d.linear(a+"v_proj", h, kv*width, qkv), "partially quantized attention layer")
		require.Equal(d, q, d.linear(a+"o_proj", heads*width, h, o), "partially quantized attention layer")
		if qkNorm {
			d.half(a+"q_norm.weight", width)
			d.half(a+"k_norm.weight", width)
		}
		inter, experts := d.number("intermediate_size"), []string{"mlp."}
		if arch == "Qwen3MoeForCausalLM" {
			inter, experts = d.number("moe_intermediate_size"), nil
			d.half(p+"mlp.gate.weight", d.number("num_experts"), h)
			for e := range d.number("num_experts") {
				experts = append(experts, "mlp.experts."+strconv.Itoa(e)+".")
			}
		}
		first := d.has(p + experts[0] + "gate_proj.q_weight")
		for _, e := range experts {
			require.Equal(d, first, d.linear(p+e+"gate_proj", h, inter, false), "partially quantized MLP layer")
			require.Equal(d, first, d.linear(p+e+"up_proj", h, inter, false), "partially quantized MLP layer")
			require.Equal(d, first, d.linear(p+e+"down_proj", inter, h, false), "partially quantized MLP layer")
		}
	}
	d.half("model.norm.weight", h)
	tied, _ := d.config["tie_word_embeddings"].(bool)
	if !tied || d.has("lm_head.q_weight") {
		d.linear("lm_head", h, vocab, false)
	}
}

func (d *exl2Dir) has(name string) bool { _, ok := d.tensors[name]; return ok }

// get returns a tensor of the type and shape that the extension checks.
func (d *exl2Dir) get(name, dtype string, shape ...int) []byte {
	require.Contains(d, d.tensors, name)
	e := d.tensors[name]
	require.Equal(d, dtype, e.DType, name)
	require.Equal(d, shape, e.Shape, name)
	d.used[name] = true
	return e.data
}

// half reads a dense tensor. The loader would turn others into halves; files should hold what is computed with.
func (d *exl2Dir) half(name string, shape ...int) []float64 {
	data := d.get(name, "F16", shape...)
	values := make([]float64, len(data)/2)
	for i := range values {
		values[i] = halfValue(binary.LittleEndian.Uint16(data[2*i:]))
		require.False(d, math.IsInf(values[i], 0) || math.IsNaN(values[i]), name)
	}
	return values
}

// linear loads a quantized or dense linear and says which it is.
func (d *exl2Dir) linear(key string, in, out int, bias bool) (quantized bool) {
	padded := (out + 31) / 32 * 32
	if !d.has(key + ".q_weight") {
		d.linears[key] = d.half(key+".weight", out, in)
		padded = out
	} else {
		d.quantized(key, in, padded)
		quantized = true
	}
	require.Equal(d, bias, d.has(key+".bias"), "%s: bias", key)
	if bias {
		d.biases[key] = d.half(key+".bias", padded)
		for _, v := range d.biases[key][out:] {
			require.Zero(d, v)
		}
	}
	return quantized
}

// quantized follows make_q_matrix, make_group_map and the reconstruction kernels, in half arithmetic.
func (d *exl2Dir) quantized(key string, in, n int) {
	shape := d.tensors[key+".q_weight"].Shape
	words := shape[0]
	groups := len(d.tensors[key+".q_scale_max"].data) / 2
	weight := d.get(key+".q_weight", "I32", words, n)
	scales := d.get(key+".q_scale", "I32", groups, n/8)
	most := d.get(key+".q_scale_max", "F16", groups)
	table := d.get(key+".q_groups", "I16", 2*groups)
	invperm := d.get(key+".q_invperm", "I32", in)
	require.Less(d, in, 65536)
	perm, seen := make([]int, in), make([]bool, in)
	for k := range in {
		r := int(binary.LittleEndian.Uint32(invperm[4*k:]))
		require.Less(d, r, in)
		require.False(d, seen[r], "%s: row %d twice", key, r)
		perm[r], seen[r] = k, true
	}
	dense := make([]float64, n*in)
	row, last := 0, 8
	for g := range groups {
		bits := int(int16(binary.LittleEndian.Uint16(table[4*g:])))
		start, end := int(int16(binary.LittleEndian.Uint16(table[4*g+2:]))), words
		if g+1 < groups {
			end = int(int16(binary.LittleEndian.Uint16(table[4*g+6:])))
		}
		require.Contains(d, []int{8, 6, 5, 4, 3, 2}, bits)
		require.LessOrEqual(d, bits, last, "%s: widths fall", key)
		require.True(d, g > 0 || start == 0)
		rows := (end - start) * 32 / bits
		require.True(d, rows > 0 && rows%32 == 0 && (end-start)*32%bits == 0, "%s: %d rows", key, rows)
		last = bits
		// q_scale_max *= prescale / 256, as a half
		step := toHalf(halfValue(binary.LittleEndian.Uint16(most[2*g:])) / 256)
		for c := range n {
			s := float64(binary.LittleEndian.Uint32(scales[4*(g*(n/8)+c/8):])>>(c%8*4)&15) + 1
			scale := toHalf(s * s * step)
			var stream uint64 // of the column's words, least significant bit first
			have, word := 0, start
			for r := range rows {
				for have < bits {
					stream |= uint64(binary.LittleEndian.Uint32(weight[4*(word*n+c):])) << have
					have, word = have+32, word+1
				}
				code := float64(stream & (1<<bits - 1))
				stream, have = stream>>bits, have-bits
				dense[c*in+perm[row+r]] = toHalf((code - float64(int(1)<<(bits-1))) * scale)
			}
			require.Equal(d, end, word)
		}
		row += rows
	}
	require.Equal(d, in, row, "%s: the groups cover the rows", key)
	d.linears[key] = dense
}

// halfValue is the number that the bits of a half stand for.
func halfValue(b uint16) float64 {
	exp, man := int(b>>10&31), float64(b&1023)
	v := math.Ldexp(man, -24)
	switch {
	case exp == 31 && man != 0:
		v = math.NaN()
	case exp == 31:
		v = math.Inf(1)
	case exp > 0:
		v = math.Ldexp(1024+man, exp-25)
	}
	if b>>15 == 1 {
		return -v
	}
	return v
}

// toHalf rounds to the nearest half, ties to even. The products above are exact in float64.
func toHalf(x float64) float64 {
	if x == 0 {
		return 0
	}
	ulp := math.Ldexp(1, max(math.Ilogb(x), -14)-10)
	if y := math.RoundToEven(x/ulp) * ulp; math.Abs(y) <= 65504 {
		return y
	}
	return math.Inf(1)
}

// requireLoads holds an artifact against the loader's rules and compares what the loader computes with with what this
// project's reader shows, bit for bit.
func requireLoads(t *testing.T, out string) *exl2Dir {
	d := loadEXL2(t, out)
	for name := range d.tensors {
		require.True(t, d.used[name], "the loader has no use for %s", name)
	}
	ours := openDense(t, out)
	require.Nil(t, ours.Meta().Quant)
	for key, want := range d.linears {
		got := valuesOf(t, ours, key+".weight")
		for i, v := range got {
			if float64(v) != want[i] {
				t.Fatalf("%s: element %d is %v, the loader computes with %v", key, i, v, want[i])
			}
		}
		for _, v := range want[len(got):] {
			require.Zero(t, v, "padding outputs are zero")
		}
	}
	for key, want := range d.biases {
		got := valuesOf(t, ours, key+".bias")
		for i, v := range got {
			require.Equal(t, want[i], float64(v), key)
		}
	}
	return d
}

// The spec's vectors hold for the arithmetic above.
func TestHalfArithmetic(t *testing.T) {
	for top, want := range map[uint16][3]uint16{0x3800: {0x1800, 0x2800, 0x3800}, 0x22cf: {0x0368, 0x12d0, 0x22d0}, 0x0e64: {0x001a, 0x01a0, 0x0e80}, 0x0150: {0x0001, 0x0010, 0x0100}, 0x0075: {}} {
		step := toHalf(halfValue(top) / 256)
		for i, s := range []float64{1, 4, 16} {
			require.Equal(t, halfValue(want[i]), toHalf(s*s*step), "%04x", top)
		}
	}
	for b := range 0x7c00 {
		v, next := halfValue(uint16(b)), halfValue(uint16(b+1))
		require.Equal(t, v, toHalf(v))
		if b+1 < 0x7c00 {
			require.Equal(t, v, toHalf(v+(next-v)*0.4999))
			require.Equal(t, next, toHalf(v+(next-v)*0.5001))
		}
	}
	require.True(t, math.IsInf(toHalf(65520), 0))
}
