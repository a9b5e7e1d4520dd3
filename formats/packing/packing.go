// Package packing holds the on-disk layouts of quantized linears, one file per layout. A layout packs a Linear into
// named tensors and unpacks it again, so every artifact the project writes can also be read, verified and converted.
package packing

import (
	"github.com/llmquant/quantize/formats/tensor"
)

// Scheme says how the weights of one linear are quantized, independent of where the bytes go.
type Scheme struct {
	Grid      string       // "int" for group-affine integers, else the name of a block grid ("Q4_K", "fp8", "nf4", …)
	Bits      int          // bits per code of an integer grid: 2, 3, 4 or 8
	GroupSize int          // columns that share a scale; -1: one group per row
	Sym       bool         // zero point fixed at 2^(bits-1)
	ScaleType tensor.DType // type of the stored scales; Invalid: the layout's own
}

// Groups returns the number of groups of a row of in columns.
func (s Scheme) Groups(in int) int {
	if s.GroupSize <= 0 {
		return 1
	}
	return (in + s.GroupSize - 1) / s.GroupSize
}

// Linear is one quantized weight W[Out,In] between a rounder and a layout.
// Integer grids: w[n,k] = Scales[n,g] · (Codes[n,k] − Zeros[n,g]) with g = GIdx[k], or k/GroupSize when GIdx is nil.
// Block grids: Blocks holds the finished rows, back to back.
type Linear struct {
	Scheme
	Out, In int
	Codes   []uint8   // [Out, In], 0 … 2^Bits-1
	Scales  []float32 // [Out, Groups], exactly representable in the stored type
	Zeros   []float32 // [Out, Groups], 0 … 2^Bits-1; nil: 2^(Bits-1) everywhere
	GIdx    []int32   // [In], nil: k/GroupSize
	Blocks  []byte
}

// Layout is one row of the layout table.
type Layout struct {
	Name  string // "awq", "gptq", "gptq_v2", "compressed-tensors", …
	Doc   string // one line for `quantize list formats`
	Check func(s Scheme, out, in int) error
	// Plan lists the tensors that replace base+".weight".
	Plan func(base string, s Scheme, out, in int) []tensor.Info
	// Pack writes every tensor of Plan; dst returns the bytes of the tensor with that suffix ("qweight").
	Pack func(l *Linear, dst func(suffix string) []byte) error
	// Unpack reads them back. src returns nil for a tensor that the artifact lacks.
	Unpack func(s Scheme, out, in int, src func(suffix string) []byte) (*Linear, error)
}
