package ggml

import "testing"

// benchRows and benchColumns size the benchmark matrix. Throughput counts the weights as F16 input, two bytes each, as
// llama-quantize's figures do; MB/cpu-s is by processor time.
const benchRows, benchColumns = 64, 4096

func measure(b *testing.B, weights int, f func()) {
	b.SetBytes(int64(2 * weights))
	start := cpuTime()
	n := 0
	for b.Loop() {
		f()
		n++
	}
	if spent := cpuTime() - start; spent > 0 {
		b.ReportMetric(float64(2*weights)*float64(n)/1e6/spent.Seconds(), "MB/cpu-s")
	}
}

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
				measure(b, len(x), func() {
					if err := ty.EncodeRows(dst, x, benchRows, benchColumns, weights); err != nil {
						b.Fatal(err)
					}
				})
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
		b.Run(ty.Name, func(b *testing.B) { measure(b, len(x), func() { ty.DecodeRow(x, src) }) })
	}
}
