package packing

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// randomEXL2 makes a weight with the groups of mix, in a random order of rows.
func randomEXL2(t testing.TB, r *rand.Rand, mix string, out int) *Linear {
	t.Helper()
	groups, err := ParseEXL2Mix(mix)
	require.NoError(t, err)
	in := 0
	for _, g := range groups {
		in += g.Rows
	}
	e := &EXL2{Groups: groups, Row: make([]int32, in), Max: make([]uint16, len(groups)), Scale: make([]uint8, len(groups)*out)}
	for k, row := range r.Perm(in) {
		e.Row[k] = int32(row)
	}
	for g := range e.Max {
		e.Max[g] = tensor.F32ToF16(float32(math.Exp2(-12 + 12*r.Float64())))
	}
	for i := range e.Scale {
		e.Scale[i] = uint8(r.IntN(16))
	}
	l := &Linear{Scheme: Scheme{Grid: "exl2", Mix: mix}, Out: out, In: in, Codes: make([]uint8, out*in), EXL2: e}
	groupOf := e.groupOf()
	for i := range l.Codes {
		l.Codes[i] = uint8(r.IntN(1 << groups[groupOf[i%in]].Bits))
	}
	return l
}

// exl2Reference decodes one weight from the stored tensors, written down from the format's description alone: no code is
// shared with the package but the conversion of halves.
func exl2Reference(s stored, in, n, k int) float32 {
	i32 := func(name string, i int) int { return int(binary.LittleEndian.Uint32(s["m."+name].data[4*i:])) }
	i16 := func(name string, i int) int { return int(binary.LittleEndian.Uint16(s["m."+name].data[2*i:])) }
	half := func(v float64) float64 { return float64(tensor.F16ToF32(tensor.F32ToF16(float32(v)))) }
	width, words := int(s["m.q_weight"].Shape[1]), int(s["m.q_weight"].Shape[0])
	groups := len(s["m.q_scale_max"].data) / 2
	row, first := i32("q_invperm", k), 0
	for g := range groups {
		bits, start, end := i16("q_groups", 2*g), i16("q_groups", 2*g+1), words
		if g+1 < groups {
			end = i16("q_groups", 2*g+3)
		}
		rows := (end - start) * 32 / bits
		if row >= first+rows {
			first += rows
			continue
		}
		code := 0
		for b := range bits {
			at := (row-first)*bits + b
			code |= i32("q_weight", (start+at/32)*width+n) >> (at % 32) & 1 << b
		}
		nibble := i32("q_scale", g*width/8+n/8) >> (4 * (n % 8)) & 15
		top := float64(tensor.F16ToF32(binary.LittleEndian.Uint16(s["m.q_scale_max"].data[2*g:])))
		scale := half(float64((nibble+1)*(nibble+1)) * half(top/256))
		return float32(half(float64(code-(1<<(bits-1))) * scale))
	}
	return float32(math.NaN())
}

var exl2Mixes = []string{
	"2:32", "3:64*2", "4:128 4:32", "5:32*3", "6:32 6:96", "8:64",
	"8:32 6:32 5:32 4:32 3:32 2:32", "6:32 3:64 2:64*3", "8:32 4:128*4 4:64", "4:32*2 3:128*3",
}

func TestEXL2RoundTrip(t *testing.T) {
	r := newRand(21)
	for i, mix := range exl2Mixes {
		out := []int{32, 64, 96, 33, 100, 1, 128, 31}[i%8]
		l := randomEXL2(t, r, mix, out)
		require.NoError(t, Validate(l, &exl2))
		files := packed(t, exl2, l)
		back, err := exl2.Unpack(l.Scheme, l.Out, l.In, files.source("m"))
		require.NoError(t, err)
		require.Equal(t, l, back, mix)

		got := dense(t, l)
		for n := range out {
			for k := range l.In {
				require.Equal(t, exl2Reference(files, l.In, n, k), got[n*l.In+k], "%s: output %d, input %d", mix, n, k)
			}
		}
		part := make([]float32, l.In)
		require.NoError(t, l.Dequantize(part, out-1, 1))
		require.Equal(t, got[(out-1)*l.In:], part)

		var bits int64
		for name, e := range files {
			if name != "m.q_groups" {
				bits += 8 * int64(len(e.data))
			}
		}
		bits += 8 * int64(len(files["m.q_groups"].data))
		require.Equal(t, bits, EXL2Bits(l.EXL2.Groups, l.Out, l.In), "the formula counts what is stored")

		f, ok, err := Detect(nil, files.module("m"))
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "exl2", f.Layout.Name)
		f, err = f.Cropped(out)
		require.NoError(t, err)
		again, err := f.Unpack(files.source("m"))
		require.NoError(t, err)
		require.Equal(t, l, again)
		_, err = f.Cropped(out + 32)
		require.ErrorIs(t, err, safeio.ErrCorrupt)
	}
}

