//go:build !noasm

package kernel

// available lists the kernel sets that this processor and operating system support, fastest first.
func available() []*set {
	sets := []*set{generic}
	const (
		fma, osxsave, avx, f16c = 1 << 12, 1 << 27, 1 << 28, 1 << 29         // leaf 1, ECX
		avx2, f, dq, bw, vl     = 1 << 5, 1 << 16, 1 << 17, 1 << 30, 1 << 31 // leaf 7, EBX
		ymm, zmm                = 0x06, 0xe6                                 // XCR0
	)
	top, _, _, _ := cpuid(0, 0)
	if top < 7 {
		return sets
	}
	_, _, c1, _ := cpuid(1, 0)
	_, b7, _, _ := cpuid(7, 0)
	has := func(reg, bits uint32) bool { return reg&bits == bits }
	if !has(c1, fma|osxsave|avx|f16c) || !has(b7, avx2) || !has(xgetbv(), ymm) {
		return sets
	}
	sets = append([]*set{setAVX2}, sets...)
	if has(b7, f|dq|bw|vl) && has(xgetbv(), zmm) {
		sets = append([]*set{setAVX512}, sets...)
	}
	return sets
}

var setAVX512 = &set{
	name: "avx512",
	f32: kernels[float32]{
		mr: 14, nr: 32, aStride: 16, mc: 12,
		tiles: []tileFunc[float32]{
			tileF32AVX512x1, tileF32AVX512x2, tileF32AVX512x3, tileF32AVX512x4, tileF32AVX512x5, tileF32AVX512x6, tileF32AVX512x7,
			tileF32AVX512x8, tileF32AVX512x9, tileF32AVX512x10, tileF32AVX512x11, tileF32AVX512x12, tileF32AVX512x13, tileF32AVX512x14,
		},
		vector: 64, group: 16,
		transpose: [4]packT[float32]{F32: transposeF32AVX512, BF16: transposeBF16AVX512, F16: transposeF16AVX512},
		copyA:     copyF32AVX512v1,
		copyB:     [4]copyFunc[float32]{F32: copyF32AVX512v2, BF16: copyBF16AVX512v2, F16: copyF16AVX512v2},
		tileWide:  tileF32toF64AVX512,
	},
	f64: kernels[float64]{
		mr: 14, nr: 16, aStride: 16, mc: 6,
		tiles: []tileFunc[float64]{
			tileF64AVX512x1, tileF64AVX512x2, tileF64AVX512x3, tileF64AVX512x4, tileF64AVX512x5, tileF64AVX512x6, tileF64AVX512x7,
			tileF64AVX512x8, tileF64AVX512x9, tileF64AVX512x10, tileF64AVX512x11, tileF64AVX512x12, tileF64AVX512x13, tileF64AVX512x14,
		},
		vector: 64, group: 8,
		transpose: [4]packT[float64]{kindF64: transposeF64AVX512},
		copyA:     copyF64AVX512v2,
		copyB:     [4]copyFunc[float64]{kindF64: copyF64AVX512v2},
	},
	vec:    vectorsAVX2,
	skinny: skinny{skinnyAVX2x4, skinnyAVX2x8, skinnyAVX512x16},
}

var setAVX2 = &set{
	name: "avx2",
	f32: kernels[float32]{
		mr: 6, nr: 16, aStride: 8, mc: 28,
		tiles:  []tileFunc[float32]{tileF32AVX2x1, tileF32AVX2x2, tileF32AVX2x3, tileF32AVX2x4, tileF32AVX2x5, tileF32AVX2x6},
		vector: 32, group: 8,
		transpose: [4]packT[float32]{F32: transposeF32AVX2, BF16: transposeBF16AVX2, F16: transposeF16AVX2},
		copyA:     copyF32AVX2v1,
		copyB:     [4]copyFunc[float32]{F32: copyF32AVX2v2, BF16: copyBF16AVX2v2, F16: copyF16AVX2v2},
		tileWide:  tileF32toF64AVX2,
	},
	f64: kernels[float64]{
		mr: 6, nr: 8, aStride: 8, mc: 14,
		tiles:  []tileFunc[float64]{tileF64AVX2x1, tileF64AVX2x2, tileF64AVX2x3, tileF64AVX2x4, tileF64AVX2x5, tileF64AVX2x6},
		vector: 32, group: 4,
		transpose: [4]packT[float64]{kindF64: transposeF64AVX2},
		copyA:     copyF64AVX2v2,
		copyB:     [4]copyFunc[float64]{kindF64: copyF64AVX2v2},
	},
	vec:    vectorsAVX2,
	skinny: skinny{by4: skinnyAVX2x4, by8: skinnyAVX2x8},
}

var vectorsAVX2 = &vectors{
	exp: expAVX2, expSum: expSumAVX2, siluMul: siluMulAVX2,
	scale: scaleAVX2, addScaled: addScaledAVX2, addScaledRows: addScaledRowsAVX2, scaleMul: scaleMulAVX2,
	max: maxAVX2, sum: sumAVX2, sumSq: sumSqAVX2,
	dot64: dot64AVX2, sqDiff: sqDiffAVX2, colAbsSum: colAbsSumAVX2, colSumSq: colSumSqAVX2,
	widen:      [3]func(*float32, *byte, int){widenF32AVX2, widenBF16AVX2, widenF16AVX2},
	narrowBF16: narrowBF16AVX2, narrowF16: narrowF16AVX2,
}
