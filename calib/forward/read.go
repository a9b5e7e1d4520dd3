package forward

import (
	"encoding/binary"
	"math"

	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/kernel"
)

// pieceElements is how much of a tensor one thread reads at a time.
const pieceElements = 1 << 18

// nonFinite counts bad values and remembers the first, as a flat index.
type nonFinite struct {
	count, first int64
}

func (n *nonFinite) add(index int) {
	if n.count == 0 {
		n.first = int64(index)
	}
	n.count++
}

// readMatrix reads a tensor piece by piece, several at a time. NaN and infinite values become zero and are counted;
// the caller decides whether that is an error.
func readMatrix(src tensor.Source, info tensor.Info, rows, cols int, o LoadOptions) (kernel.Mat, nonFinite, error) {
	n := rows * cols
	decode, w := decoder(info.DType, rows, cols)
	size := info.DType.Size()
	pieces := (n + pieceElements - 1) / pieceElements
	bads := make([]nonFinite, pieces)
	errs := make([]error, pieces)
	o.Pool.Run(pieces, func(i int) {
		lo, hi := i*pieceElements, min(n, (i+1)*pieceElements)
		buf := make([]byte, int64(hi-lo)*size)
		if errs[i] = src.ReadTensor(info.Name, buf, int64(lo)*size); errs[i] == nil {
			errs[i] = decode(lo, buf, &bads[i])
		}
	})
	var total nonFinite
	for i, b := range bads {
		if errs[i] != nil {
			return kernel.Mat{}, total, errs[i]
		}
		if total.count == 0 {
			total.first = b.first
		}
		total.count += b.count
	}
	return w, total, nil
}

// decoder allocates the matrix for a stored type and returns the function that fills it from element lo on.
func decoder(d tensor.DType, rows, cols int) (func(lo int, buf []byte, bad *nonFinite) error, kernel.Mat) {
	if kind, exponent, ok := half(d); ok {
		w := kernel.MatU16(kind, rows, cols, make([]uint16, rows*cols))
		return func(lo int, buf []byte, bad *nonFinite) error {
			dst := w.U16[lo : lo+len(buf)/2]
			for i := range dst {
				v := binary.LittleEndian.Uint16(buf[2*i:])
				if v&exponent == exponent {
					bad.add(lo + i)
					v = 0
				}
				dst[i] = v
			}
			return nil
		}, w
	}
	w := kernel.MatF32(rows, cols, make([]float32, rows*cols))
	return func(lo int, buf []byte, bad *nonFinite) error {
		dst := w.F32[lo : lo+len(buf)/int(d.Size())]
		if err := tensor.ToFloat32(dst, d, buf); err != nil {
			return err
		}
		const exponent = 0x7f800000
		for i, v := range dst {
			if math.Float32bits(v)&exponent == exponent {
				bad.add(lo + i)
				dst[i] = 0
			}
		}
		return nil
	}, w
}

// half returns the kernel's kind of a 16-bit float and the bits that are all set in a NaN or infinity.
func half(d tensor.DType) (kind kernel.Kind, exponent uint16, ok bool) {
	switch d {
	case tensor.BF16:
		return kernel.BF16, 0x7f80, true
	case tensor.F16:
		return kernel.F16, 0x7c00, true
	}
	return kernel.F32, 0, false
}
