package quant

import (
	"math"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid"
)

// affine is the integer grid of one scheme with the rounding of its stored scale.
type affine struct {
	maxQ  float32
	minZ  float32 // smallest zero point that the layout stores
	sym   bool
	store tensor.DType
}

func newAffine(s packing.Scheme, minZero int) affine {
	store := s.ScaleType
	if store == tensor.Invalid {
		store = tensor.F16
	}
	return affine{maxQ: float32(int(1)<<s.Bits - 1), minZ: float32(minZero), sym: s.Sym, store: store}
}

// params returns scale and zero point for the range [lo, hi] (which includes 0), the scale as it will be stored.
// Symmetric ranges use the whole code range: amax·2/(2^b−1), zero point 2^(b−1). algorithms: GPTQ, compressed-tensors.
func (a affine) params(lo, hi float32) (scale, zero float32) {
	if a.sym {
		hi = max(-lo, hi)
		lo = -hi
	}
	scale = a.stored((hi - lo) / a.maxQ)
	if a.sym {
		return scale, (a.maxQ + 1) / 2
	}
	return scale, min(max(roundEven(-lo/scale), a.minZ), a.maxQ)
}

func (a affine) stored(s float32) float32 { return grid.StoredScale(a.store, s) }

// code rounds w to the nearest code, ties to even.
func (a affine) code(w, inv, zero float32) float32 {
	return min(max(roundEven(float32(w*inv))+zero, 0), a.maxQ) // rounded: the product must not be fused into roundEven's sum
}

// roundEven rounds |x| < 2^22 to the nearest integer, ties to even, by pushing the fraction out of the mantissa;
// larger values only have to stay large, because the caller clamps.
func roundEven(x float32) float32 {
	const magic = 0x1.8p23
	if x > 0x1p22 || x < -0x1p22 {
		return x
	}
	return float32(x+magic) - magic
}

// rangeOf returns the smallest range that includes 0 and all of w.
func rangeOf(w []float32) (lo, hi float32) {
	for _, v := range w {
		lo = min(lo, v)
		hi = max(hi, v)
	}
	return lo, hi
}

// fakeRow writes the nearest representable values of w into dst, group by group with min-max ranges.
func (a affine) fakeRow(dst, w []float32, group int) {
	for g := 0; g < len(w); g += group {
		end := min(g+group, len(w))
		scale, zero := a.params(rangeOf(w[g:end]))
		inv := 1 / scale
		for k := g; k < end; k++ {
			dst[k] = scale * (a.code(w[k], inv, zero) - zero)
		}
	}
}

// fit holds the best parameters found so far for one column group of all rows, and scratch for candidates.
type fit struct {
	affine
	n, g        int
	w           kernel.Mat // [n,g] view of the weights
	gram        kernel.Mat // [g,g] view of the input's second moments
	scale, zero []float32  // [n] best so far
	err         []float32  // [n] its output error
	lo, hi      []float32  // [n] its clipping range
	delta, prod kernel.Mat // [n,g] scratch
	u           kernel.Mat // [n,g] scratch: q − zero of the candidate
	cs, cz      []float32  // [n] candidate parameters
}

func newFit(a affine, w, gram kernel.Mat) *fit {
	n, g := w.Rows, w.Cols
	vec := func() []float32 { return make([]float32, n) }
	mat := func() kernel.Mat { return kernel.MatF32(n, g, make([]float32, n*g)) }
	f := &fit{affine: a, n: n, g: g, w: w, gram: gram, scale: vec(), zero: vec(), err: vec(), lo: vec(), hi: vec(),
		cs: vec(), cz: vec(), delta: mat(), prod: mat(), u: mat()}
	for i := range f.err {
		f.err[i] = math.MaxFloat32
	}
	return f
}

// try rounds all rows with the candidate parameters cs, cz, measures δ·A·δᵀ and keeps what is strictly better;
// keep(i) is called for those rows.
func (f *fit) try(keep func(i int)) {
	for i := range f.n {
		w, u, d := f.w.Row(i), f.u.Row(i), f.delta.Row(i)
		s, z := f.cs[i], f.cz[i]
		inv := 1 / s
		for k, v := range w {
			q := f.code(v, inv, z) - z
			u[k] = q
			d[k] = v - float32(s*q)
		}
	}
	kernel.GemmNN(nil, f.prod, f.delta, f.gram, false)
	for i := range f.n {
		if e := kernel.Dot(f.delta.Row(i), f.prod.Row(i)); e < f.err[i] {
			f.err[i], f.scale[i], f.zero[i] = e, f.cs[i], f.cz[i]
			keep(i)
		}
	}
}

// ranges tries clipping every row's range to [lo·cl, hi·ch].
func (f *fit) ranges(cl, ch float32, lo, hi []float32) {
	for i := range f.n {
		f.cs[i], f.cz[i] = f.params(lo[i]*cl, hi[i]*ch)
	}
	f.try(func(i int) { f.lo[i], f.hi[i] = lo[i]*cl, hi[i]*ch })
}

// rescale replaces every row's best scale by the one that is optimal for its codes, s = (w·A·uᵀ)/(u·A·uᵀ), rounds
// again and keeps what is better.
func (f *fit) rescale() {
	for i := range f.n {
		w, u := f.w.Row(i), f.u.Row(i)
		inv := 1 / f.scale[i]
		for k, v := range w {
			u[k] = f.code(v, inv, f.zero[i]) - f.zero[i]
		}
	}
	kernel.GemmNN(nil, f.prod, f.u, f.gram, false)
	for i := range f.n {
		f.cs[i], f.cz[i] = f.scale[i], f.zero[i]
		num, den := kernel.Dot(f.w.Row(i), f.prod.Row(i)), kernel.Dot(f.u.Row(i), f.prod.Row(i))
		if s := num / den; den > 0 && s > 0 && !math.IsInf(float64(s), 0) {
			f.cs[i] = f.stored(s)
		}
	}
	f.try(func(int) {})
}

// search runs the whole schedule: common shrinking of the range, independent ends, then optimal scales. The full range
// comes first and only strictly better candidates replace it, so the result is never worse than plain rounding.
func (f *fit) search() {
	lo, hi := make([]float32, f.n), make([]float32, f.n)
	for i := range f.n {
		lo[i], hi[i] = rangeOf(f.w.Row(i))
	}
	for i := range shrinkSteps {
		c := 1 - float32(float32(i)*shrinkStep)
		f.ranges(c, c, lo, hi)
	}
	if !f.sym {
		for _, c := range endSteps {
			copy(lo, f.lo)
			copy(hi, f.hi)
			f.ranges(c, 1, lo, hi)
			copy(lo, f.lo)
			copy(hi, f.hi)
			f.ranges(1, c, lo, hi)
		}
	}
	for range rescaleRounds {
		f.rescale()
	}
}

const (
	shrinkSteps   = 12
	shrinkStep    = 0.05
	rescaleRounds = 3
)

var endSteps = [...]float32{0.95, 1.05, 0.9, 1.1, 0.97, 1.03}
