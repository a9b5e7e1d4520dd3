//go:build !noasm

package ggml

// kernelSets holds the vector kernels by the name that package kernel gives the instruction set.
var kernelSets = map[string]*kernels{
	"avx512": {
		transpose: transposeAVX512, transposeBytes: transposeBytesAVX512, squares: squaresAVX512, rowSum: rowSumAVX512, square: squareAVX512, weights: weightsAVX512,
		rootWeights: rootWeightsAVX512, requant: requantAVX512, asym: asymAVX512, asymQuad: asymQuadAVX512, sym: symAVX512, sym3: sym3AVX512, pos: posAVX512, iq4: iq4AVX512, iq4Codes: iq4CodesAVX512,
		signs: signsAVX512, roots: rootsAVX512, rowMax: rowMaxAVX512, rowPeak: rowPeakAVX512, squareAdd: squareAddAVX512, better: betterAVX512,
		sortRows: sortRowsAVX512, split32: split32AVX512, split16: split16AVX512,
		pairs:   wordKernels{levels2AVX512, nearest2AVX2, wordFit2AVX512},
		triples: wordKernels{levels3AVX512, nearest3AVX2, wordFit3AVX512},
		block: blockKernels{
			q80: blockQ80AVX512, q40: blockQ40AVX512, q50: blockQ50AVX512, q41: blockQ41AVX512, q51: blockQ51AVX512, peaks: blockPeaksAVX512,
			e2m1: blockE2M1AVX512, digits: blockDigitsAVX512, largest: largestAVX512,
			fromF16: fromF16AVX512, fromBF16: fromBF16AVX512, toF16: toF16AVX512, toBF16: toBF16AVX512,
		},
		signedScales: signedScalesAVX512, maxScales: maxScalesAVX512, scaleCodes: scaleCodesAVX512, pack: packers,
		decode: map[string]blockDecoder{
			"Q4_0": decodeQ40AVX512, "Q4_1": decodeQ41AVX512, "Q5_0": decodeQ50AVX512, "Q5_1": decodeQ51AVX512,
			"Q8_0": decodeQ80AVX512, "Q2_K": decodeQ2KAVX512, "Q3_K": decodeQ3KAVX512, "Q4_K": decodeQ4KAVX512,
			"Q5_K": decodeQ5KAVX512, "Q6_K": decodeQ6KAVX512, "IQ4_NL": decodeIQ4NLAVX512, "IQ4_XS": decodeIQ4XSAVX512,
			"MXFP4": decodeMXFP4AVX512, "NVFP4": decodeNVFP4AVX2, "TQ2_0": decodeTQ20AVX512, "Q2_0": decodeQ20AVX512,
			"Q1_0": decodeQ10AVX512,
		},
	},
	"avx2": {
		transpose: transposeAVX2, transposeBytes: transposeBytesAVX2, squares: squaresAVX2, rowSum: rowSumAVX2, square: squareAVX2, weights: weightsAVX2,
		rootWeights: rootWeightsAVX2, requant: requantAVX2, asym: asymAVX2, sym: symAVX2, sym3: sym3AVX2, pos: posAVX2, iq4: iq4AVX2, iq4Codes: iq4CodesAVX2,
		signs: signsAVX2, roots: rootsAVX2, rowMax: rowMaxAVX2, rowPeak: rowPeakAVX2, squareAdd: squareAddAVX2, better: betterAVX2,
		sortRows: sortRowsAVX2, split32: split32AVX2, split16: split16AVX2,
		pairs:   wordKernels{levels2AVX2, nearest2AVX2, wordFit2AVX2},
		triples: wordKernels{levels3AVX2, nearest3AVX2, wordFit3AVX2},
		block: blockKernels{
			q80: blockQ80AVX2, q40: blockQ40AVX2, q50: blockQ50AVX2, q41: blockQ41AVX2, q51: blockQ51AVX2, peaks: blockPeaksAVX2,
			e2m1: blockE2M1AVX2, digits: blockDigitsAVX2, largest: largestAVX2,
			fromF16: fromF16AVX2, fromBF16: fromBF16AVX2, toF16: toF16AVX2, toBF16: toBF16AVX2,
		},
		signedScales: signedScalesAVX2, maxScales: maxScalesAVX2, scaleCodes: scaleCodesAVX2, pack: packers,
		decode: map[string]blockDecoder{
			"Q4_0": decodeQ40AVX2, "Q4_1": decodeQ41AVX2, "Q5_0": decodeQ50AVX2, "Q5_1": decodeQ51AVX2, "Q8_0": decodeQ80AVX2,
			"Q2_K": decodeQ2KAVX2, "Q3_K": decodeQ3KAVX2, "Q4_K": decodeQ4KAVX2, "Q5_K": decodeQ5KAVX2, "Q6_K": decodeQ6KAVX2,
			"IQ4_NL": decodeIQ4NLAVX2, "IQ4_XS": decodeIQ4XSAVX2, "MXFP4": decodeMXFP4AVX2, "NVFP4": decodeNVFP4AVX2,
			"TQ2_0": decodeTQ20AVX2, "Q2_0": decodeQ20AVX2, "Q1_0": decodeQ10AVX2,
		},
	},
}

// packers serve both sets.
var packers = map[string]blockPacker{
	"Q2_K": packQ2KAVX2, "Q3_K": packQ3KAVX2, "Q4_K": packQ4KAVX2, "Q5_K": packQ5KAVX2, "Q6_K": packQ6KAVX2, "IQ4_XS": packIQ4XSAVX2,
}
