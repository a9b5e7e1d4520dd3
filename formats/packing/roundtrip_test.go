package packing

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

// Every writable layout reads back what it wrote, for every width and group size that it takes; Detect finds it again.
func TestRoundTrip(t *testing.T) {
	r := newRand(2)
	methods := map[string]string{
		"awq":                     `{"quant_method":"awq","bits":4,"group_size":%d,"version":"gemm","zero_point":true}`,
		"gptq":                    `{"quant_method":"gptq","checkpoint_format":"gptq"}`,
		"gptq_v2":                 `{"quant_method":"gptq","checkpoint_format":"gptq_v2"}`,
		"compressed-tensors":      "",
		"compressed-tensors-int8": "",
	}
	for _, layout := range Layouts() {
		if layout.Pack == nil || layout.Name == "exl2" { // TestEXL2RoundTrip
			continue
		}
		require.Contains(t, methods, layout.Name, "a layout without a round trip test")
		tried := 0
		for _, bits := range []int{2, 3, 4, 8} {
			for _, size := range []int{-1, 32, 64, 128} {
				for _, sym := range []bool{true, false} {
					for _, d := range []tensor.DType{tensor.F16, tensor.BF16, tensor.F32} {
						s := Scheme{Grid: "int", Bits: bits, GroupSize: size, Sym: sym, ScaleType: d}
						half := layout.Name == "awq" || layout.Name == "gptq" || layout.Name == "gptq_v2"
						if layout.Check(s, 64, 128) != nil || half && d != tensor.F16 {
							continue
						}
						tried++
						l := randomLinear(r, s, 64, 128, d)
						files := packed(t, layout, l)
						back, err := layout.Unpack(s, l.Out, l.In, files.source("m"))
						require.NoError(t, err)
						require.Equal(t, l, back, "%s %+v", layout.Name, s)
						require.NoError(t, Validate(l, &layout))
						detectAgain(t, layout, l, files)
					}
				}
			}
		}
		require.Positive(t, tried)
	}
}

// detectAgain writes the config for an artifact and lets Detect work out the scheme and the shape from it.
func detectAgain(t *testing.T, layout Layout, l *Linear, files stored) {
	t.Helper()
	e, err := QuantizationConfig(&layout, ConfigOptions{Scheme: l.Scheme, Quantized: []string{"m"}, Ignore: []string{"lm_head"}, Head: "lm_head"})
	require.NoError(t, err)
	f, ok, err := Detect(parseConfig(t, string(e.Value)), files.module("m"))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, layout.Name, f.Layout.Name)
	want := l.Scheme
	if layout.Name == "awq" {
		want.Sym = false // always written with zero points
	}
	require.Equal(t, want, f.Scheme)
	require.Equal(t, []int{l.Out, l.In}, []int{f.Out, f.In})
}

func TestGPTQKeepsActivationOrder(t *testing.T) {
	l := randomLinear(newRand(3), Scheme{Bits: 4, GroupSize: 32, Sym: true}, 32, 64, tensor.F16)
	l.GIdx = make([]int32, 64)
	for k := range l.GIdx {
		l.GIdx[k] = int32(k % 2)
	}
	back, err := gptq.Unpack(l.Scheme, 32, 64, packed(t, gptq, l).source("m"))
	require.NoError(t, err)
	require.Equal(t, l, back)
	for _, layout := range []Layout{awq, compressedTensors} {
		_, err := Convert(l, &layout)
		require.ErrorIs(t, err, safeio.ErrUnsupported, layout.Name)
	}
}

func TestConversionsAreExact(t *testing.T) {
	r := newRand(4)
	for _, sym := range []bool{true, false} {
		l := randomLinear(r, Scheme{Bits: 4, GroupSize: 32, Sym: sym}, 32, 64, tensor.F16)
		want := dense(t, l)
		for _, layout := range []Layout{awq, gptq, gptqV2, compressedTensors, awq, gptqV2} {
			c, err := Convert(l, &layout)
			require.NoError(t, err, layout.Name)
			back, err := layout.Unpack(c.Scheme, c.Out, c.In, packed(t, layout, c).source("m"))
			require.NoError(t, err)
			require.Equal(t, want, dense(t, back), layout.Name)
			l = back
		}
		require.NoError(t, l.SplitGroups(16))
		require.Equal(t, want, dense(t, l))
		require.Error(t, l.SplitGroups(5))
	}
}

// AutoRound's negative scales become positive ones with the same values.
func TestNegativeScales(t *testing.T) {
	l := randomLinear(newRand(5), Scheme{Bits: 4, GroupSize: 32, Sym: true}, 32, 64, tensor.BF16)
	for i := range l.Scales {
		if i%3 == 0 {
			l.Scales[i] = -l.Scales[i]
		}
	}
	want := dense(t, l)
	g, err := Convert(l, &gptq)
	require.NoError(t, err)
	require.True(t, g.Sym)
	require.Equal(t, want, dense(t, g))
	a, err := Convert(l, &awq)
	require.NoError(t, err)
	require.Equal(t, want, dense(t, a))
	for i, s := range a.Scales {
		require.Positive(t, s)
		require.Equal(t, l.Scales[i] < 0, a.Zeros[i] == 7)
	}
	require.Equal(t, tensor.F16, a.ScaleType)
	require.Less(t, l.Scales[0], float32(0), "the source stays as it was")
}

func dense(t *testing.T, l *Linear) []float32 {
	t.Helper()
	w := make([]float32, l.Out*l.In)
	require.NoError(t, l.Dequantize(w, 0, l.Out))
	for i := range w {
		w[i] += 0 // no minus zero
	}
	return w
}

