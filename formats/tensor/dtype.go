// Package tensor is the leaf of the project: element types, checked sizes, tensor descriptions and
// scalar float conversions. It imports only the standard library and is imported by everything else.
package tensor

import "strconv"

// DType is an element type of a safetensors tensor. Block formats (ggml types) are not DTypes; they are grids.
type DType uint8

// The element types of the safetensors format.
const (
	Invalid DType = iota
	Bool
	U8
	I8
	F8E5M2
	F8E4M3
	F8E8M0
	I16
	U16
	F16
	BF16
	I32
	U32
	F32
	C64
	F64
	I64
	U64
)

// dtypes holds one row per element type: the safetensors spelling, the size and whether values are real numbers.
var dtypes = [...]struct {
	name  string
	bytes int64
	float bool
}{
	Invalid: {"invalid", 0, false},
	Bool:    {"BOOL", 1, false},
	U8:      {"U8", 1, false},
	I8:      {"I8", 1, false},
	F8E5M2:  {"F8_E5M2", 1, true},
	F8E4M3:  {"F8_E4M3", 1, true},
	F8E8M0:  {"F8_E8M0", 1, true},
	I16:     {"I16", 2, false},
	U16:     {"U16", 2, false},
	F16:     {"F16", 2, true},
	BF16:    {"BF16", 2, true},
	I32:     {"I32", 4, false},
	U32:     {"U32", 4, false},
	F32:     {"F32", 4, true},
	C64:     {"C64", 8, false}, // pairs of F32: copied, never computed with
	F64:     {"F64", 8, true},
	I64:     {"I64", 8, false},
	U64:     {"U64", 8, false},
}

// ParseDType returns the element type with the safetensors spelling name ("BF16").
func ParseDType(name string) (DType, bool) {
	for d := Bool; int(d) < len(dtypes); d++ {
		if dtypes[d].name == name {
			return d, true
		}
	}
	return Invalid, false
}

// DTypes lists every valid element type in order of size.
func DTypes() []DType {
	all := make([]DType, 0, len(dtypes)-1)
	for d := Bool; int(d) < len(dtypes); d++ {
		all = append(all, d)
	}
	return all
}

// String returns the safetensors spelling.
func (d DType) String() string {
	if int(d) < len(dtypes) {
		return dtypes[d].name
	}
	return "DType(" + strconv.Itoa(int(d)) + ")"
}

// Size returns the bytes of one element, 0 for an invalid type.
func (d DType) Size() int64 {
	if int(d) < len(dtypes) {
		return dtypes[d].bytes
	}
	return 0
}

// IsFloat reports whether elements are real numbers (F8 included) that ToFloat32 can widen.
func (d DType) IsFloat() bool { return int(d) < len(dtypes) && dtypes[d].float }
