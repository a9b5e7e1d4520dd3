package packing

import "github.com/llmquant/quantize/formats/tensor"

// Scales lie as [Groups, Out] in AWQ and GPTQ files and as [Out, Groups] in a Linear and in compressed-tensors.

// getScales reads scales stored as [groups, out] of type d into [out, groups].
func getScales(src []byte, d tensor.DType, out, groups int) ([]float32, error) {
	flat := make([]float32, out*groups)
	if err := tensor.ToFloat32(flat, d, src); err != nil {
		return nil, err
	}
	return transposed(flat, groups, out), nil
}

// putScales writes [out, groups] scales as [groups, out] of type d.
func putScales(dst []byte, d tensor.DType, scales []float32, out, groups int) error {
	return tensor.FromFloat32(dst, d, transposed(scales, out, groups))
}

// transposed returns the transpose of m[rows, cols].
func transposed(m []float32, rows, cols int) []float32 {
	t := make([]float32, len(m))
	for r := range rows {
		for c, v := range m[r*cols : (r+1)*cols] {
			t[c*rows+r] = v
		}
	}
	return t
}