func TestDequantizeRows(t *testing.T) {
	l := randomLinear(newRand(6), Scheme{Bits: 3, GroupSize: 32}, 32, 64, tensor.F16)
	want := dense(t, l)
	part := make([]float32, 3*64)
	require.NoError(t, l.Dequantize(part, 5, 3))
	require.Equal(t, want[5*64:8*64], part)
	require.Error(t, l.Dequantize(part, 30, 3))
	require.Error(t, l.Dequantize(part[:5], 0, 3))
	l.GIdx = make([]int32, 64)
	for k := range l.GIdx {
		l.GIdx[k] = int32(k / 32)
	}
	require.Equal(t, want, dense(t, l))
}

// What a layout cannot hold is refused with the reason, never clamped.
func TestPackRefuses(t *testing.T) {
	base := func() *Linear {
		return randomLinear(newRand(7), Scheme{Bits: 4, GroupSize: 32}, 32, 64, tensor.F16)
	}
	inf := float32(1e30)
	inf *= inf
	tests := []struct {
		name   string
		layout Layout
		spoil  func(*Linear)
		want   string
	}{
		{"zero point 0 in v1", gptq, func(l *Linear) { l.Zeros[3] = 0 }, "gptq_v2"},
		{"zero point 16", awq, func(l *Linear) { l.Zeros[3] = 16 }, "does not fit"},
		{"fractional zero point", awq, func(l *Linear) { l.Zeros[3] = 1.5 }, "does not fit"},
		{"code 16", awq, func(l *Linear) { l.Codes[70] = 16 }, "code 16 of row 1"},
		{"zero scale", compressedTensors, func(l *Linear) { l.Scales[1] = 0 }, "scale of row 0, group 1"},
		{"infinite scale", gptqV2, func(l *Linear) { l.Scales[1] = inf }, "scale of row 0, group 1"},
		{"scale between two halves", awq, func(l *Linear) { l.Scales[1] = 0.1 }, "not exact in F16"},
		{"asymmetric called symmetric", compressedTensors, func(l *Linear) { l.Sym = true; l.Zeros[0] = 3 }, "symmetric"},
		{"missing codes", gptq, func(l *Linear) { l.Codes = l.Codes[1:] }, "codes"},
		{"group index out of range", gptq, func(l *Linear) { l.GIdx = make([]int32, 64); l.GIdx[9] = 2 }, "group 2 of 2"},
		{"8 bits", awq, func(l *Linear) { l.Bits = 8 }, "8 bits"},
		{"ragged group", compressedTensors, func(l *Linear) { l.GroupSize = 48 }, "32, 64 would fit"},
	}
	for _, tt := range tests {
		l := base()
		tt.spoil(l)
		_, err := tryPack(tt.layout, l)
		require.ErrorContains(t, err, tt.want, tt.name)
		require.Error(t, Validate(l, &tt.layout), tt.name)
	}
	require.NoError(t, Validate(base(), &gptq))
}

func TestSymmetricQuirks(t *testing.T) {
	l := randomLinear(newRand(8), Scheme{Bits: 4, GroupSize: 32, Sym: true}, 32, 64, tensor.F16)
	// Files exist that announce version 1 and store eights.
	files := packed(t, gptqV2, l)
	back, err := gptq.Unpack(l.Scheme, 32, 64, files.source("m"))
	require.NoError(t, err)
	require.Equal(t, dense(t, l), dense(t, back))
	require.Len(t, back.Notes, 1)
	require.Contains(t, back.Notes[0], "other checkpoint_format")

	copy(files["m.qzeros"].data, []byte{0x12, 0x34})
	back, err = gptqV2.Unpack(l.Scheme, 32, 64, files.source("m"))
	require.NoError(t, err)
	require.Equal(t, dense(t, l), dense(t, back))
	require.Len(t, back.Notes, 1)
	require.Contains(t, back.Notes[0], "4 of 64")

	// Version 1 stores zero point 0 as all ones; the sum wraps inside the field.
	asym := l.Scheme
	asym.Sym = false
	copy(files["m.qzeros"].data, []byte{0xff})
	back, err = gptq.Unpack(asym, 32, 64, files.source("m"))
	require.NoError(t, err)
	require.Equal(t, float32(0), back.Zeros[0])
}

func TestTensorParallel(t *testing.T) {
	s := Scheme{Grid: "int", Bits: 4, GroupSize: 128}
	require.Equal(t, []int{1, 2, 4, 8}, TensorParallel(&awq, s, 4096, 4096, true))
	require.Equal(t, []int{1, 2}, TensorParallel(&awq, s, 256, 256, true))
	require.Equal(t, []int{1, 2, 4}, TensorParallel(&gptq, s, 128, 256, false))
}

func TestCheckFused(t *testing.T) {
	a, b := Scheme{Grid: "int", Bits: 4}, Scheme{Grid: "int", Bits: 8}
	all := func(string) bool { return true }
	full := map[string]Scheme{"l.0.q_proj": a, "l.0.k_proj": a, "l.0.v_proj": a, "l.0.down_proj": b}
	require.NoError(t, CheckFused(full, all))
	full["l.0.v_proj"] = b
	require.ErrorContains(t, CheckFused(full, all), "same scheme")
	delete(full, "l.0.v_proj")
	require.ErrorContains(t, CheckFused(full, all), "qkv_proj")
	require.NoError(t, CheckFused(full, func(m string) bool { return m != "l.0.v_proj" }))
}
