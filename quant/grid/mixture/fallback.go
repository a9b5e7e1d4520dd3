package mixture

import (
	"slices"

	"github.com/llmquant/quantize/formats/gguf"
)

// fallbacks maps a type with large blocks to the nearest one with blocks of 32.
var fallbacks = [...]struct {
	from []gguf.Type
	to   gguf.Type
}{
	{[]gguf.Type{gguf.IQ1_S, gguf.IQ1_M, gguf.IQ2_XXS, gguf.IQ2_XS, gguf.IQ2_S, gguf.IQ3_XXS, gguf.IQ3_S, gguf.IQ4_XS}, gguf.IQ4_NL},
	{[]gguf.Type{gguf.Q2_0, gguf.Q2_K, gguf.Q3_K, gguf.TQ1_0, gguf.TQ2_0}, gguf.Q4_0},
	{[]gguf.Type{gguf.Q4_K}, gguf.Q5_0},
	{[]gguf.Type{gguf.Q5_K}, gguf.Q5_1},
	{[]gguf.Type{gguf.Q6_K}, gguf.Q8_0},
}

// fallback returns the type that can hold rows of cols columns. refused is set where the reference has no answer and
// ends the run; F16 is ours.
func fallback(want gguf.Type, cols int64) (got gguf.Type, refused bool) {
	if cols%want.BlockElems() == 0 {
		return want, false
	}
	for _, f := range fallbacks {
		if slices.Contains(f.from, want) {
			if cols%f.to.BlockElems() != 0 {
				return gguf.F16, false
			}
			return f.to, false
		}
	}
	return gguf.F16, true
}

// imatrixTypes need importance weights: below three bits plain rounding ruins a model.
var imatrixTypes = [...]gguf.Type{gguf.IQ1_S, gguf.IQ1_M, gguf.IQ2_XXS, gguf.IQ2_XS, gguf.IQ2_S, gguf.IQ3_XXS}

// NeedsImatrix reports whether a tensor stored as t under file type f calls for an importance matrix. Embeddings and the
// head are exempt: no importance is collected for them.
func NeedsImatrix(name string, t gguf.Type, f FileType) bool {
	if c := categorize(name); c == embedding || c == head {
		return false
	}
	return slices.Contains(imatrixTypes[:], t) || t == gguf.Q2_K && f.ID == q2_K_S
}
