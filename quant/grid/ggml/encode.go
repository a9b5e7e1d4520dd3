package ggml

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/llmquant/quantize/formats/tensor"
)

// hugeImportance is where sums of weighted squares may leave float32. The reference then compares infinities and NaNs, which
// only the portable code imitates.
const hugeImportance = 1e20

// encoder is the input of one EncodeRows call, checked, and what the encoders of all types share.
type encoder struct {
	*coder
	dst  []byte
	x    []float32 // some whole rows of cols weights, row-major
	cols int       // weights per row
	im   columns
}

// columns is the importance of the columns of a run of weights: im repeats for every row, weight 0 is in column first.
type columns struct {
	im    []float32 // nil: none
	first int
}

func (c columns) none() bool { return c.im == nil }

// skip returns the importance from weight n on.
func (c columns) skip(n int) columns {
	if c.im == nil {
		return c
	}
	return columns{c.im, (c.first + n) % len(c.im)}
}

// of returns the importance of weights i … i+n-1, which lie in one row; nil when there is none.
func (c columns) of(i, n int) []float32 {
	if c.im == nil {
		return nil
	}
	at := (c.first + i) % len(c.im)
	return c.im[at : at+n : at+n]
}

// EncodeRows encodes rows·k weights, row-major, into dst, which must be rows·RowBytes(k) long. importance is nil or
// holds one non-negative number per column; types that ignore it accept it, types with NeedsImatrix require it. An
// importance of zeros throughout says nothing and counts as 1 everywhere (the reference would write zeros).
//
// Rows are independent: any split of a matrix into calls gives the same bytes.
//
// Every type checks every weight: if any is NaN or infinite the error is a *NonFiniteError with the index into x of the first
// of them, whatever else is wrong with the weights; callers need no scan of their own. Weights too large for the type's scale
// give an *OverflowError. After an error dst holds no usable data.
func (t *Type) EncodeRows(dst []byte, x []float32, rows, k int, importance []float32) error {
	return t.encodeWith(active(), dst, x, rows, k, importance)
}

// encodeWith is EncodeRows with the given vector kernels; nil is the portable code.
func (t *Type) encodeWith(set *kernels, dst []byte, x []float32, rows, k int, importance []float32) error {
	if t.encode == nil {
		return fmt.Errorf("ggml: %s cannot be produced: %s", t.Name, t.Doc)
	}
	rowBytes, err := t.RowBytes(k)
	if err != nil {
		return err
	}
	weights, ok1 := tensor.Mul(int64(rows), int64(k))
	size, ok2 := tensor.Mul(int64(rows), rowBytes)
	if !ok1 || !ok2 || int64(len(x)) != weights || int64(len(dst)) != size {
		return fmt.Errorf("ggml: %s: %d weights and %d bytes given for %d rows of %d", t.Name, len(x), len(dst), rows, k)
	}
	im, err := t.importance(importance, k)
	if err != nil {
		return cmp.Or(nonFinite(x, 0), err)
	}
	if slices.ContainsFunc(im, func(v float32) bool { return v > hugeImportance }) {
		set = nil
	}
	return t.encodeTiles(&encoder{coder: newCoder(set), cols: k, im: columns{im: im}}, dst, x)
}

// tileWeights is about how many weights are checked and then encoded: they stay in the cache in between.
const tileWeights = 1 << 16

// encodeTiles encodes a few rows after the other, a multiple of 16: kernels then always have their 16 blocks.
func (t *Type) encodeTiles(e *encoder, dst []byte, x []float32) error {
	tile := max(tileWeights/lanes/e.cols, 1) * lanes * e.cols
	for i := 0; i < len(x); i += tile {
		e.x = x[i:min(i+tile, len(x))]
		e.dst = dst[i/t.Elems*t.Bytes:][:len(e.x)/t.Elems*t.Bytes]
		weight := t.checkWeights(e.coder.k, e.x)
		if weight < 0 {
			t.encode(e)
			if t.Elems == 1 { // plain numbers have been checked
				continue
			}
			block := t.check(e.dst, t.Bytes)
			if block < 0 {
				continue
			}
			weight = block * t.Elems
		}
		if err := nonFinite(x, i); err != nil { // here or further on: the worse news
			return err
		}
		at := i + weight
		return &OverflowError{Type: t.Name, Row: at / e.cols, Block: at % e.cols / t.Elems}
	}
	return nil
}

// importance checks the argument of EncodeRows and drops it when it changes nothing.
func (t *Type) importance(im []float32, k int) ([]float32, error) {
	if im == nil {
		if t.NeedsImatrix {
			return nil, fmt.Errorf("ggml: %s needs an importance matrix", t.Name)
		}
		return nil, nil
	}
	if len(im) != k {
		return nil, fmt.Errorf("ggml: %d importance values for %d columns", len(im), k)
	}
	zero := true
	for i, v := range im {
		if !(v >= 0 && v <= math.MaxFloat32) {
			return nil, &NonFiniteError{What: "importance", Index: i, Value: v}
		}
		zero = zero && v == 0
	}
	if !t.UsesImatrix {
		return nil, nil
	}
	if zero {
		return slices.Repeat([]float32{1}, k), nil
	}
	return im, nil
}

// checkWeights returns the index of the first weight that is NaN, infinite or beyond what the type can represent, -1 when
// there is none.
func (t *Type) checkWeights(set *kernels, x []float32) int {
	limit := float32(math.MaxFloat32)
	if t.limit > 0 {
		limit = t.limit
	}
	bits := math.Float32bits(limit)
	clean := 0 // weights known to be within the limit
	if n := len(x) / run; set != nil && n > 0 && set.block.largest(&x[0], n) <= bits {
		clean = n * run
	}
	for i, v := range x[clean:] {
		if math.Float32bits(v)&^(1<<31) > bits {
			return clean + i
		}
	}
	return -1
}

// nonFinite returns an error for the first NaN or infinity in x from index `from` on, nil when there is none.
func nonFinite(x []float32, from int) error {
	if i := firstNonFinite(x[from:]); i >= 0 {
		return &NonFiniteError{What: "weight", Index: from + i, Value: x[from+i]}
	}
	return nil
}

// firstNonFinite returns the index of the first NaN or infinity, -1 when there is none.
func firstNonFinite(x []float32) int {
	for i, v := range x {
		if math.Float32bits(v)&0x7f800000 == 0x7f800000 {
			return i
		}
	}
	return -1
}

// rows calls f for every row with its share of dst.
func (e *encoder) rows(f func(dst []byte, x []float32)) {
	n := len(e.x) / e.cols
	if n == 0 {
		return
	}
	size := len(e.dst) / n
	for r := range n {
		f(e.dst[r*size:(r+1)*size], e.x[r*e.cols:(r+1)*e.cols])
	}
}

// blocks calls f for every block of all rows, with the importance of its columns (nil when there is none).
func (e *encoder) blocks(elems, size int, f func(b []byte, x, im []float32)) {
	for i, at := 0, 0; i < len(e.x); i, at = i+elems, at+size {
		f(e.dst[at:at+size:at+size], e.x[i:i+elems:i+elems], e.im.of(i, elems))
	}
}

// tiles calls f for every 16 blocks, the last time perhaps fewer.
func (e *encoder) tiles(elems, size int, f func(dst []byte, x []float32, im columns)) {
	for i := 0; i < len(e.x); i += elems * lanes {
		n := min(elems*lanes, len(e.x)-i)
		at := i / elems * size
		f(e.dst[at:at+n/elems*size], e.x[i:i+n], e.im.skip(i))
	}
}
