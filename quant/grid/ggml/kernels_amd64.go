//go:build !noasm

package ggml

// kernelSets holds the vector kernels by the name that package kernel gives the instruction set.
var kernelSets = map[string]*kernels{
	"avx512": {
		transpose: transposeAVX512, transposeBytes: transposeBytesAVX512, squares: squaresAVX512, rowSum: rowSumAVX512, square: squareAVX512, weights: weightsAVX512,
		rootWeights: rootWeightsAVX512, requant: requantAVX512, asym: asymAVX512, sym: symAVX512, sym3: sym3AVX512, pos: posAVX512, iq4: iq4AVX512, iq4Codes: iq4CodesAVX512,
		signs: signsAVX512, roots: rootsAVX512, rowMax: rowMaxAVX512, rowPeak: rowPeakAVX512, squareAdd: squareAddAVX512, better: betterAVX512,
		pairs:   wordKernels{levels2AVX512, nearest2AVX2, wordFit2AVX512},
		triples: wordKernels{levels3AVX512, nearest3AVX2, wordFit3AVX512},
	},
	"avx2": {
		transpose: transposeAVX2, transposeBytes: transposeBytesAVX2, squares: squaresAVX2, rowSum: rowSumAVX2, square: squareAVX2, weights: weightsAVX2,
		rootWeights: rootWeightsAVX2, requant: requantAVX2, asym: asymAVX2, sym: symAVX2, sym3: sym3AVX2, pos: posAVX2, iq4: iq4AVX2, iq4Codes: iq4CodesAVX2,
		signs: signsAVX2, roots: rootsAVX2, rowMax: rowMaxAVX2, rowPeak: rowPeakAVX2, squareAdd: squareAddAVX2, better: betterAVX2,
		pairs:   wordKernels{levels2AVX2, nearest2AVX2, wordFit2AVX2},
		triples: wordKernels{levels3AVX2, nearest3AVX2, wordFit3AVX2},
	},
}
