package kernel

import (
	"os"
	"slices"
	"sync"
)

// real is an element type of the products.
type real interface{ float32 | float64 }

// kernels is what a kernel set provides for products of one element type. Packed panels of A hold aStride elements per step
// of k, of which mr are rows of C; packed panels of B hold nr. Whatever packs or multiplies, the bits are the same.
type kernels[T real] struct {
	mr, nr, aStride int
	tiles           []tileFunc[T] // by rows of C minus one
	mc              int           // panels of A that stay in the second-level cache

	vector    int                // bytes of a vector; 0 means that the functions below are missing
	group     int                // matrix rows per call of transpose
	transpose [kinds]packT[T]    // by Kind
	copyA     copyFunc[T]        // float32 or float64 only
	copyB     [kinds]copyFunc[T] // by Kind
	tileWide  tileWideFunc[T]    // adds a whole tile to a float64 matrix, or nil
}

type (
	// tileFunc multiplies packed panels over k steps into rows of nr elements at c, adding to them if add is set.
	tileFunc[T real] func(k int, a, b, c *T, ldc int, add bool)
	// tileWideFunc adds the product of packed panels to mr rows of nr elements at c.
	tileWideFunc[T real] func(k int, a, b *T, c *float64, ldc int)
	// packT packs rows that run along k; step and stride are in bytes, chunks counts vectors of a row.
	packT[T real] func(dst *T, step int, src *byte, stride, rows, chunks int)
	// copyFunc packs k rows that run across k into panels; distances are in bytes.
	copyFunc[T real] func(dst *T, dstPanel int, src *byte, srcRow, srcPanel, panels, k int)
)

// set is a kernel set: everything that differs between processors.
type set struct {
	name   string
	family string // the name of its instruction set, see Features
	f32    kernels[float32]
	bf16   kernels[float32] // of words, see gemm_bf16.go
	f64    kernels[float64]
	vec    *vectors // nil for the portable loops

	skinny skinny
}

// Tables of packing functions have a row for every public kind and one for float64 matrices.
const (
	kindF64 Kind = Pairs + 1
	kinds        = int(kindF64) + 1
)

var generic = &set{
	name:   "generic",
	family: "generic",
	f32:    kernels[float32]{mr: 4, nr: 8, aStride: 4, mc: 16, tiles: portableTiles(tile32)},
	bf16:   kernels[float32]{mr: 4, nr: 8, aStride: 4, mc: 16, tiles: portableTiles(tileBF16)},
	f64:    kernels[float64]{mr: 4, nr: 8, aStride: 4, mc: 16, tiles: portableTiles(tile64)},
}

// active is the kernel set in use: the one that the environment variable QUANTIZE_KERNEL names if this processor has it,
// else the fastest.
var active = sync.OnceValue(func() *set {
	sets := available()
	want := os.Getenv("QUANTIZE_KERNEL")
	if i := slices.IndexFunc(sets, func(s *set) bool { return s.name == want }); i >= 0 {
		return sets[i]
	}
	return sets[0]
})

// Features names the instructions that the kernel set in use is built on: "avx512", "avx2" or "generic". The two sets
// "avx512-bf16" and "avx512" differ in how they multiply bfloat16 numbers alone and are both "avx512".
func Features() string { return active().family }

// Name is the kernel set in use, by the name that QUANTIZE_KERNEL takes: that of Features, or "avx512-bf16".
func Name() string { return active().name }

// Names lists the kernel sets that this processor can run, fastest first.
func Names() []string {
	var names []string
	for _, s := range available() {
		names = append(names, s.name)
	}
	return names
}

// Available lists what Features can be on this processor, fastest first.
func Available() []string {
	var names []string
	for _, s := range available() {
		names = append(names, s.family)
	}
	return slices.Compact(names)
}
