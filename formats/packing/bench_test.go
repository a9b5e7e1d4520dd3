package packing

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/tensor"
)

// BenchmarkLayouts packs and unpacks a weight of 2048 × 2048 in every integer layout.
func BenchmarkLayouts(b *testing.B) {
	l := randomLinear(newRand(70), Scheme{Bits: 4, GroupSize: 128}, 2048, 2048, tensor.F16)
	for _, layout := range []Layout{awq, gptq, compressedTensors} {
		files, err := tryPack(layout, l)
		require.NoError(b, err)
		b.Run(layout.Name+"/pack", func(b *testing.B) {
			b.SetBytes(int64(len(l.Codes)))
			for b.Loop() {
				require.NoError(b, layout.Pack(l, files.source("m")))
			}
		})
		b.Run(layout.Name+"/unpack", func(b *testing.B) {
			b.SetBytes(int64(len(l.Codes)))
			for b.Loop() {
				_, err := layout.Unpack(l.Scheme, l.Out, l.In, files.source("m"))
				require.NoError(b, err)
			}
		})
	}
	w := make([]float32, 2048*2048)
	b.Run("dequantize", func(b *testing.B) {
		b.SetBytes(int64(len(l.Codes)))
		for b.Loop() {
			require.NoError(b, l.Dequantize(w, 0, l.Out))
		}
	})
}
