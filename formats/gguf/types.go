package gguf

import (
	"strconv"
	"strings"

	"github.com/llmquant/quantize/formats/tensor"
)

// Type is the ggml type id of a tensor, as stored in the file.
type Type uint32

// The tensor types of ggml that may stand in a file.
const (
	F32     Type = 0
	F16     Type = 1
	Q4_0    Type = 2
	Q4_1    Type = 3
	Q5_0    Type = 6
	Q5_1    Type = 7
	Q8_0    Type = 8
	Q8_1    Type = 9
	Q2_K    Type = 10
	Q3_K    Type = 11
	Q4_K    Type = 12
	Q5_K    Type = 13
	Q6_K    Type = 14
	Q8_K    Type = 15
	IQ2_XXS Type = 16
	IQ2_XS  Type = 17
	IQ3_XXS Type = 18
	IQ1_S   Type = 19
	IQ4_NL  Type = 20
	IQ3_S   Type = 21
	IQ2_S   Type = 22
	IQ4_XS  Type = 23
	I8      Type = 24
	I16     Type = 25
	I32     Type = 26
	I64     Type = 27
	F64     Type = 28
	IQ1_M   Type = 29
	BF16    Type = 30
	TQ1_0   Type = 34
	TQ2_0   Type = 35
	MXFP4   Type = 39
	NVFP4   Type = 40
	Q1_0    Type = 41
	Q2_0    Type = 42
)

// types holds one row per id. Rows without a name are ids that never existed; rows without a size were removed from
// ggml and have no decoder any more.
var types = [...]struct {
	name  string
	elems int64        // elements of a block
	bytes int64        // bytes of a block
	dtype tensor.DType // plain element type; Invalid for block formats
}{
	F32:     {"F32", 1, 4, tensor.F32},
	F16:     {"F16", 1, 2, tensor.F16},
	Q4_0:    {"Q4_0", 32, 18, tensor.Invalid},
	Q4_1:    {"Q4_1", 32, 20, tensor.Invalid},
	4:       {name: "Q4_2"},
	5:       {name: "Q4_3"},
	Q5_0:    {"Q5_0", 32, 22, tensor.Invalid},
	Q5_1:    {"Q5_1", 32, 24, tensor.Invalid},
	Q8_0:    {"Q8_0", 32, 34, tensor.Invalid},
	Q8_1:    {"Q8_1", 32, 36, tensor.Invalid},
	Q2_K:    {"Q2_K", 256, 84, tensor.Invalid},
	Q3_K:    {"Q3_K", 256, 110, tensor.Invalid},
	Q4_K:    {"Q4_K", 256, 144, tensor.Invalid},
	Q5_K:    {"Q5_K", 256, 176, tensor.Invalid},
	Q6_K:    {"Q6_K", 256, 210, tensor.Invalid},
	Q8_K:    {"Q8_K", 256, 292, tensor.Invalid},
	IQ2_XXS: {"IQ2_XXS", 256, 66, tensor.Invalid},
	IQ2_XS:  {"IQ2_XS", 256, 74, tensor.Invalid},
	IQ3_XXS: {"IQ3_XXS", 256, 98, tensor.Invalid},
	IQ1_S:   {"IQ1_S", 256, 50, tensor.Invalid},
	IQ4_NL:  {"IQ4_NL", 32, 18, tensor.Invalid},
	IQ3_S:   {"IQ3_S", 256, 110, tensor.Invalid},
	IQ2_S:   {"IQ2_S", 256, 82, tensor.Invalid},
	IQ4_XS:  {"IQ4_XS", 256, 136, tensor.Invalid},
	I8:      {"I8", 1, 1, tensor.I8},
	I16:     {"I16", 1, 2, tensor.I16},
	I32:     {"I32", 1, 4, tensor.I32},
	I64:     {"I64", 1, 8, tensor.I64},
	F64:     {"F64", 1, 8, tensor.F64},
	IQ1_M:   {"IQ1_M", 256, 56, tensor.Invalid},
	BF16:    {"BF16", 1, 2, tensor.BF16},
	31:      {name: "Q4_0_4_4"},
	32:      {name: "Q4_0_4_8"},
	33:      {name: "Q4_0_8_8"},
	TQ1_0:   {"TQ1_0", 256, 54, tensor.Invalid},
	TQ2_0:   {"TQ2_0", 256, 66, tensor.Invalid},
	36:      {name: "IQ4_NL_4_4"},
	37:      {name: "IQ4_NL_4_8"},
	38:      {name: "IQ4_NL_8_8"},
	MXFP4:   {"MXFP4", 32, 17, tensor.Invalid},
	NVFP4:   {"NVFP4", 64, 36, tensor.Invalid},
	Q1_0:    {"Q1_0", 128, 18, tensor.Invalid},
	Q2_0:    {"Q2_0", 64, 18, tensor.Invalid},
}

// ParseType returns the type with ggml's name, in any case ("q4_K" and "Q4_K" are the same).
func ParseType(name string) (Type, bool) {
	for id := range types {
		if types[id].bytes != 0 && strings.EqualFold(types[id].name, name) {
			return Type(id), true
		}
	}
	return 0, false
}

// Types lists every type that has a size, in order of id.
func Types() []Type {
	var all []Type
	for id := range types {
		if types[id].bytes != 0 {
			all = append(all, Type(id))
		}
	}
	return all
}

// String returns ggml's name in upper case.
func (t Type) String() string {
	if uint64(t) < uint64(len(types)) && types[t].name != "" {
		return types[t].name
	}
	return "type " + strconv.FormatUint(uint64(t), 10)
}

// Valid reports whether the type has a size, that is, exists and was not removed from ggml.
func (t Type) Valid() bool { return uint64(t) < uint64(len(types)) && types[t].bytes != 0 }

// Removed reports whether ggml once had the type and dropped it.
func (t Type) Removed() bool {
	return uint64(t) < uint64(len(types)) && types[t].name != "" && types[t].bytes == 0
}

// BlockElems returns the number of elements of a block, 1 for plain types, 0 for an invalid one.
func (t Type) BlockElems() int64 {
	if !t.Valid() {
		return 0
	}
	return types[t].elems
}

// BlockBytes returns the bytes of a block, 0 for an invalid type.
func (t Type) BlockBytes() int64 {
	if !t.Valid() {
		return 0
	}
	return types[t].bytes
}

// BitsPerWeight returns the storage cost of an element.
func (t Type) BitsPerWeight() float64 {
	if !t.Valid() {
		return 0
	}
	return 8 * float64(types[t].bytes) / float64(types[t].elems)
}

// DType returns the plain element type, tensor.Invalid for block formats.
func (t Type) DType() tensor.DType {
	if !t.Valid() {
		return tensor.Invalid
	}
	return types[t].dtype
}

// TypeOf returns the ggml type that stores elements of d unchanged.
func TypeOf(d tensor.DType) (Type, bool) {
	for id := range types {
		if types[id].bytes != 0 && types[id].dtype == d && d != tensor.Invalid {
			return Type(id), true
		}
	}
	return 0, false
}

// RowBytes returns the size of a row of cols elements; ok is false when cols is not a multiple of the block or the
// product leaves int64.
func (t Type) RowBytes(cols int64) (bytes int64, ok bool) {
	if !t.Valid() || cols < 0 || cols%types[t].elems != 0 {
		return 0, false
	}
	return tensor.Mul(cols/types[t].elems, types[t].bytes)
}
