// Package packing holds the on-disk layouts of quantized linears, one file per layout. A layout packs a Linear into
// named tensors and unpacks it again, so every artifact the project writes can also be read, verified and converted.
//
// Everything here is a pure function over byte slices: no file is opened, no global is kept. The hinge is Linear,
// whose integer form states w[n,k] = s·(q − z) with unsigned codes q; AWQ, GPTQ and compressed-tensors are three ways
// to write exactly these numbers down, so conversions between them (convert.go) lose nothing or refuse.
//
// Words are little-endian int32; "stream" means codes laid out bit after bit from bit 0 of word 0 (bits.go).
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
	Mix       string       // grid "exl2": the groups of packed rows (exl2_groups.go); "" elsewhere
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
// Block grids: Blocks holds the finished rows, back to back. Grid "exl2": Codes and EXL2.
type Linear struct {
	Scheme
	Out, In int
	Codes   []uint8   // [Out, In], 0 … 2^Bits-1
	Scales  []float32 // [Out, Groups], exactly representable in the stored type
	Zeros   []float32 // [Out, Groups], 0 … 2^Bits-1; nil: 2^(Bits-1) everywhere
	GIdx    []int32   // [In], nil: k/GroupSize
	Blocks  []byte
	EXL2    *EXL2    // what grid "exl2" has beside Codes
	Notes   []string // what Unpack had to decide about a quirk of the writer, for the report
}

// Layout is one row of the layout table.
type Layout struct {
	Name  string // "awq", "gptq", "gptq_v2", "compressed-tensors", …
	Doc   string // one line for `quantize list formats`
	Check func(s Scheme, out, in int) error
	// Plan lists the tensors that replace base+".weight".
	Plan func(base string, s Scheme, out, in int) []tensor.Info
	// Pack writes every tensor of Plan; dst returns the bytes of the tensor with that suffix ("qweight"). A code, zero
	// point or scale that the layout cannot hold exactly is an error, never a clamp. Nil: the layout is read only.
	Pack func(l *Linear, dst func(suffix string) []byte) error
	// Unpack reads them back. src returns nil for a tensor that the artifact lacks. Sizes are checked against out and
	// in before anything is allocated.
	Unpack func(s Scheme, out, in int, src func(suffix string) []byte) (*Linear, error)
	// detect recognises a module stored in this layout; found is false when it is stored otherwise (detect.go).
	detect func(c *Config, m Module) (f Found, found bool, err error)
	// config builds the value of quantization_config (config_write.go); sideConfig names a file of the same content.
	config     func(o ConfigOptions) (any, error)
	sideConfig string
	// valid says whether Pack can hold the weight exactly, and why not.
	valid func(l *Linear) error
	// adapt turns a weight into an equal one that Pack takes, on a shallow copy (convert.go).
	adapt func(l *Linear) error
}
