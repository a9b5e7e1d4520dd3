package ggml

import (
	"fmt"
	"math"
	"strings"

	"github.com/llmquant/quantize/formats/tensor"
)

// superBlock is the number of weights of a K or codebook block; subBlockMax the longest sub-block.
const (
	superBlock  = 256
	subBlockMax = 32
	// f16Limit exceeds what any type with fp16 scales can represent (65504·128·32 for Q6_K); beyond it the squares in the
	// searches would soon leave float32 and the result be zeros without a word.
	f16Limit = 1 << 30
)

// Type describes one tensor type of a GGUF file. The values returned by Types, ByName and ByID are shared and read-only.
type Type struct {
	Name          string // upper-case spelling of the type ("Q4_K")
	ID            uint32 // number in the tensor info of a GGUF file
	Elems, Bytes  int    // of one block; Elems consecutive columns share their parameters
	BitsPerWeight float64
	UsesImatrix   bool // importance changes the encoding
	NeedsImatrix  bool // EncodeRows refuses to run without importance
	Doc           string

	decode func(dst []float32, src []byte)
	encode func(e *encoder)               // nil: the type is only read
	check  func(src []byte, size int) int // first bad block of size bytes, or -1
	scalar *Scalar
	limit  float32 // weights beyond overflow any scale; 0: none
}

// Types returns every type in order of ID.
func Types() []*Type {
	all := make([]*Type, len(types))
	for i := range types {
		all[i] = &types[i]
	}
	return all
}

// ByName finds a type by its name, in any case.
func ByName(name string) (*Type, bool) {
	for i := range types {
		if strings.EqualFold(types[i].Name, name) {
			return &types[i], true
		}
	}
	return nil, false
}

// ByID finds a type by its number in a GGUF file.
func ByID(id uint32) (*Type, bool) {
	for i := range types {
		if types[i].ID == id {
			return &types[i], true
		}
	}
	return nil, false
}

// CanEncode reports whether EncodeRows can produce the type.
func (t *Type) CanEncode() bool { return t.encode != nil }

// Scalar returns the view of the type for rounders that choose codes themselves; ok is false for codebook and plain
// number types.
func (t *Type) Scalar() (s *Scalar, ok bool) { return t.scalar, t.scalar != nil }

// RowBytes returns the encoded size of a row of k weights. k must be a positive multiple of Elems.
func (t *Type) RowBytes(k int) (int64, error) {
	if k <= 0 || k%t.Elems != 0 {
		return 0, fmt.Errorf("ggml: a row of %d weights cannot be stored as %s: its blocks hold %d", k, t.Name, t.Elems)
	}
	n, ok := tensor.Mul(int64(k/t.Elems), int64(t.Bytes))
	if !ok || n > math.MaxInt {
		return 0, fmt.Errorf("ggml: a row of %d weights is too long", k)
	}
	return n, nil
}
