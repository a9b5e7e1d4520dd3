package quant

import (
	"math"

	"github.com/llmquant/quantize/formats/packing"
)

// The limits of Verify follow from rounding itself. A group of n weights with range R that is rounded to L evenly spaced
// levels errs by a uniform deviate of variance R²/12(L−1)² each, so the base model's own weights say what to expect of
// every tensor, outliers included. Error feedback moves weights further than plain rounding does, up to 1.9 times as far in
// the artifacts of other tools that the tests read; clipped ranges and importance cost less.
const (
	errorFactor  = 3    // times the expected error
	leastLimit   = 0.15 // a fine grid is no limit for a weight that was moved to make up for coarse ones in front of it
	largestLimit = 0.9  // an unrelated matrix of the same size is off by 1.41
	ternaryLimit = 1.2  // ternary grids make most weights of a dense model 0
	floatLimit   = 0.02 // conversions between float types, and folded factors of biases and routers
)

// levels describe a grid as the evenly spaced levels of groups of columns that cost about the same error.
type levels struct {
	span   int // columns of a group
	count  float64
	signed bool // the range is symmetric to 0
}

// ggmlLevels are those of ggml's types. Codebooks are as good as this many even levels.
var ggmlLevels = map[string]levels{
	"Q1_0": {128, 2, true}, "Q2_0": {64, 4, true}, "TQ1_0": {256, 3, true}, "TQ2_0": {256, 3, true},
	"IQ1_S": {32, 3, true}, "IQ1_M": {16, 3, true}, "IQ2_XXS": {32, 4, true}, "IQ2_XS": {16, 4, true}, "IQ2_S": {16, 4, true},
	"IQ3_XXS": {32, 7, true}, "IQ3_S": {32, 8, true}, "IQ4_NL": {32, 15, true}, "IQ4_XS": {32, 15, true},
	"MXFP4": {32, 11, true}, "NVFP4": {16, 11, true},
	"Q2_K": {16, 4, false}, "Q3_K": {16, 8, true}, "Q4_K": {32, 16, false}, "Q5_K": {32, 32, false}, "Q6_K": {16, 64, true},
	"Q4_0": {32, 16, true}, "Q4_1": {32, 16, false}, "Q5_0": {32, 32, true}, "Q5_1": {32, 32, false}, "Q8_0": {32, 256, true},
}

// levelsOf describes the grid of a scheme; ok is false for one that is not known.
func levelsOf(s packing.Scheme, columns int) (l levels, ok bool) {
	switch s.Grid {
	case "int":
		if s.GroupSize > 0 {
			columns = s.GroupSize
		}
		return levels{columns, math.Exp2(float64(s.Bits)), s.Sym}, s.Bits > 0
	case exl2Name:
		groups, err := packing.ParseEXL2Mix(s.Mix)
		rows, sum := 0.0, 0.0
		for _, g := range groups {
			rows += float64(g.Rows)
			sum += float64(g.Rows) / math.Pow(math.Exp2(float64(g.Bits))-1, 2)
		}
		// Bits are spent where they matter: the mean square of the steps counts. Groups are of 32 columns and more.
		return levels{128, 1 + math.Sqrt(rows/sum), true}, err == nil && rows > 0
	}
	l, ok = ggmlLevels[s.Grid]
	return l, ok
}

// errorLimit is how far, relative to its size, a tensor w of rows of width columns may be off behind rounding to a grid.
func errorLimit(s packing.Scheme, w []float32, columns int) float64 {
	l, ok := levelsOf(s, columns)
	if !ok || columns == 0 || len(w) == 0 {
		return largestLimit
	}
	most := float64(largestLimit)
	if l.count <= 3 {
		most = ternaryLimit
	}
	var expected, power float64
	for row := 0; row < len(w); row += columns {
		for lo := 0; lo < columns; lo += l.span {
			group := w[row+lo : row+min(lo+l.span, columns)]
			var low, high float64 // 0 is a level
			for _, v := range group {
				low, high = min(low, float64(v)), max(high, float64(v))
				power += float64(float64(v) * float64(v))
			}
			if l.signed {
				high = max(high, -low)
				low = -high
			}
			expected += float64(len(group)) * math.Pow((high-low)/(l.count-1), 2) / 12
		}
	}
	if power == 0 {
		return leastLimit
	}
	return min(max(errorFactor*math.Sqrt(expected/power), leastLimit), most)
}
