package kernel

import (
	"math"
	"unsafe"

	"github.com/llmquant/quantize/formats/tensor"
)

// operand is A or B of a product: outer values (rows of A, columns of B) times k.
type operand[T real] struct {
	data   []T      // for the kinds that need no widening
	half   []uint16 // for BF16, F16 and Pairs
	kind   Kind
	stride int
	outer  int
	alongK bool // a memory row holds the k values of one outer index; otherwise all outer values of one k
}

// at reads one element. Packing uses it only at the edges.
func (o *operand[T]) at(i, k int) T {
	if !o.alongK {
		i, k = k, i
	}
	switch o.kind {
	case BF16:
		return T(tensor.BF16ToF32(o.half[i*o.stride+k]))
	case F16:
		return T(tensor.F16ToF32(o.half[i*o.stride+k]))
	case Pairs: // bits that only a tile of bfloat16 products takes for numbers
		word := o.half[2*(i*o.stride+k):][:2]
		return T(math.Float32frombits(uint32(word[0]) | uint32(word[1])<<16))
	}
	return o.data[i*o.stride+k]
}

// address is where the element of memory row i and memory column k lies.
func (o *operand[T]) address(i, k int) *byte {
	switch o.kind {
	case BF16, F16:
		return (*byte)(unsafe.Pointer(&o.half[i*o.stride+k]))
	case Pairs:
		return (*byte)(unsafe.Pointer(&o.half[2*(i*o.stride+k)]))
	}
	return (*byte)(unsafe.Pointer(&o.data[i*o.stride+k]))
}

// bytes is the size of an element in memory.
func (o *operand[T]) bytes() int {
	switch o.kind {
	case BF16, F16:
		return 2
	case Pairs:
		return 4
	}
	return int(unsafe.Sizeof(*new(T)))
}

// panels is a run of packed panels: panel i holds outer values first+i*width and up for k0 <= k < k0+kc, as kc steps of
// stride elements. Elements of a step beyond width or beyond the matrix are undefined.
type panels[T real] struct {
	dst           []T
	width, stride int
	first, count  int // first outer value, number of panels
	k0, kc        int
	copy          copyFunc[T]
}

// pack fills the panels from o with the kernels of ks.
func (p *panels[T]) pack(ks *kernels[T], o *operand[T]) {
	if o.alongK {
		p.packTransposed(ks, o)
	} else {
		p.packCopied(ks, o)
	}
}

// packTransposed handles matrix rows that run along k: whole chunks of a vector by assembly, the rest one by one.
func (p *panels[T]) packTransposed(ks *kernels[T], o *operand[T]) {
	step, done := p.stride*int(unsafe.Sizeof(p.dst[0])), 0
	transpose := ks.transpose[o.kind]
	if transpose != nil {
		done = p.kc - p.kc%(ks.vector/o.bytes())
	}
	for i := range p.count {
		first := p.first + i*p.width
		width := min(p.width, o.outer-first)
		dst := p.dst[i*p.stride*p.kc:][:p.stride*p.kc]
		for g := 0; g < width && done > 0; g += ks.group {
			transpose(&dst[g], step, o.address(first+g, p.k0), o.stride*o.bytes(), min(ks.group, width-g), done/(ks.vector/o.bytes()))
		}
		for k := done; k < p.kc; k++ {
			for j := range width {
				dst[k*p.stride+j] = o.at(first+j, p.k0+k)
			}
		}
	}
}

// copyBurst bounds the elements that one call of a copying pack moves, so that no call takes longer than some 20 µs.
const copyBurst = 1 << 14

// packCopied handles matrix rows that run across k. The copying kernels move whole steps of stride elements, so panels that
// reach less than that from the end of a row are copied one by one.
func (p *panels[T]) packCopied(ks *kernels[T], o *operand[T]) {
	whole := 0
	if p.copy != nil && o.outer-p.first >= p.stride {
		whole = min(p.count, (o.outer-p.first-p.stride)/p.width+1)
	}
	if whole > 0 {
		size, burst := int(unsafe.Sizeof(p.dst[0])), max(1, copyBurst/(whole*p.stride))
		for k := 0; k < p.kc; k += burst {
			p.copy(&p.dst[k*p.stride], p.stride*p.kc*size, o.address(p.k0+k, p.first), o.stride*o.bytes(), p.width*o.bytes(), whole, min(burst, p.kc-k))
		}
	}
	for i := whole; i < p.count; i++ {
		first := p.first + i*p.width
		width := min(p.width, o.outer-first)
		dst := p.dst[i*p.stride*p.kc:][:p.stride*p.kc]
		for k := range p.kc {
			for j := range width {
				dst[k*p.stride+j] = o.at(first+j, p.k0+k)
			}
		}
	}
}
