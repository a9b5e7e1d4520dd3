package packing

import (
	"github.com/llmquant/quantize/formats/safeio"
)

// Dequantize writes rows [firstRow, firstRow+rows) of the weight to dst[rows·In] in float32. For scales stored in 16
// bits the products are exact: at most 9 bits of q − z times at most 11 of s.
func (l *Linear) Dequantize(dst []float32, firstRow, rows int) error {
	if l.Grid == "exl2" {
		return l.dequantizeEXL2(dst, firstRow, rows)
	}
	groups := l.Groups(l.In)
	switch {
	case l.Grid != "int":
		return safeio.Unsupportedf("grid %q is not made of grouped integers", l.Grid)
	case firstRow < 0 || rows < 0 || firstRow > l.Out-rows:
		return safeio.Corruptf("rows %d … %d of %d", firstRow, firstRow+rows, l.Out)
	case len(dst) != rows*l.In || len(l.Codes) != l.Out*l.In || len(l.Scales) != l.Out*groups:
		return safeio.Corruptf("%d values for %d rows of %d × %d", len(dst), rows, l.Out, l.In)
	}
	span := l.GroupSize
	if span <= 0 {
		span = l.In
	}
	for i := range rows {
		n := firstRow + i
		out, codes := dst[i*l.In:(i+1)*l.In], l.Codes[n*l.In:(n+1)*l.In]
		if l.GIdx != nil {
			for k, q := range codes {
				j := n*groups + int(l.GIdx[k])
				out[k] = l.Scales[j] * (float32(q) - l.zero(j))
			}
			continue
		}
		for g := range groups {
			j := n*groups + g
			s, z := l.Scales[j], l.zero(j)
			for k := g * span; k < min((g+1)*span, l.In); k++ {
				out[k] = s * (float32(codes[k]) - z)
			}
		}
	}
	return nil
}

// zero returns the zero point of entry i of [Out, Groups].
func (l *Linear) zero(i int) float32 {
	if l.Zeros == nil {
		return float32(int(1) << (l.Bits - 1))
	}
	return l.Zeros[i]
}

// needNaturalOrder refuses activation order where the layout has no group index for it.
func (l *Linear) needNaturalOrder() error {
	if l.GIdx == nil {
		return nil
	}
	return safeio.Unsupportedf("the columns are grouped in activation order, which this layout cannot express; " +
		"write gptq or gptq_v2, or quantize again with static groups")
}
