package packing

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// maxDim bounds a dimension of a matrix, so that products of two dimensions and a bit width stay far inside int64.
const maxDim = 1 << 28

// checkInt checks what every integer layout needs: sane sizes, a bit width out of widths, a group size that divides
// the row. Servers refuse a short last group, so a ragged one is refused here with the sizes that would do.
func checkInt(s Scheme, out, in int, widths ...int) error {
	if s.Grid != "int" {
		return safeio.Unsupportedf("grid %q cannot be stored as grouped integers", s.Grid)
	}
	if out < 1 || in < 1 || out > maxDim || in > maxDim {
		return safeio.Limitf("a weight of %d × %d is outside 1 … %d", out, in, maxDim)
	}
	if elements(out, in) > math.MaxInt {
		return safeio.Limitf("a weight of %d × %d does not fit the address space", out, in)
	}
	if !slices.Contains(widths, s.Bits) {
		return safeio.Unsupportedf("%d bits are not stored by this layout (it stores %s)", s.Bits, list(widths))
	}
	if s.ScaleType != tensor.Invalid && !slices.Contains(floatTypes, s.ScaleType) {
		return safeio.Unsupportedf("scales of %s", s.ScaleType)
	}
	if s.GroupSize == 0 || s.GroupSize < -1 || s.GroupSize > maxDim {
		return safeio.Unsupportedf("group size %d is neither positive nor -1", s.GroupSize)
	}
	if s.GroupSize > 0 && in%s.GroupSize != 0 {
		return safeio.Unsupportedf("%d input columns are not a multiple of the group size %d%s", in, s.GroupSize, legalGroups(in))
	}
	return nil
}

func legalGroups(in int) string {
	var ok []int
	for _, g := range []int{32, 64, 128} {
		if in%g == 0 {
			ok = append(ok, g)
		}
	}
	if len(ok) == 0 {
		return "; use -1 (one group per row)"
	}
	return "; " + list(ok) + " would fit"
}

// checkMultiple names the dimension that a layout cannot split into words.
func checkMultiple(what string, n, of int) error {
	if n%of != 0 {
		return safeio.Unsupportedf("%d %s are not a multiple of %d", n, what, of)
	}
	return nil
}

func list(ns []int) string {
	words := make([]string, len(ns))
	for i, n := range ns {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ", ")
}

// sized returns the bytes of a tensor and insists on their number, so that the loops behind it need no bounds of
// their own and hostile sizes never reach an allocation.
func sized(get func(string) []byte, suffix string, elements int64, d tensor.DType) ([]byte, error) {
	b := get(suffix)
	if b == nil {
		return nil, safeio.Corruptf("tensor %s is missing", suffix)
	}
	want, ok := tensor.Mul(elements, d.Size())
	if !ok || want != int64(len(b)) {
		return nil, safeio.Corruptf("tensor %s has %d bytes where %d elements of %s are expected", suffix, len(b), elements, d)
	}
	return b, nil
}

// elements multiplies validated dimensions in int64, to keep products out of int on 32-bit machines.
func elements(dims ...int) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= int64(d)
	}
	return n
}

// scaleType returns the type of the stored scales, def when the scheme leaves it to the layout.
func (s Scheme) scaleType(def tensor.DType) tensor.DType {
	if s.ScaleType == tensor.Invalid {
		return def
	}
	return s.ScaleType
}

// checkLinear checks before packing that l is whole and that nothing in it exceeds its field: codes and zero points
// inside the bit width, scales finite, not zero and exact in type d.
func checkLinear(l *Linear, d tensor.DType) error {
	groups := l.Groups(l.In)
	n, g := elements(l.Out, l.In), elements(l.Out, groups)
	switch {
	case int64(len(l.Codes)) != n:
		return safeio.Corruptf("%d codes for a weight of %d × %d", len(l.Codes), l.Out, l.In)
	case int64(len(l.Scales)) != g:
		return safeio.Corruptf("%d scales for %d rows of %d groups", len(l.Scales), l.Out, groups)
	case l.Zeros != nil && int64(len(l.Zeros)) != g:
		return safeio.Corruptf("%d zero points for %d rows of %d groups", len(l.Zeros), l.Out, groups)
	case l.GIdx != nil && len(l.GIdx) != l.In:
		return safeio.Corruptf("%d group indices for %d columns", len(l.GIdx), l.In)
	}
	if err := checkGIdx(l.GIdx, groups); err != nil {
		return err
	}
	top := uint8(1<<l.Bits - 1)
	for i, q := range l.Codes {
		if q > top {
			return safeio.Corruptf("code %d of row %d does not fit %d bits", q, i/l.In, l.Bits)
		}
	}
	for i, z := range l.Zeros {
		if z < 0 || z > float32(top) || z != float32(int(z)) {
			return safeio.Corruptf("zero point %v of row %d does not fit %d bits", z, i/groups, l.Bits)
		}
	}
	return checkScales(l.Scales, d, groups)
}

// checkHalf is checkLinear for layouts whose readers assume F16 scales. Files with BF16 scales exist and are read;
// they are not written.
func checkHalf(l *Linear) error {
	if d := l.scaleType(tensor.F16); d != tensor.F16 {
		return safeio.Unsupportedf("scales of %s: loaders of this layout expect F16", d)
	}
	return checkLinear(l, tensor.F16)
}

func checkGIdx(idx []int32, groups int) error {
	for k, g := range idx {
		if g < 0 || int(g) >= groups {
			return safeio.Corruptf("column %d names group %d of %d", k, g, groups)
		}
	}
	return nil
}

func checkScales(scales []float32, d tensor.DType, groups int) error {
	for i, s := range scales {
		if math.IsNaN(float64(s)) || math.IsInf(float64(s), 0) || s == 0 {
			return safeio.Corruptf("scale of row %d, group %d is %v", i/groups, i%groups, s)
		}
		if RoundTo(d, s) != s {
			return safeio.Unsupportedf("scale %v of row %d, group %d is not exact in %s", s, i/groups, i%groups, d)
		}
	}
	return nil
}

// RoundTo rounds v to the nearest value of type d (F16, BF16 or F32; other types leave v alone).
func RoundTo(d tensor.DType, v float32) float32 {
	switch d {
	case tensor.F16:
		return tensor.F16ToF32(tensor.F32ToF16(v))
	case tensor.BF16:
		return tensor.BF16ToF32(tensor.F32ToBF16(v))
	}
	return v
}

// zeroAt returns the zero point of entry i of [Out, Groups].
func (l *Linear) zeroAt(i int) uint8 {
	if l.Zeros == nil {
		return uint8(1) << (l.Bits - 1)
	}
	return uint8(l.Zeros[i])
}

// dropCentredZeros forgets zero points that all lie at 2^(bits-1): nil says the same in less memory.
func (l *Linear) dropCentredZeros() {
	mid := float32(int(1) << (l.Bits - 1))
	for _, z := range l.Zeros {
		if z != mid {
			return
		}
	}
	l.Zeros = nil
}

// dropPlainGIdx forgets a group index that says k/GroupSize.
func (l *Linear) dropPlainGIdx() {
	g := l.GroupSize
	if g <= 0 {
		g = l.In
	}
	for k, j := range l.GIdx {
		if int(j) != k/g {
			return
		}
	}
	l.GIdx = nil
}
