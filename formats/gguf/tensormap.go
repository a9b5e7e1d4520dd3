package gguf

import (
	"encoding/binary"
	"math"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// TensorMap says how one GGUF tensor is made from tensors in Hugging Face names. All transformations move whole rows,
// so a pipeline can stream any tensor in pieces of a few rows.
type TensorMap struct {
	Tensor             // name, type and shape in the GGUF file
	Sources  []string  // one tensor per matrix (expert), or the only one
	RotaryQK int       // heads of a q or k projection whose rows are stored as interleaved rotary pairs; 0: order kept
	Data     []float32 // a tensor that exists in GGUF only (rope_freqs): its values; Sources is empty then
}

// interleave maps row r of a head in GGUF order to the row in Hugging Face order. Rotary pairs lie side by side in GGUF
// (2b, 2b+1) and half a head apart in Transformers (b, b+dim/2).
func interleave(r, dim int64) int64 { return r%2*(dim/2) + r/2 }

// deinterleave is the inverse of interleave.
func deinterleave(r, dim int64) int64 {
	if r < dim/2 {
		return 2 * r
	}
	return 2*(r-dim/2) + 1
}

// SourceRow returns where row r of the tensor (counted over all matrices) comes from.
func (m *TensorMap) SourceRow(r int64) (name string, row int64) {
	matrix, row := r/m.NE[1], r%m.NE[1]
	if m.RotaryQK > 0 && m.Dims > 1 {
		dim := m.NE[1] / int64(m.RotaryQK)
		row = row/dim*dim + interleave(row%dim, dim)
	}
	return m.Sources[matrix], row
}

// ReadRows fills dst with rows first … first+len(dst)/Cols-1, widened to float32. Rows of one head are read together, so
// memory stays near len(dst) whatever the tensor's size.
func (m *TensorMap) ReadRows(src tensor.Source, dst []float32, first int64) error {
	cols := m.Cols()
	rows := int64(len(dst)) / cols
	if rows*cols != int64(len(dst)) {
		return &safeio.Error{Op: "convert", Tensor: m.Name, Err: safeio.Corruptf("%d numbers do not make rows of %d", len(dst), cols)}
	}
	var buf []byte
	for rows > 0 {
		raw, d, err := m.ReadRaw(src, buf, first, rows)
		if err != nil {
			return err
		}
		n := int64(len(raw)) / d.Size() / cols
		if err := tensor.ToFloat32(dst[:n*cols], d, raw); err != nil {
			return &safeio.Error{Op: "convert", Tensor: m.Name, Err: safeio.Unsupportedf("%v", err)}
		}
		dst, first, rows, buf = dst[n*cols:], first+n, rows-n, raw
	}
	return nil
}

// ReadRaw reads rows from row first on as the checkpoint stores them, little-endian numbers of the type that it returns:
// as many as asked for, or up to the end of their matrix (an expert). The result lies in buf if that is large enough.
func (m *TensorMap) ReadRaw(src tensor.Source, buf []byte, first, rows int64) ([]byte, tensor.DType, error) {
	if first < 0 || rows < 0 || first+rows > m.Rows() {
		return nil, 0, &safeio.Error{Op: "convert", Tensor: m.Name, Err: safeio.Corruptf("rows %d … %d of %d were asked for", first, first+rows, m.Rows())}
	}
	if m.Data != nil {
		values := m.Data[first*m.Cols() : (first+rows)*m.Cols()]
		buf = sized(buf, int64(4*len(values)))
		return buf, tensor.F32, tensor.FromFloat32(buf, tensor.F32, values)
	}
	matrix, row := first/m.NE[1], first%m.NE[1]
	name := m.Sources[matrix]
	info, ok := src.Lookup(name)
	if !ok {
		return nil, 0, &safeio.Error{Op: "convert", Tensor: name, Err: safeio.Corruptf("the checkpoint lacks the tensor")}
	}
	if !info.DType.IsFloat() {
		return nil, 0, &safeio.Error{Op: "convert", Tensor: name, Err: safeio.Unsupportedf("%s are no plain numbers", info.DType)}
	}
	buf = sized(buf, min(rows, m.NE[1]-row)*m.Cols()*info.DType.Size())
	return buf, info.DType, m.readMatrix(src, name, buf, row, info.DType.Size())
}

// sized returns n bytes, those of buf if there are so many.
func sized(buf []byte, n int64) []byte {
	if int64(cap(buf)) >= n {
		return buf[:n]
	}
	return make([]byte, n)
}

// readMatrix reads consecutive GGUF rows of one matrix with elements of size bytes.
func (m *TensorMap) readMatrix(src tensor.Source, name string, dst []byte, row, size int64) error {
	width, unit := m.Cols()*size, m.NE[1] // bytes that move together, and how many times
	if m.RotaryQK == 0 {
		return src.ReadTensor(name, dst, row*width)
	}
	if m.Dims == 1 {
		row, width, unit = 0, size, m.NE[0]
	}
	n := int64(len(dst)) / width
	dim := unit / int64(m.RotaryQK)
	low, high := row/dim*dim, min((row+n+dim-1)/dim*dim, unit) // whole heads
	buf := make([]byte, (high-low)*width)
	if err := src.ReadTensor(name, buf, low*width); err != nil {
		return err
	}
	for i := range n {
		r := row + i
		from := r/dim*dim + interleave(r%dim, dim) - low
		copy(dst[i*width:(i+1)*width], buf[from*width:])
	}
	return nil
}

// EncodeRows rounds rows to a plain float type of the file (F32, F16 or BF16), nearest with ties to even, as the
// reference converter does. Block formats are the business of quant/grid/ggml.
func EncodeRows(dst []byte, to Type, rows []float32) error {
	if n, ok := to.RowBytes(int64(len(rows))); !ok || n != int64(len(dst)) || to.DType() == tensor.Invalid {
		return safeio.Unsupportedf("%d numbers do not make %d bytes of %s", len(rows), len(dst), to)
	}
	if to == F32 {
		for i, v := range rows {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
		return nil
	}
	return tensor.FromFloat32(dst, to.DType(), rows)
}
