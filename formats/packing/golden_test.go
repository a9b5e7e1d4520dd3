package packing

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/tensor"
)

// iota8 is a weight whose codes count modulo 2^bits along the rows (down the outputs) or along the columns.
func countingLinear(bits, out, in int, alongRows bool, zero float32, sym bool) *Linear {
	l := newLinear(Scheme{Grid: "int", Bits: bits, GroupSize: -1, Sym: sym, ScaleType: tensor.F16}, out, in)
	for n := range out {
		for k := range in {
			i := k
			if alongRows {
				i = n
			}
			l.Codes[n*in+k] = uint8(i % (1 << bits))
		}
		l.Scales[n], l.Zeros[n] = 1, zero
	}
	return l
}

func TestAWQGoldenWord(t *testing.T) {
	l := countingLinear(4, 8, 2, true, 3, false)
	s := packed(t, awq, l)
	require.Equal(t, []uint32{0x75316420, 0x75316420}, words(s["m.qweight"].data))
	require.Equal(t, []uint32{0x33333333}, words(s["m.qzeros"].data))
}

func TestGPTQGoldenWords(t *testing.T) {
	tests := []struct {
		bits       int
		codes      []uint32
		v1, v2     []uint32 // zero points of a symmetric weight, repeated over 32 outputs
		firstWords int
	}{
		{2, []uint32{0xE4E4E4E4}, []uint32{0x55555555}, []uint32{0xAAAAAAAA}, 1},
		{3, []uint32{0x88FAC688, 0xC688FAC6, 0xFAC688FA}, []uint32{0xDB6DB6DB, 0xB6DB6DB6, 0x6DB6DB6D}, []uint32{0x24924924, 0x49249249, 0x92492492}, 3},
		{4, []uint32{0x76543210}, []uint32{0x77777777}, []uint32{0x88888888}, 1},
		{8, []uint32{0x03020100}, []uint32{0x7F7F7F7F}, []uint32{0x80808080}, 1},
	}
	for _, tt := range tests {
		l := countingLinear(tt.bits, 32, 32, false, float32(int(1)<<(tt.bits-1)), true)
		for _, layout := range []struct {
			Layout
			zeros []uint32
		}{{gptq, tt.v1}, {gptqV2, tt.v2}} {
			s := packed(t, layout.Layout, l)
			w := words(s["m.qweight"].data)
			for i, want := range tt.codes {
				require.Equal(t, want, w[i*32], "%s %d bits word %d", layout.Name, tt.bits, i)
				require.Equal(t, want, w[i*32+31])
			}
			require.Equal(t, layout.zeros, words(s["m.qzeros"].data)[:len(layout.zeros)], "%s %d bits", layout.Name, tt.bits)
		}
	}
}

func TestCompressedTensorsGoldenWords(t *testing.T) {
	l := countingLinear(4, 8, 8, false, 9, false)
	l.ScaleType = tensor.BF16
	s := packed(t, compressedTensors, l)
	require.Equal(t, uint32(0x76543210), words(s["m.weight_packed"].data)[0])
	// Zero points run down the rows: eight outputs make one word, one word per group.
	require.Equal(t, []uint32{0x99999999}, words(s["m.weight_zero_point"].data))
	require.Equal(t, []int64{1, 1}, s["m.weight_zero_point"].Shape)
	require.Equal(t, []uint32{8, 0, 8, 0}, words(s["m.weight_shape"].data))
}

// The readers below are the rules of the specification written a second time, one weight at a time.

func awqCode(s stored, out, n, k int) uint32 {
	rev := [8]int{0, 4, 1, 5, 2, 6, 3, 7}
	return words(s["m.qweight"].data)[k*out/8+n/8] >> (4 * rev[n%8]) & 15
}

func gptqCode(s stored, bits, out, n, k int) uint32 {
	w := words(s["m.qweight"].data)
	at := k * bits
	v := uint64(w[at/32*out+n])
	if next := (at/32 + 1) * out; next+n < len(w) {
		v |= uint64(w[next+n]) << 32
	}
	return uint32(v>>(at%32)) & (1<<bits - 1)
}

func ctCode(s stored, bits, in, n, k int) uint32 {
	w := words(s["m.weight_packed"].data)
	row := w[n*streamWords(in, bits):]
	at := k * bits
	v := uint64(row[at/32])
	if at/32+1 < len(row) {
		v |= uint64(row[at/32+1]) << 32
	}
	return uint32(v>>(at%32)) & (1<<bits - 1)
}

func TestReferenceReaders(t *testing.T) {
	r := newRand(1)
	for _, bits := range []int{2, 3, 4, 8} {
		l := randomLinear(r, Scheme{Bits: bits, GroupSize: 32}, 64, 96, tensor.F16)
		g, ct := packed(t, gptqV2, l), packed(t, compressedTensors, l)
		var a stored
		if bits == 4 {
			a = packed(t, awq, l)
		}
		for n := range l.Out {
			for k := range l.In {
				want := uint32(l.Codes[n*l.In+k])
				require.Equal(t, want, gptqCode(g, bits, l.Out, n, k))
				require.Equal(t, want, ctCode(ct, bits, l.In, n, k))
				if bits == 4 {
					require.Equal(t, want, awqCode(a, l.Out, n, k))
				}
			}
		}
	}
}
