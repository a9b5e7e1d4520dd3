package kernel

import (
	"fmt"

	"github.com/llmquant/quantize/formats/tensor"
)

// NarrowRows rounds src (F32 or F16) to the BF16 matrix dst of the same shape, as NarrowBF16 does; BF16 is copied.
func NarrowRows(p *Pool, dst, src Mat) {
	dst.check("NarrowRows")
	src.check("NarrowRows")
	if dst.Kind != BF16 || src.Kind == Pairs || dst.Rows != src.Rows || dst.Cols != src.Cols {
		panic(fmt.Sprintf("kernel: NarrowRows: %v %dx%d from %v %dx%d", dst.Kind, dst.Rows, dst.Cols, src.Kind, src.Rows, src.Cols))
	}
	if src.Cols == 0 {
		return
	}
	s := p.kernels()
	eachRows(p, src.Rows, src.Cols, func(i0, i1 int) {
		var wide []float32
		if src.Kind == F16 {
			wide = make([]float32, src.Cols)
		}
		for i := i0; i < i1; i++ {
			to := dst.U16[i*dst.Stride:][:dst.Cols]
			switch src.Kind {
			case F32:
				s.narrowBF16(to, src.Row(i))
			case F16:
				s.widen(wide, src.U16[i*src.Stride:][:src.Cols], F16)
				s.narrowBF16(to, wide)
			default:
				copy(to, src.U16[i*src.Stride:][:src.Cols])
			}
		}
	})
}

// PairRows rounds src, F32 of T rows and K columns, to the words of products along its rows: dst is of Kind Pairs and has
// (T+1)/2 rows of K words. Word (t, c) holds element (2t, c) in its lower half, first in memory, and (2t+1, c) in its upper
// half; an odd last row is paired with zeros.
func PairRows(p *Pool, dst, src Mat) {
	dst.check("PairRows")
	src.check("PairRows")
	if dst.Kind != Pairs || src.Kind != F32 || dst.Rows != (src.Rows+1)/2 || dst.Cols != src.Cols {
		panic(fmt.Sprintf("kernel: PairRows: %v %dx%d from %v %dx%d", dst.Kind, dst.Rows, dst.Cols, src.Kind, src.Rows, src.Cols))
	}
	if src.Cols == 0 {
		return
	}
	s := p.kernels()
	eachRows(p, dst.Rows, 2*src.Cols, func(t0, t1 int) {
		for t := t0; t < t1; t++ {
			to := dst.U16[2*t*dst.Stride:][:2*dst.Cols]
			if 2*t+1 < src.Rows {
				s.pairBF16(to, src.Row(2*t), src.Row(2*t+1))
				continue
			}
			for c, v := range src.Row(2 * t) {
				to[2*c], to[2*c+1] = tensor.F32ToBF16(v), 0
			}
		}
	})
}

// eachRows calls f for ranges of rows that are worth a task; a row has cols elements.
func eachRows(p *Pool, rows, cols int, f func(i0, i1 int)) {
	const task = 1 << 16 // elements
	height := max(1, task/cols)
	p.Run((rows+height-1)/height, func(t int) { f(t*height, min(rows, (t+1)*height)) })
}

// pairBF16 rounds low and high to the lower and upper halves of len(low) words.
func (s *set) pairBF16(dst []uint16, low, high []float32) {
	high, dst = high[:len(low)], dst[:2*len(low)]
	done := s.bursts(len(low), func(v *vectors, i, n int) { v.pairBF16(&dst[2*i], &low[i], &high[i], n) })
	for i := done; i < len(low); i++ {
		dst[2*i], dst[2*i+1] = tensor.F32ToBF16(low[i]), tensor.F32ToBF16(high[i])
	}
}
