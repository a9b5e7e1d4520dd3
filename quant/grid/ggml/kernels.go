package ggml

import (
	"sync"

	"github.com/llmquant/quantize/internal/kernel"
)

//go:generate go -C gen run . -out ..

// kernels is a set of vector kernels. They work on planes: rows of 16 numbers, one lane per block. Each does in every lane
// what the portable function of the same name does for one block, bit for bit. Those in block and decode work in row order.
type kernels struct {
	transpose      func(dst, src *float32, stride, n int)
	transposeBytes func(dst *uint8, stride int, src *uint8, n int)
	squares        func(sum, x *float32, n int)
	rowSum         func(sum, x *float32, n int)
	square         func(dst, x *float32, n int)
	weights        func(w, x, im, sigma2 *float32, n int)
	rootWeights    func(w, x *float32, n int, scale float32)
	requant        func(codes *uint8, x *float32, n int, step, minimum *float32, lo, hi, base int32)
	asym, asymQuad func(codes *uint8, x, w *float32, n int, levels, first, step float32, steps int32, abs bool, scale, minimum, sum *float32) (ok bool)
	sym            func(codes *uint8, x, w *float32, n int, levels float32, scale *float32)
	sym3           func(codes *uint8, x, scale *float32)
	signs          func(magnitudes *float32, signs *uint8, x, w *float32, n int, parity bool)
	roots          func(v, wx, w, x *float32, n int)
	rowMax         func(peak, x *float32, n int)
	rowPeak        func(peak, x *float32, n int)
	squareAdd      func(dst, x, add *float32, n int)
	better         func(scale, best *float32, bestWords, bestLevels *uint32, a, b *float32, words, levels *uint32, groups int)
	pairs, triples wordKernels
	sortRows       func(key, a, b *float32, order *uint32, network *uint16, comparators int)
	split32        func(wx, w, scale *float32, first, second, shift *uint32)
	split16        func(x, w *float32, order *uint32, scale *float32, first, second, shift *uint32)
	block          blockKernels
	decode         map[string]blockDecoder // by the name of the type
	pack           map[string]blockPacker  // by the name of the type
	signedScales   func(levels *uint8, step, d, scale *float32, n int, lowest float32, highest, none int32, eps float32)
	maxScales      func(levels *uint8, step, d, scale *float32, n int, highest float32)
	scaleCodes     func(dst *float32, codes *uint8, step *float32, runs int)
	iq4            func(x, w *float32, n int, scale *float32)
	iq4Codes       func(codes *uint8, x *float32, n int, inverse *float32)
	pos            func(codes *uint8, x, w *float32, n int, levels int32, scale *float32)
}

// blockKernels work inside a block, in row order.
type blockKernels struct {
	q80, q40, q50, q41, q51 func(dst *byte, x *float32, blocks int)
	peaks                   func(peak, x *float32, runs int)
	e2m1                    func(codes *byte, x, scale *float32, runs int)
	digits                  func(codes *byte, x *float32, runs int, inverse float32)
	largest                 func(x *float32, runs int) (bits uint32)
	fromF16, fromBF16       func(dst *float32, src *byte, runs int)
	toF16, toBF16           func(dst *byte, src *float32, runs int)
}

// run is how many numbers the kernels in row order take at a time.
const run = 16

// wordKernels depend on how a codeword packs its levels: eight of two bits or four of three.
type wordKernels struct {
	levels  func(words *uint32, scale, x, peak *float32, n int, numerator float32)
	nearest func(words, levels *uint32, x, v, scale *float32, groups int, values *float32, stride int, index *int16, start *int32, list *uint16)
	fit     func(a, b, w, wx *float32, words *uint32, n int)
}

// active is the set that package kernel has chosen for this processor, nil where there is none but portable code.
var active = sync.OnceValue(func() *kernels { return kernelSets[kernel.Features()] })
