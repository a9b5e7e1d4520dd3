package gguf

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/stretchr/testify/require"
)

// numbered is a source with one float32 tensor whose elements count from 0.
func numbered(name string, shape ...int64) memory {
	n, _ := tensor.Elements(shape)
	data := make([]byte, 4*n)
	for i := range n {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(i)))
	}
	m := memory{}
	e := m[name]
	e.info, e.data = tensor.Info{Name: name, DType: tensor.F32, Shape: shape}, data
	m[name] = e
	return m
}

// Row r = a·(d/2)+b of a head moves to 2b+a.
func TestRotaryRowsInterleave(t *testing.T) {
	const heads, dim, cols = 3, 8, 2
	src := numbered("q", heads*dim, cols)
	g, _ := NewTensor("blk.0.attn_q.weight", F32, heads*dim, cols)
	m := TensorMap{Tensor: g, Sources: []string{"q"}, RotaryQK: heads}
	whole := make([]float32, heads*dim*cols)
	require.NoError(t, m.ReadRows(src, whole, 0))
	for h := range heads {
		for a := range 2 {
			for b := range dim / 2 {
				from, to := h*dim+a*dim/2+b, h*dim+2*b+a
				require.Equal(t, float32(from*cols), whole[to*cols])
				name, row := m.SourceRow(int64(to))
				require.Equal(t, "q", name)
				require.Equal(t, int64(from), row)
				require.Equal(t, int64(to-h*dim), deinterleave(int64(from-h*dim), dim))
			}
		}
	}
	for first := range heads * dim { // any piece equals the same piece of the whole
		for n := 1; first+n <= heads*dim; n += 5 {
			part := make([]float32, n*cols)
			require.NoError(t, m.ReadRows(src, part, int64(first)))
			require.Equal(t, whole[first*cols:(first+n)*cols], part)
		}
	}
	require.ErrorIs(t, m.ReadRows(src, make([]float32, 3), 0), safeio.ErrCorrupt, "half a row")
	require.ErrorIs(t, m.ReadRows(src, make([]float32, 2*cols), heads*dim-1), safeio.ErrCorrupt)
	require.ErrorIs(t, m.ReadRows(memory{}, whole, 0), safeio.ErrCorrupt)
}

func TestRotaryBiasInterleaves(t *testing.T) {
	src := numbered("q.bias", 8)
	g, _ := NewTensor("blk.0.attn_q.bias", F32, 8)
	m := TensorMap{Tensor: g, Sources: []string{"q.bias"}, RotaryQK: 2}
	got := make([]float32, 8)
	require.NoError(t, m.ReadRows(src, got, 0))
	require.Equal(t, []float32{0, 2, 1, 3, 4, 6, 5, 7}, got)
}

func TestStacksReadAcrossExperts(t *testing.T) {
	src := numbered("e0", 3, 2)
	for name, e := range numbered("e1", 3, 2) {
		src[name] = e
	}
	g, _ := NewTensor("blk.0.ffn_up_exps.weight", F32, 2, 3, 2)
	m := TensorMap{Tensor: g, Sources: []string{"e0", "e1"}}
	got := make([]float32, 8)
	require.NoError(t, m.ReadRows(src, got, 1))
	require.Equal(t, []float32{2, 3, 4, 5, 0, 1, 2, 3}, got)
	name, row := m.SourceRow(4)
	require.Equal(t, "e1", name)
	require.Equal(t, int64(1), row)
}

func TestEncodeRows(t *testing.T) {
	dst := make([]byte, 4)
	require.NoError(t, EncodeRows(dst, BF16, []float32{1, -2}))
	require.Equal(t, []byte{0x80, 0x3f, 0x00, 0xc0}, dst)
	require.Error(t, EncodeRows(dst, F16, []float32{1}))
	require.Error(t, EncodeRows(make([]byte, 34), Q8_0, make([]float32, 32)))
	require.Error(t, EncodeRows(dst, I32, []float32{1}))
}

func llama31() *arch.Model {
	return &arch.Model{Rope: arch.Rope{Type: "llama3", Dim: 128, Theta: 500000, Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPos: 8192}}
}

// The divisors of Llama 3.1: 1 for short wavelengths, 8 for long ones, in between falling smoothly.
func TestRopeFactors(t *testing.T) {
	require.Nil(t, ropeFactors(&arch.Model{Rope: arch.Rope{Type: "yarn"}}))
	f := ropeFactors(llama31())
	require.Len(t, f, 64)
	require.Equal(t, float32(1), f[0])
	require.Equal(t, float32(8), f[63])
	between := 0
	for i := range f {
		wavelength := 2 * math.Pi * math.Pow(500000, float64(2*i)/128)
		want := 1.0
		switch {
		case wavelength > 8192:
			want = 8
		case wavelength >= 8192/4:
			smooth := (8192/wavelength - 1) / 3
			want = 1 / ((1-smooth)/8 + smooth)
			between++
		}
		require.InEpsilon(t, want, f[i], 1e-5)
	}
	require.Equal(t, 6, between)
}

func TestConversionRefusals(t *testing.T) {
	c := openModel(t, modelDir(t, "golm-llama"))
	o := c.options(Q8_0)
	_, _, err := FromHF(c.model, c.File, o)
	require.ErrorIs(t, err, safeio.ErrUnsupported)
	o = c.options(BF16)
	o.Config = []byte("{")
	_, _, err = FromHF(c.model, c.File, o)
	require.ErrorIs(t, err, safeio.ErrCorrupt)
	o = c.options(BF16)
	o.Config = []byte("{}")
	_, _, err = FromHF(c.model, c.File, o)
	require.ErrorContains(t, err, "intermediate_size")
	o.Config = []byte(`{"intermediate_size": 4294967297}`)
	_, _, err = FromHF(c.model, c.File, o)
	require.ErrorIs(t, err, safeio.ErrCorrupt)

	_, _, err = FromHF(c.model, extra{c.File, "model.layers.0.self_attn.rotary_emb.inv_freq"}, c.options(BF16))
	require.NoError(t, err, "tables that engines compute are left out")
	_, _, err = FromHF(c.model, extra{c.File, "model.vision_tower.weight"}, c.options(BF16))
	require.ErrorIs(t, err, safeio.ErrUnsupported)
	require.ErrorContains(t, err, "vision_tower")
	require.Equal(t, BF16, AutoType(c.File))
	require.Equal(t, F16, AutoType(numbered("x", 2, 2)))
}

// extra adds a tensor to a source.
type extra struct {
	tensor.Source
	name string
}

func (e extra) Tensors() []tensor.Info {
	return append([]tensor.Info{{Name: e.name, DType: tensor.F32, Shape: []int64{4}}}, e.Source.Tensors()...)
}

// Tensors of a sharded checkpoint follow its files.
func TestOrderFollowsFiles(t *testing.T) {
	c := openModel(t, modelDir(t, "golm-llama"))
	o := c.options(BF16)
	o.File = func(name string) string {
		if name == "model.norm.weight" {
			return "model-00001-of-00002.safetensors"
		}
		return "model-00002-of-00002.safetensors"
	}
	h, _, err := FromHF(c.model, c.File, o)
	require.NoError(t, err)
	require.Equal(t, nameNorm, h.Tensors[0].Name)
	require.Equal(t, nameHead, h.Tensors[1].Name)
}
