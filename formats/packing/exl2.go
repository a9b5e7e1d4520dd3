package packing

import (
	"fmt"
	"math"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// exl2 is ExLlamaV2's layout: input columns are sorted into packed rows, cut into groups, and every group has its own
// bit width. With N = Out rounded up to 32, G groups and W = Σ rows·bits/32:
//
//	q_weight I32 [W, N] stream down the packed rows of each output, q_scale I32 [G, N/8] nibbles along the outputs,
//	q_scale_max F16 [G], q_groups I16 [2G] (bits, first word row), q_invperm I32 [In] (packed row of input column k)
//
// Loaders recognise it by these names; quantization_config is for people and for other tools.
var exl2 = Layout{
	Name:   "exl2",
	Doc:    "ExLlamaV2: 2, 3, 4, 5, 6 and 8 bits mixed inside every linear, average bits to taste",
	Check:  exl2Check,
	Plan:   exl2Plan,
	Pack:   exl2Pack,
	Unpack: exl2Unpack,
	detect: detectEXL2,
	config: exl2Config,
	valid:  exl2Valid,
	adapt:  func(*Linear) error { return nil }, // Check refuses every other grid
}

// EXL2 is what a weight of grid "exl2" has beside its codes, which lie in natural order as everywhere: the value of
// output n at input k is EXL2Value(Codes[n,k], bits of k's group, scale of n in that group).
type EXL2 struct {
	Groups []EXL2Group // in packed order
	Row    []int32     // [In]: packed row of input column k, a permutation
	Scale  []uint8     // [Groups, Out]: s − 1, 0 … 15
	Max    []uint16    // [Groups]: q_scale_max, bits of a half
}

// EXL2Group is a run of packed rows with one bit width.
type EXL2Group struct{ Bits, Rows int }

// Limits of the layout.
const (
	exl2Unit    = 32    // kernels take rows and outputs in multiples of this
	exl2MaxIn   = 65535 // loaders cut the permutation to 16 bits; group starts (at most In·8/32 words) then fit theirs
	exl2Release = "0.3.2"
)

// exl2Wide lists the bit widths in the order in which kernels walk them.
var exl2Wide = []int{8, 6, 5, 4, 3, 2}

// exl2Pad rounds a number of outputs up to what is stored.
func exl2Pad(out int) int { return (out + exl2Unit - 1) / exl2Unit * exl2Unit }

// EXL2Outputs is the number of outputs that are stored for a linear, and of the elements of its bias.
func EXL2Outputs(out int) int { return exl2Pad(out) }

// exl2Check checks shape and groups against what loaders and kernels take for granted: they verify almost nothing.
func exl2Check(s Scheme, out, in int) error {
	if s.Grid != "exl2" {
		return safeio.Unsupportedf("grid %q cannot be stored as groups of mixed bit widths; quantize with method exl2", s.Grid)
	}
	if err := EXL2Fits(out, in); err != nil {
		return err
	}
	groups, err := ParseEXL2Mix(s.Mix)
	if err != nil {
		return err
	}
	return checkEXL2Groups(groups, in)
}

// EXL2Fits says whether a weight of this shape can be stored, whatever its groups.
func EXL2Fits(out, in int) error {
	if out < 1 || in < 1 || out > maxDim-exl2Unit || in > maxDim {
		return safeio.Limitf("a weight of %d × %d is outside 1 … %d", out, in, maxDim)
	}
	if elements(exl2Pad(out), in) > math.MaxInt {
		return safeio.Limitf("a weight of %d × %d does not fit the address space", out, in)
	}
	if in%exl2Unit != 0 {
		return safeio.Unsupportedf("%d input columns are not a multiple of %d, which exl2's kernels need", in, exl2Unit)
	}
	if in > exl2MaxIn {
		return safeio.Unsupportedf("%d input columns are more than the %d that exl2's permutation can number", in, exl2MaxIn)
	}
	return nil
}

// exl2Plan needs a scheme that Check accepts.
func exl2Plan(base string, s Scheme, out, in int) []tensor.Info {
	groups, err := ParseEXL2Mix(s.Mix)
	if err != nil {
		return nil
	}
	n, g := int64(exl2Pad(out)), int64(len(groups))
	return []tensor.Info{
		{Name: base + ".q_groups", DType: tensor.I16, Shape: []int64{2 * g}},
		{Name: base + ".q_invperm", DType: tensor.I32, Shape: []int64{int64(in)}},
		{Name: base + ".q_scale", DType: tensor.I32, Shape: []int64{g, n / 8}},
		{Name: base + ".q_scale_max", DType: tensor.F16, Shape: []int64{g}},
		{Name: base + ".q_weight", DType: tensor.I32, Shape: []int64{int64(exl2Words(groups)), n}},
	}
}

// EXL2Bits returns the bits that a weight without bias occupies in the layout. Divided by in times the padded number of
// outputs it is what ExLlamaV2 calls bits per weight.
func EXL2Bits(groups []EXL2Group, out, in int) int64 {
	n := int64(exl2Pad(out))
	return 32*int64(exl2Words(groups))*n + int64(len(groups))*(16+32+4*n) + 32*int64(in)
}

// EXL2Weights is the number of weights that ExLlamaV2 counts for a matrix: outputs are padded.
func EXL2Weights(out, in int) int64 { return int64(exl2Pad(out)) * int64(in) }

// exl2Words is the number of word rows of q_weight.
func exl2Words(groups []EXL2Group) int {
	words := 0
	for _, g := range groups {
		words += g.Rows * g.Bits / 32
	}
	return words
}

// EXL2FileName names shard i (from 1) of n as ExLlamaV2's converter does. There is no index file: the loader takes every
// safetensors file of the directory.
func EXL2FileName(i, n int) string {
	if n == 1 {
		return "output.safetensors"
	}
	return fmt.Sprintf("output-%05d-of-%05d.safetensors", i, n)
}
