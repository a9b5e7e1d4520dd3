//go:build !noasm

package kernel

import (
	"math"
	"math/bits"
)

// available lists the kernel sets that this processor and operating system support, fastest first.
func available() []*set {
	sets := []*set{generic}
	const (
		fma, osxsave, avx, f16c = 1 << 12, 1 << 27, 1 << 28, 1 << 29         // leaf 1, ECX
		avx2, f, dq, bw, vl     = 1 << 5, 1 << 16, 1 << 17, 1 << 30, 1 << 31 // leaf 7, EBX
		bf16                    = 1 << 5                                     // leaf 7, subleaf 1, EAX
		ymm, zmm                = 0x06, 0xe6                                 // XCR0
	)
	top, _, _, _ := cpuid(0, 0)
	if top < 7 {
		return sets
	}
	_, _, c1, _ := cpuid(1, 0)
	sub, b7, _, _ := cpuid(7, 0)
	has := func(reg, bits uint32) bool { return reg&bits == bits }
	if !has(c1, fma|osxsave|avx|f16c) || !has(b7, avx2) || !has(xgetbv(), ymm) {
		return sets
	}
	sets = append([]*set{setAVX2}, sets...)
	if has(b7, f|dq|bw|vl) && has(xgetbv(), zmm) {
		sets = append([]*set{setAVX512}, sets...)
		if a, _, _, _ := cpuid(7, min(sub, 1)); sub >= 1 && has(a, bf16) && sameWords(&setAVX512BF16.bf16, &setAVX512.bf16) {
			sets = append([]*set{setAVX512BF16}, sets...)
		}
	}
	return sets
}

// sameWords reports whether whole tiles of x and y, of one shape, give the same bits: for words whose products lie around 1,
// where the order of sums shows, and around the smallest normal number, where flushing does. It takes a few microseconds and
// keeps an instruction that works differently on some processor from changing results.
func sameWords(x, y *kernels[float32]) bool {
	const k = 64
	a, b := make([]float32, k*x.aStride), make([]float32, k*x.nr)
	cx, cy := make([]float32, x.mr*x.nr), make([]float32, x.mr*x.nr)
	seed := uint32(1)
	for _, exponents := range []uint32{0x3e003e00, 0x1e001e00} { // of both halves, with 8 successors
		for _, panel := range [][]float32{a, b} {
			for i := range panel {
				seed = seed*1664525 + 1013904223
				panel[i] = math.Float32frombits(bits.RotateLeft32(seed, 13)&0x83ff83ff | exponents)
			}
		}
		for n := 1; n <= k; n += k - 1 { // one step and many
			x.tiles[x.mr-1](n, &a[0], &b[0], &cx[0], x.nr, false)
			y.tiles[y.mr-1](n, &a[0], &b[0], &cy[0], y.nr, false)
			for i, v := range cx {
				if math.Float32bits(v) != math.Float32bits(cy[i]) {
					return false
				}
			}
		}
	}
	return true
}

// forWords is k with tiles that take a packed element for two bfloat16 numbers; packing moves them as they are.
func (k kernels[T]) forWords(tiles []tileFunc[T], wide tileWideFunc[T]) kernels[T] {
	k.tiles, k.tileWide = tiles, wide
	return k
}

// setAVX512BF16 is setAVX512 where bfloat16 numbers have an instruction.
var setAVX512BF16 = &set{
	name:   "avx512-bf16",
	family: "avx512",
	f32:    f32AVX512,
	bf16:   f32AVX512.forWords(tilesBF16AVX512, tileBF16toF64AVX512),
	f64:    f64AVX512,
	vec:    vectorsAVX2,
	skinny: skinnyAVX512,
}

var setAVX512 = &set{
	name:   "avx512",
	family: "avx512",
	f32:    f32AVX512,
	bf16:   f32AVX512.forWords(tilesSplitAVX512, tileSplitBF16toF64AVX512),
	f64:    f64AVX512,
	vec:    vectorsAVX2,
	skinny: skinnyAVX512,
}

var f32AVX512 = kernels[float32]{
	mr: 14, nr: 32, aStride: 16, mc: 12,
	tiles: []tileFunc[float32]{
		tileF32AVX512x1, tileF32AVX512x2, tileF32AVX512x3, tileF32AVX512x4, tileF32AVX512x5, tileF32AVX512x6, tileF32AVX512x7,
		tileF32AVX512x8, tileF32AVX512x9, tileF32AVX512x10, tileF32AVX512x11, tileF32AVX512x12, tileF32AVX512x13, tileF32AVX512x14,
	},
	vector: 64, group: 16,
	transpose: [kinds]packT[float32]{F32: transposeF32AVX512, BF16: transposeBF16AVX512, F16: transposeF16AVX512, Pairs: transposeF32AVX512},
	copyA:     copyF32AVX512v1,
	copyB:     [kinds]copyFunc[float32]{F32: copyF32AVX512v2, BF16: copyBF16AVX512v2, F16: copyF16AVX512v2, Pairs: copyF32AVX512v2},
	tileWide:  tileF32toF64AVX512,
}

