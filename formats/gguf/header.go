package gguf

import (
	"slices"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// Tensor describes one tensor of a file or split set.
type Tensor struct {
	Name   string
	Type   Type
	Dims   int      // dimensions as stored, 0 … 4
	NE     [4]int64 // sizes in ggml order: NE[0] columns, NE[1] rows, NE[2] matrices; 1 beyond Dims
	Shard  int      // file of the split set
	Offset int64    // from the start of that file's data section
	Bytes  int64    // without padding
}

// NewTensor describes a tensor of a PyTorch shape (slowest dimension first); ok is false when the sizes overflow, the
// rank exceeds 4 or a row is not a whole number of blocks.
func NewTensor(name string, t Type, shape ...int64) (Tensor, bool) {
	if len(shape) > maxDims {
		return Tensor{}, false
	}
	d := Tensor{Name: name, Type: t, Dims: len(shape), NE: [4]int64{1, 1, 1, 1}}
	for i, n := range shape {
		d.NE[len(shape)-1-i] = n
	}
	return d, d.measure()
}

// measure sets Bytes from the type and the sizes.
func (t *Tensor) measure() (ok bool) {
	row, ok := t.Type.RowBytes(t.NE[0])
	if !ok {
		return false
	}
	rows, ok := tensor.Elements(t.NE[1:])
	if !ok {
		return false
	}
	if _, ok = tensor.Elements(t.NE[:]); !ok { // a block format can hide an overflow of the element count
		return false
	}
	t.Bytes, ok = tensor.Mul(row, rows)
	return ok
}

// Cols returns the elements of a row.
func (t *Tensor) Cols() int64 { return t.NE[0] }

// Rows returns the number of rows over all matrices.
func (t *Tensor) Rows() int64 { return t.NE[1] * t.NE[2] * t.NE[3] }

// Elements returns the number of elements.
func (t *Tensor) Elements() int64 { return t.NE[0] * t.Rows() }

// Shape returns the sizes in PyTorch order, slowest first.
func (t *Tensor) Shape() []int64 {
	s := slices.Clone(t.NE[:t.Dims])
	slices.Reverse(s)
	return s
}

// WithType returns the tensor stored as another type; ok is false when a row is not a whole number of its blocks.
func (t Tensor) WithType(to Type) (Tensor, bool) {
	t.Type = to
	return t, t.measure()
}

// Header is the metadata and the tensor list of a file or split set: what the writer lays out and the reader found.
type Header struct {
	KV      Metadata
	Tensors []Tensor
}

// Alignment returns the value of general.alignment, 32 when absent.
func (h *Header) Alignment() (int64, error) { return alignment(&h.KV, safeio.DefaultLimits()) }

// alignment reads general.alignment. Only the exact type counts: a reader that accepted others would place the tensors
// elsewhere than llama.cpp.
func alignment(kv *Metadata, lim safeio.Limits) (int64, error) {
	const key = "general.alignment"
	v, ok := kv.Get(key)
	if !ok {
		return defaultAlign, nil
	}
	if v.kind != KindUint32 {
		return 0, atKey(key, v.mismatch("u32"))
	}
	a := int64(v.num)
	switch {
	case a == 0 || a&(a-1) != 0:
		return 0, safeio.Corruptf("key %q is %d, which is not a power of two", key, a)
	case a < minAlign || a > lim.GGUFAlignment:
		return 0, safeio.Limitf("key %q is %d, outside %d … %d", key, a, minAlign, lim.GGUFAlignment)
	}
	return a, nil
}

// Architecture returns general.architecture.
func (h *Header) Architecture() (string, error) { return h.KV.String("general.architecture") }

// Find returns the tensor of that name.
func (h *Header) Find(name string) (*Tensor, bool) {
	for i := range h.Tensors {
		if h.Tensors[i].Name == name {
			return &h.Tensors[i], true
		}
	}
	return nil, false
}
