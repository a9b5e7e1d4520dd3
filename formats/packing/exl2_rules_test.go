package packing

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// Whatever kernels rely on without checking is refused before anything is written.
func TestEXL2Check(t *testing.T) {
	ok := Scheme{Grid: "exl2", Mix: "4:32 2:32"}
	require.NoError(t, exl2.Check(ok, 5, 64))
	tests := []struct {
		s       Scheme
		out, in int
		want    string
	}{
		{Scheme{Grid: "int", Bits: 4, GroupSize: 32}, 32, 64, "method exl2"},
		{Scheme{Grid: "exl2"}, 32, 64, "does not say"},
		{ok, 0, 64, "outside"},
		{ok, 1 << 29, 64, "outside"},
		{ok, 32, 72, "72 input columns are not a multiple of 32"},
		{ok, 32, 65536, "65535"},
		{Scheme{Grid: "exl2", Mix: "2:32 4:32"}, 32, 64, "falling"},
		{Scheme{Grid: "exl2", Mix: "7:32 4:32"}, 32, 64, "8, 6, 5, 4, 3, 2"},
		{Scheme{Grid: "exl2", Mix: "4:48 4:16"}, 32, 64, "multiple of 32; 64 would do"},
		{Scheme{Grid: "exl2", Mix: "4:0 4:64"}, 32, 64, "0 rows"},
		{Scheme{Grid: "exl2", Mix: "4:32"}, 32, 64, "cover 32 rows of 64"},
		{Scheme{Grid: "exl2", Mix: "4:32*3"}, 32, 64, "more than"},
		{Scheme{Grid: "exl2", Mix: "4:32 4:32"}, 32, 64, `"4:32*2"`},
		{Scheme{Grid: "exl2", Mix: "4:32*60000"}, 32, 64, "no run"},
		{Scheme{Grid: "exl2", Mix: "4:32*0"}, 32, 64, "written as"},
		{Scheme{Grid: "exl2", Mix: "4:32 "}, 32, 64, "no run"},
		{Scheme{Grid: "exl2", Mix: "4-32"}, 32, 64, "no run"},
	}
	for _, tt := range tests {
		require.ErrorContains(t, exl2.Check(tt.s, tt.out, tt.in), tt.want, "%+v", tt.s)
	}
	require.Nil(t, exl2.Plan("m", Scheme{Grid: "exl2"}, 32, 64))
}

func TestEXL2RefusesToPack(t *testing.T) {
	tests := map[string]func(l *Linear){
		"does not fit 3 bits": func(l *Linear) {
			for k, g := range l.EXL2.groupOf() {
				if l.EXL2.Groups[g].Bits == 3 {
					l.Codes[k] = 8
				}
			}
		},
		"does not fit 4 bits": func(l *Linear) { l.EXL2.Scale[3] = 16 },
		"overflow":            func(l *Linear) { l.EXL2.Max[0] = 0x7000 },
		"taken":               func(l *Linear) { l.EXL2.Row[0] = l.EXL2.Row[1] },
		"outside of":          func(l *Linear) { l.EXL2.Row[0] = -1 },
		"a permutation of":    func(l *Linear) { l.EXL2.Row = l.EXL2.Row[1:] },
		"codes for":           func(l *Linear) { l.Codes = l.Codes[1:] },
		"maxima for":          func(l *Linear) { l.EXL2.Max = l.EXL2.Max[1:] },
		"its scheme":          func(l *Linear) { l.Mix = "4:32*4" },
		"without groups":      func(l *Linear) { l.EXL2 = nil },
	}
	for want, spoil := range tests {
		l := randomEXL2(t, newRand(23), "6:32 4:32 3:64", 33)
		require.NoError(t, Validate(l, &exl2))
		spoil(l)
		_, err := tryPack(exl2, l)
		require.ErrorContains(t, err, want)
	}
	l := randomEXL2(t, newRand(24), "4:64", 32)
	for _, other := range []Layout{awq, gptq, compressedTensors} {
		_, err := Convert(l, &other)
		require.ErrorIs(t, err, safeio.ErrUnsupported, other.Name)
	}
	same, err := Convert(l, &exl2)
	require.NoError(t, err)
	require.Equal(t, l, same)
	_, err = Convert(randomLinear(newRand(25), Scheme{Bits: 4, GroupSize: 32}, 32, 64, tensor.F16), &exl2)
	require.ErrorIs(t, err, safeio.ErrUnsupported)
}