var f64AVX512 = kernels[float64]{
	mr: 14, nr: 16, aStride: 16, mc: 6,
	tiles: []tileFunc[float64]{
		tileF64AVX512x1, tileF64AVX512x2, tileF64AVX512x3, tileF64AVX512x4, tileF64AVX512x5, tileF64AVX512x6, tileF64AVX512x7,
		tileF64AVX512x8, tileF64AVX512x9, tileF64AVX512x10, tileF64AVX512x11, tileF64AVX512x12, tileF64AVX512x13, tileF64AVX512x14,
	},
	vector: 64, group: 8,
	transpose: [kinds]packT[float64]{kindF64: transposeF64AVX512},
	copyA:     copyF64AVX512v2,
	copyB:     [kinds]copyFunc[float64]{kindF64: copyF64AVX512v2},
}

var skinnyAVX512 = skinny{skinnyAVX2x4, skinnyAVX2x8, skinnyAVX512x16}

var setAVX2 = &set{
	name:   "avx2",
	family: "avx2",
	f32:    f32AVX2,
	bf16:   f32AVX2.forWords(tilesSplitAVX2, tileSplitBF16toF64AVX2),
	f64: kernels[float64]{
		mr: 6, nr: 8, aStride: 8, mc: 14,
		tiles:  []tileFunc[float64]{tileF64AVX2x1, tileF64AVX2x2, tileF64AVX2x3, tileF64AVX2x4, tileF64AVX2x5, tileF64AVX2x6},
		vector: 32, group: 4,
		transpose: [kinds]packT[float64]{kindF64: transposeF64AVX2},
		copyA:     copyF64AVX2v2,
		copyB:     [kinds]copyFunc[float64]{kindF64: copyF64AVX2v2},
	},
	vec:    vectorsAVX2,
	skinny: skinny{by4: skinnyAVX2x4, by8: skinnyAVX2x8},
}

var f32AVX2 = kernels[float32]{
	mr: 6, nr: 16, aStride: 8, mc: 28,
	tiles:  []tileFunc[float32]{tileF32AVX2x1, tileF32AVX2x2, tileF32AVX2x3, tileF32AVX2x4, tileF32AVX2x5, tileF32AVX2x6},
	vector: 32, group: 8,
	transpose: [kinds]packT[float32]{F32: transposeF32AVX2, BF16: transposeBF16AVX2, F16: transposeF16AVX2, Pairs: transposeF32AVX2},
	copyA:     copyF32AVX2v1,
	copyB:     [kinds]copyFunc[float32]{F32: copyF32AVX2v2, BF16: copyBF16AVX2v2, F16: copyF16AVX2v2, Pairs: copyF32AVX2v2},
	tileWide:  tileF32toF64AVX2,
}

// Tiles of words of two bfloat16 numbers: by the instruction for them, or by fused multiply-adds of both halves.
var tilesBF16AVX512 = []tileFunc[float32]{
	tileBF16AVX512x1, tileBF16AVX512x2, tileBF16AVX512x3, tileBF16AVX512x4, tileBF16AVX512x5, tileBF16AVX512x6, tileBF16AVX512x7,
	tileBF16AVX512x8, tileBF16AVX512x9, tileBF16AVX512x10, tileBF16AVX512x11, tileBF16AVX512x12, tileBF16AVX512x13, tileBF16AVX512x14,
}

var tilesSplitAVX512 = []tileFunc[float32]{
	tileSplitBF16AVX512x1, tileSplitBF16AVX512x2, tileSplitBF16AVX512x3, tileSplitBF16AVX512x4, tileSplitBF16AVX512x5, tileSplitBF16AVX512x6, tileSplitBF16AVX512x7,
	tileSplitBF16AVX512x8, tileSplitBF16AVX512x9, tileSplitBF16AVX512x10, tileSplitBF16AVX512x11, tileSplitBF16AVX512x12, tileSplitBF16AVX512x13, tileSplitBF16AVX512x14,
}

var tilesSplitAVX2 = []tileFunc[float32]{
	tileSplitBF16AVX2x1, tileSplitBF16AVX2x2, tileSplitBF16AVX2x3, tileSplitBF16AVX2x4, tileSplitBF16AVX2x5, tileSplitBF16AVX2x6,
}

var vectorsAVX2 = &vectors{
	exp: expAVX2, expSum: expSumAVX2, siluMul: siluMulAVX2,
	scale: scaleAVX2, addScaled: addScaledAVX2, addScaledRows: addScaledRowsAVX2, scaleMul: scaleMulAVX2,
	max: maxAVX2, sum: sumAVX2, sumSq: sumSqAVX2,
	dot64: dot64AVX2, sqDiff: sqDiffAVX2, colAbsSum: colAbsSumAVX2, colSumSq: colSumSqAVX2,
	widen:      [3]func(*float32, *byte, int){widenF32AVX2, widenBF16AVX2, widenF16AVX2},
	narrowBF16: narrowBF16AVX2, narrowF16: narrowF16AVX2, pairBF16: pairBF16AVX2,
}
