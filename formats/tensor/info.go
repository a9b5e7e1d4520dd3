package tensor

import "slices"

// Info names and describes one dense tensor, row-major.
type Info struct {
	Name  string
	DType DType
	Shape []int64
}

// Elements returns the number of elements; ok is false on overflow.
func (t Info) Elements() (int64, bool) { return Elements(t.Shape) }

// Bytes returns the size of the data; ok is false on overflow or an invalid type.
func (t Info) Bytes() (int64, bool) {
	n, ok := t.Elements()
	if !ok || t.DType.Size() == 0 {
		return 0, false
	}
	return Mul(n, t.DType.Size())
}

// SameShape reports whether the tensor has exactly these dimensions.
func (t Info) SameShape(dims ...int64) bool { return slices.Equal(t.Shape, dims) }

// Source is a read-only set of uniquely named dense tensors: a checkpoint file, a directory, or a view of one.
// Implementations are safe for concurrent use.
type Source interface {
	// Tensors lists every tensor in storage order. The caller must not modify it.
	Tensors() []Info
	// Lookup finds a tensor by its exact name.
	Lookup(name string) (Info, bool)
	// ReadTensor fills dst with the bytes of the tensor from byte offset off (little-endian elements).
	// A short read is an error, never zeros.
	ReadTensor(name string, dst []byte, off int64) error
}
