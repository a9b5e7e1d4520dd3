package packing

import (
	"math"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// ExLlamaV2 computes with half floats from the first step on, so values here are rounded where it rounds: what is
// decoded is bit for bit what its kernels see.

// EXL2Scale returns the step of an output whose scale code is s (1 … 16) in a group with q_scale_max top (bits of a
// half): s²·(top/256). The division comes first and is rounded, so steps below 2⁻¹⁴/256 lose digits and the least
// vanish.
func EXL2Scale(top uint16, s int) float32 {
	d := RoundTo(tensor.F16, tensor.F16ToF32(top)/256)
	return RoundTo(tensor.F16, float32(s*s)*d)
}

// EXL2Value returns the weight of a code: (code − 2^(bits−1))·scale as a half.
func EXL2Value(code uint8, bits int, scale float32) float32 {
	return RoundTo(tensor.F16, float32(int(code)-1<<(bits-1))*scale)
}

// groupOf lists the group of every input column.
func (e *EXL2) groupOf() []int32 {
	byRow := make([]int32, 0, len(e.Row))
	for g, group := range e.Groups {
		for range group.Rows {
			byRow = append(byRow, int32(g))
		}
	}
	cols := make([]int32, len(e.Row))
	for k, r := range e.Row {
		cols[k] = byRow[r]
	}
	return cols
}

// dequantizeEXL2 is Dequantize for the grid "exl2".
func (l *Linear) dequantizeEXL2(dst []float32, firstRow, rows int) error {
	if err := l.checkEXL2Sizes(); err != nil {
		return err
	}
	if firstRow < 0 || rows < 0 || firstRow > l.Out-rows || len(dst) != rows*l.In {
		return safeio.Corruptf("rows %d … %d of %d into %d values", firstRow, firstRow+rows, l.Out, len(dst))
	}
	e, groupOf := l.EXL2, l.EXL2.groupOf()
	zero := make([]int32, len(e.Groups))
	for g, group := range e.Groups {
		zero[g] = 1 << (group.Bits - 1)
	}
	scale := make([]float32, len(e.Groups))
	for i := range rows {
		n := firstRow + i
		for g := range scale {
			scale[g] = EXL2Scale(e.Max[g], int(e.Scale[g*l.Out+n])+1)
		}
		out := dst[i*l.In : (i+1)*l.In]
		for k, q := range l.Codes[n*l.In : (n+1)*l.In] {
			g := groupOf[k]
			out[k] = RoundHalf(float32(int32(q)-zero[g]) * scale[g])
		}
	}
	return nil
}

// RoundHalf is RoundTo(F16, v), short for the common case: adding and subtracting 1.5·2^(e+13), with 2^e the
// magnitude of v, leaves the eleven digits of a half. The largest values go the long way because they may overflow.
func RoundHalf(v float32) float32 {
	exp := math.Float32bits(v) & 0x7f800000
	if exp >= 142<<23 {
		return RoundTo(tensor.F16, v)
	}
	exp = max(exp, 113<<23) // halves below 2⁻¹⁴ have one spacing
	magic := math.Float32frombits(exp + 13<<23 | 1<<22)
	return float32(v+magic) - magic
}

// checkEXL2Sizes checks that every slice has the size that indexing relies on, and that Row is a permutation.
func (l *Linear) checkEXL2Sizes() error {
	e := l.EXL2
	if e == nil || l.Grid != "exl2" {
		return safeio.Unsupportedf("grid %q without groups of mixed bit widths", l.Grid)
	}
	if err := checkEXL2Groups(e.Groups, l.In); err != nil {
		return err
	}
	g := len(e.Groups)
	switch {
	case int64(len(l.Codes)) != elements(l.Out, l.In):
		return safeio.Corruptf("%d codes for a weight of %d × %d", len(l.Codes), l.Out, l.In)
	case int64(len(e.Scale)) != elements(g, l.Out) || len(e.Max) != g:
		return safeio.Corruptf("%d scales and %d maxima for %d groups of %d outputs", len(e.Scale), len(e.Max), g, l.Out)
	case len(e.Row) != l.In:
		return safeio.Corruptf("a permutation of %d for %d columns", len(e.Row), l.In)
	}
	seen := make([]bool, l.In)
	for k, r := range e.Row {
		if r < 0 || int(r) >= l.In || seen[r] {
			return safeio.Corruptf("column %d lies in packed row %d, which is outside of %d or taken", k, r, l.In)
		}
		seen[r] = true
	}
	return nil
}

// exl2Valid says whether Pack can hold the weight: groups legal, codes inside their width, every value finite.
func exl2Valid(l *Linear) error {
	if err := exl2Check(l.Scheme, l.Out, l.In); err != nil {
		return err
	}
	if err := l.checkEXL2Sizes(); err != nil {
		return err
	}
	e := l.EXL2
	if mix := EXL2Mix(e.Groups); mix != l.Mix {
		return safeio.Corruptf("the weight has groups %q, its scheme %q", mix, l.Mix)
	}
	for i, s := range e.Scale {
		if s > 15 {
			return safeio.Corruptf("scale code %d of output %d, group %d does not fit 4 bits", s, i%l.Out, i/l.Out)
		}
	}
	for g, group := range e.Groups {
		top := tensor.F16ToF32(e.Max[g])
		if largest := float32(int(1)<<(group.Bits-1)) * top; !(largest <= 65504 && largest >= -65504) {
			return safeio.Unsupportedf("q_scale_max %v of group %d makes weights that overflow F16", top, g)
		}
	}
	groupOf := e.groupOf()
	for i, q := range l.Codes {
		if bits := e.Groups[groupOf[i%l.In]].Bits; int(q)>>bits != 0 {
			return safeio.Corruptf("code %d of output %d, input %d does not fit %d bits", q, i/l.In, i%l.In, bits)
		}
	}
	return nil
}
