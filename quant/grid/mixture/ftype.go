package mixture

import (
	"strconv"
	"strings"

	"github.com/llmquant/quantize/formats/gguf"
)

// FileType is one row of the table of file types: a named recipe with the number that stands in general.file_type.
type FileType struct {
	ID   uint32
	Name string    // llama-quantize's name
	Base gguf.Type // the type of every tensor no rule speaks about
	Doc  string    // one line for listings
}

// The ids of llama.cpp's file types, as stored in general.file_type.
const (
	allF32    = 0
	f16       = 1
	q4_0      = 2
	q4_1      = 3
	q8_0      = 7
	q5_0      = 8
	q5_1      = 9
	q2_K      = 10
	q3_K_S    = 11
	q3_K_M    = 12
	q3_K_L    = 13
	q4_K_S    = 14
	q4_K_M    = 15
	q5_K_S    = 16
	q5_K_M    = 17
	q6_K      = 18
	iq2_XXS   = 19
	iq2_XS    = 20
	q2_K_S    = 21
	iq3_XS    = 22
	iq3_XXS   = 23
	iq1_S     = 24
	iq4_NL    = 25
	iq3_S     = 26
	iq3_M     = 27
	iq2_S     = 28
	iq2_M     = 29
	iq4_XS    = 30
	iq1_M     = 31
	bf16      = 32
	tq1_0     = 36
	tq2_0     = 37
	mxfp4_MOE = 38
	q1_0      = 40
	q2_0      = 41
	fileTypes = 42 // one past the largest
)

// Copy is the pseudo file type that keeps every tensor as it is.
const Copy = "COPY"

var table = [...]FileType{
	{allF32, "F32", gguf.F32, "every tensor in float32"},
	{f16, "F16", gguf.F16, "matrices in half precision"},
	{bf16, "BF16", gguf.BF16, "matrices in bfloat16"},
	{q1_0, "Q1_0", gguf.Q1_0, "sign and one scale per 128 weights"},
	{q2_0, "Q2_0", gguf.Q2_0, "ternary with one scale per 64 weights"},
	{q4_0, "Q4_0", gguf.Q4_0, "4 bits, symmetric, groups of 32"},
	{q4_1, "Q4_1", gguf.Q4_1, "4 bits with offset, groups of 32"},
	{mxfp4_MOE, "MXFP4_MOE", gguf.MXFP4, "experts in MXFP4, everything else in Q8_0"},
	{q5_0, "Q5_0", gguf.Q5_0, "5 bits, symmetric, groups of 32"},
	{q5_1, "Q5_1", gguf.Q5_1, "5 bits with offset, groups of 32"},
	{iq2_XXS, "IQ2_XXS", gguf.IQ2_XXS, "2.06 bits, needs an importance matrix"},
	{iq2_XS, "IQ2_XS", gguf.IQ2_XS, "2.31 bits, needs an importance matrix"},
	{iq2_S, "IQ2_S", gguf.IQ2_XS, "2.5 bits, needs an importance matrix"},
	{iq2_M, "IQ2_M", gguf.IQ2_S, "2.7 bits, needs an importance matrix"},
	{iq1_S, "IQ1_S", gguf.IQ1_S, "1.56 bits, needs an importance matrix"},
	{iq1_M, "IQ1_M", gguf.IQ1_M, "1.75 bits, needs an importance matrix"},
	{tq1_0, "TQ1_0", gguf.TQ1_0, "ternary, 1.69 bits, for models trained for it"},
	{tq2_0, "TQ2_0", gguf.TQ2_0, "ternary, 2.06 bits, for models trained for it"},
	{q2_K, "Q2_K", gguf.Q2_K, "2-bit k-quants, attention values and down projections higher"},
	{q2_K_S, "Q2_K_S", gguf.Q2_K, "2-bit k-quants, smallest; needs an importance matrix"},
	{iq3_XXS, "IQ3_XXS", gguf.IQ3_XXS, "3.06 bits, needs an importance matrix"},
	{iq3_S, "IQ3_S", gguf.IQ3_S, "3.44 bits"},
	{iq3_M, "IQ3_M", gguf.IQ3_S, "3.66 bits mixture"},
	{iq3_XS, "IQ3_XS", gguf.IQ3_S, "3.3 bits mixture, needs an importance matrix"},
	{q3_K_S, "Q3_K_S", gguf.Q3_K, "3-bit k-quants throughout"},
	{q3_K_M, "Q3_K_M", gguf.Q3_K, "3-bit k-quants, sensitive tensors in 4 and 5 bits"},
	{q3_K_L, "Q3_K_L", gguf.Q3_K, "3-bit k-quants, sensitive tensors in 5 bits"},
	{iq4_NL, "IQ4_NL", gguf.IQ4_NL, "4.5 bits, non-linear"},
	{iq4_XS, "IQ4_XS", gguf.IQ4_XS, "4.25 bits, non-linear"},
	{q4_K_S, "Q4_K_S", gguf.Q4_K, "4-bit k-quants throughout"},
	{q4_K_M, "Q4_K_M", gguf.Q4_K, "4-bit k-quants, half of the sensitive tensors in 6 bits"},
	{q5_K_S, "Q5_K_S", gguf.Q5_K, "5-bit k-quants throughout"},
	{q5_K_M, "Q5_K_M", gguf.Q5_K, "5-bit k-quants, half of the sensitive tensors in 6 bits"},
	{q6_K, "Q6_K", gguf.Q6_K, "6-bit k-quants"},
	{q8_0, "Q8_0", gguf.Q8_0, "8 bits, symmetric, groups of 32"},
}

// aliases are the short names llama-quantize accepts.
var aliases = [...]struct{ short, long string }{
	{"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"},
}

// FileTypes lists the file types in llama-quantize's order, floats first.
func FileTypes() []FileType { return append([]FileType(nil), table[:]...) }

// ParseFileType finds a file type by name, in any case, by alias or by number ("15"). It does not know Copy.
func ParseFileType(name string) (FileType, bool) {
	for _, a := range aliases {
		if strings.EqualFold(a.short, name) {
			name = a.long
		}
	}
	id, err := strconv.ParseUint(name, 10, 32)
	for _, f := range table {
		if strings.EqualFold(f.Name, name) || err == nil && uint64(f.ID) == id {
			return f, true
		}
	}
	return FileType{}, false
}

// FileTypeOf finds the file type with the number of general.file_type.
func FileTypeOf(id uint32) (FileType, bool) {
	for _, f := range table {
		if f.ID == id {
			return f, true
		}
	}
	return FileType{}, false
}

// Float reports whether the file type stores matrices unquantized; mixtures and overrides do not apply then.
func (f FileType) Float() bool { return f.ID == allF32 || f.ID == f16 || f.ID == bf16 }