// The words of codes (7·i + 3) mod 2^b, i = 0 … 31, in one column.
func TestEXL2Streams(t *testing.T) {
	want := map[int]string{
		2: "1b1b1b1b 1b1b1b1b",
		3: "53977053 70539770 97705397",
		4: "4d6f81a3 c5e7092b 4d6f81a3 c5e7092b",
		5: "4dfc4543 78245ba3 0753617d 4b276cf4 e55c7066",
		6: "9f611283 90bbd2d9 b2579740 8f201eb3 9cab91d5 71538703",
		8: "18110a03 342d261f 5049423b 6c655e57 88817a73 a49d968f c0b9b2ab dcd5cec7",
	}
	for bits, hex := range want {
		groups := []EXL2Group{{bits, 32}}
		l := &Linear{Scheme: Scheme{Grid: "exl2", Mix: EXL2Mix(groups)}, Out: 8, In: 32, Codes: make([]uint8, 8*32),
			EXL2: &EXL2{Groups: groups, Row: make([]int32, 32), Max: []uint16{0x3800}, Scale: []uint8{0, 1, 2, 3, 4, 7, 11, 15}}}
		for k := range 32 {
			l.EXL2.Row[k] = int32(k)
			for n := range 8 {
				l.Codes[n*32+k] = uint8((7*k + 3) % (1 << bits))
			}
		}
		files := packed(t, exl2, l)
		w := words(files["m.q_weight"].data)
		for i, h := range strings.Fields(hex) {
			require.Equal(t, h, hex8(w[32*i+5]), "%d bits, word %d", bits, i)
		}
		require.Equal(t, "fb743210", hex8(words(files["m.q_scale"].data)[0]))
		zero := uint32(0)
		for i := 0; i < 32; i += bits {
			zero |= 1 << (bits - 1) << i
		}
		if bits == 2 || bits == 4 || bits == 8 {
			require.Equal(t, zero, w[8], "outputs beyond the last hold the zero code")
		}
		require.Empty(t, mustUnpack(t, l, files).Notes)
	}
}

func hex8(w uint32) string {
	const digits = "0123456789abcdef"
	b := make([]byte, 8)
	for i := range b {
		b[7-i] = digits[w>>(4*i)&15]
	}
	return string(b)
}

func mustUnpack(t *testing.T, l *Linear, files stored) *Linear {
	t.Helper()
	back, err := exl2.Unpack(l.Scheme, l.Out, l.In, files.source("m"))
	require.NoError(t, err)
	return back
}

// Scales as the loader computes them, in half floats, small ones losing digits and vanishing.
func TestEXL2Scales(t *testing.T) {
	tests := []struct{ top, d, s1, s4, s16 uint16 }{
		{0x3800, 0x1800, 0x1800, 0x2800, 0x3800},
		{0x22cf, 0x0368, 0x0368, 0x12d0, 0x22d0},
		{0x0e64, 0x001a, 0x001a, 0x01a0, 0x0e80},
		{0x0150, 0x0001, 0x0001, 0x0010, 0x0100},
		{0x0075, 0, 0, 0, 0},
	}
	for _, tt := range tests {
		require.Equal(t, tt.d, tensor.F32ToF16(EXL2Scale(tt.top, 1)))
		for s, want := range map[int]uint16{1: tt.s1, 4: tt.s4, 16: tt.s16} {
			require.Equal(t, want, tensor.F32ToF16(EXL2Scale(tt.top, s)), "%04x s=%d", tt.top, s)
		}
	}
	require.Equal(t, float32(-1), EXL2Value(0, 2, 0.5))
	require.Equal(t, float32(63.5), EXL2Value(255, 8, 0.5))
}

// RoundHalf is RoundTo for every magnitude.
func TestRoundHalf(t *testing.T) {
	r := newRand(22)
	for h := range 0x7c00 {
		v := tensor.F16ToF32(uint16(h))
		next := tensor.F16ToF32(uint16(h + 1))
		for _, x := range []float32{v, v + (next-v)/2, v + (next-v)*r.Float32()} {
			require.Equal(t, RoundTo(tensor.F16, x), RoundHalf(x), "%v", x)
			require.Equal(t, RoundTo(tensor.F16, -x), RoundHalf(-x), "%v", -x)
		}
	}
	require.Equal(t, RoundTo(tensor.F16, 1e9), RoundHalf(1e9))
	require.Equal(t, float32(0), RoundHalf(1e-9))
}
