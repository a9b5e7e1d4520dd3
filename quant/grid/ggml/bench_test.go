package ggml

import "testing"

// benchRows and benchColumns size the benchmark matrix. Throughput counts the weights as F16 input, two bytes each, as
// llama-quantize's figures do.
const benchRows, benchColumns = 64, 4096

func BenchmarkEncode(b *testing.B) {
	x, im := gaussian(1, benchRows*benchColumns)
	im = im[:benchColumns]
	for _, ty := range Types() {
		if !ty.CanEncode() {
			continue
		}
		for _, weights := range [][]float32{nil, im} {
			name := ty.Name
			switch {
			case weights == nil && ty.NeedsImatrix, weights != nil && !ty.UsesImatrix:
				continue
			case weights != nil:
				name += "/imatrix"
			}
			size, _ := ty.RowBytes(benchColumns)
			dst := make([]byte, benchRows*size)
			b.Run(name, func(b *testing.B) {
				b.SetBytes(2 * benchRows * benchColumns)
				for b.Loop() {
					if err := ty.EncodeRows(dst, x, benchRows, benchColumns, weights); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	x, im := gaussian(1, benchColumns)
	for _, ty := range Types() {
		if !ty.CanEncode() {
			continue
		}
		src := encode(b, ty, x, 1, benchColumns, im)
		b.Run(ty.Name, func(b *testing.B) {
			b.SetBytes(2 * benchColumns)
			for b.Loop() {
				ty.DecodeRow(x, src)
			}
		})
	}
}