// Files that no writer makes are refused with a reason and without a panic.
func TestEXL2HostileFiles(t *testing.T) {
	put := func(name string, at int, v uint16) func(stored) {
		return func(s stored) { binary.LittleEndian.PutUint16(s["m."+name].data[at:], v) }
	}
	tests := map[string]func(stored){
		"begins at word row 1": put("q_groups", 2, 1),
		"word rows":            put("q_groups", 6, 0x8000),
		"of 7 bits":            put("q_groups", 0, 7),
		"q_groups says":        put("q_groups", 10, 14),
		"falling":              put("q_groups", 4, 8),
		"is NaN":               put("q_scale_max", 2, 0x7e00),
		"is +Inf":              put("q_scale_max", 0, 0x7c00),
		"taken":                put("q_invperm", 8, 0xffff),
	}
	for want, spoil := range tests {
		l := randomEXL2(t, newRand(26), "6:32 4:32 4:64", 32)
		files := packed(t, exl2, l)
		spoil(files)
		_, err := exl2.Unpack(l.Scheme, l.Out, l.In, files.source("m"))
		require.ErrorIs(t, err, safeio.ErrCorrupt, want)
		require.ErrorContains(t, err, want)
	}
	l := randomEXL2(t, newRand(27), "4:64", 32)
	for suffix := range map[string]bool{"q_weight": true, "q_scale": true, "q_scale_max": true, "q_groups": true, "q_invperm": true} {
		files := packed(t, exl2, l)
		e := files["m."+suffix]
		e.data = e.data[:len(e.data)-1]
		files["m."+suffix] = e
		_, err := exl2.Unpack(l.Scheme, l.Out, l.In, files.source("m"))
		require.ErrorIs(t, err, safeio.ErrCorrupt)
		delete(files, "m."+suffix)
		_, err = exl2.Unpack(l.Scheme, l.Out, l.In, files.source("m"))
		require.ErrorContains(t, err, "missing")
		_, ok, err := Detect(nil, files.module("m"))
		require.True(t, err != nil || !ok || suffix == "q_scale_max")
	}
	files := packed(t, exl2, l)
	m := files.module("m")
	m.Read = nil
	_, _, err := Detect(nil, m)
	require.ErrorContains(t, err, "q_groups")
	// More outputs than the model has, with something in them.
	l = randomEXL2(t, newRand(28), "4:64", 64)
	back, err := exl2.Unpack(l.Scheme, 40, l.In, packed(t, exl2, l).source("m"))
	require.NoError(t, err)
	require.Contains(t, back.Notes[0], "outputs 40 … 63")
}

func TestEXL2Config(t *testing.T) {
	o := ConfigOptions{EXL2: EXL2Meta{Bits: 4, HeadBits: 6, Rows: 115, Length: 2048}}
	e, err := QuantizationConfig(&exl2, o)
	require.NoError(t, err)
	require.Equal(t, `{"quant_method":"exl2","version":"0.3.2","bits":4.0,"head_bits":6,"calibration":{"rows":115,"length":2048,"dataset":"(default)"}}`, string(e.Value))
	require.Empty(t, e.SideName)
	o.EXL2.Bits, o.EXL2.Dataset = 3.125, "my.parquet"
	e, err = QuantizationConfig(&exl2, o)
	require.NoError(t, err)
	require.Contains(t, string(e.Value), `"bits":3.125,`)
	require.Contains(t, string(e.Value), `"dataset":"my.parquet"`)
	require.Equal(t, "exl2", parseConfig(t, string(e.Value)).Method)
	require.Equal(t, "output.safetensors", EXL2FileName(1, 1))
	require.Equal(t, "output-00002-of-00012.safetensors", EXL2FileName(2, 12))
}

// FuzzEXL2 gives Detect and Unpack any groups, permutation and bytes: no panic, and what is accepted packs into the same
// bytes again.
func FuzzEXL2(f *testing.F) {
	f.Add([]byte{4, 0, 0, 0, 3, 0, 4, 0}, []byte{1, 2, 3}, uint16(64), uint8(33), int32(7))
	f.Add([]byte{8, 0, 0, 0, 2, 0, 8, 0}, []byte{0xff}, uint16(64), uint8(32), int32(10))
	f.Add([]byte{2, 0, 0, 0x80}, []byte{}, uint16(65504), uint8(1), int32(-1))
	f.Fuzz(func(t *testing.T, groups, data []byte, in uint16, out uint8, wordRows int32) {
		if len(data) == 0 || in > 512 {
			data = []byte{0}
		}
		n := exl2Pad(int(out))
		fill := func(size int) []byte { return bytes.Repeat(data, size/len(data)+1)[:size] }
		s := stored{}
		add := func(name string, d tensor.DType, b []byte, shape ...int64) {
			e := s["m."+name]
			e.Info, e.data = tensor.Info{Name: "m." + name, DType: d, Shape: shape}, b
			s["m."+name] = e
		}
		w := min(int64(wordRows), 1<<12)
		add("q_weight", tensor.I32, fill(max(0, int(4*w)*n)), w, int64(n))
		add("q_groups", tensor.I16, groups, int64(len(groups)/2))
		add("q_scale", tensor.I32, fill(len(groups)/4*n/2), int64(len(groups)/4), int64(n/8))
		add("q_scale_max", tensor.F16, fill(len(groups)/4*2), int64(len(groups)/4))
		perm := make([]byte, 4*int(in))
		for k := range int(in) {
			binary.LittleEndian.PutUint32(perm[4*k:], uint32(int(in)-1-k))
		}
		copy(perm, data[:min(len(data), len(perm))/3])
		add("q_invperm", tensor.I32, perm, int64(in))
		found, ok, err := Detect(nil, s.module("m"))
		if err != nil || !ok {
			return
		}
		l, err := found.Unpack(s.source("m"))
		if err != nil {
			return
		}
		if err := l.Dequantize(make([]float32, l.In), 0, 1); err != nil {
			t.Fatal(err)
		}
		if Validate(l, &exl2) != nil {
			return // values that overflow
		}
		again, err := tryPack(exl2, l)
		if err != nil {
			t.Fatal(err)
		}
		for name, e := range s {
			if !bytes.Equal(e.data, again[name].data) {
				t.Fatalf("%s differs", name)
			}
		}
	})
}
