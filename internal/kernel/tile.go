package kernel

import (
	"math"
	"unsafe"
)

// Shape of a tile of the portable kernels.
const (
	portableMR = 4
	portableNR = 8
)

// portableTiles adapts a function that computes one row of a tile to the interface of the assembly.
func portableTiles[T real](row func(acc *[portableNR]T, a, b []T)) []tileFunc[T] {
	var tiles []tileFunc[T]
	for rows := 1; rows <= portableMR; rows++ {
		tiles = append(tiles, func(k int, a, b, c *T, ldc int, add bool) {
			pa, pb := unsafe.Slice(a, k*portableMR), unsafe.Slice(b, k*portableNR)
			pc := unsafe.Slice(c, (rows-1)*ldc+portableNR)
			for r := range rows {
				var acc [portableNR]T
				row(&acc, pa[min(r, len(pa)):], pb)
				out := pc[r*ldc:][:portableNR]
				for j, v := range acc {
					if add {
						v += out[j]
					}
					out[j] = v
				}
			}
		})
	}
	return tiles
}

// tile32 runs the chains of one row: a holds every portableMR-th element for this row. It narrows eight sums at a time and
// takes the exact way for all of them if one might be rounded wrongly.
func tile32(acc *[portableNR]float32, a, b []float32) {
	var x0, x1, x2, x3, x4, x5, x6, x7 float64 // always float32 values
	for len(b) >= portableNR {
		av := float64(a[0])
		s0 := av*float64(b[0]) + x0
		s1 := av*float64(b[1]) + x1
		s2 := av*float64(b[2]) + x2
		s3 := av*float64(b[3]) + x3
		s4 := av*float64(b[4]) + x4
		s5 := av*float64(b[5]) + x5
		s6 := av*float64(b[6]) + x6
		s7 := av*float64(b[7]) + x7
		if hazard(s0)|hazard(s1)|hazard(s2)|hazard(s3)|hazard(s4)|hazard(s5)|hazard(s6)|hazard(s7) < 0 {
			s0 = float64(fma32(a[0], b[0], float32(x0)))
			s1 = float64(fma32(a[0], b[1], float32(x1)))
			s2 = float64(fma32(a[0], b[2], float32(x2)))
			s3 = float64(fma32(a[0], b[3], float32(x3)))
			s4 = float64(fma32(a[0], b[4], float32(x4)))
			s5 = float64(fma32(a[0], b[5], float32(x5)))
			s6 = float64(fma32(a[0], b[6], float32(x6)))
			s7 = float64(fma32(a[0], b[7], float32(x7)))
		}
		x0, x1, x2, x3 = float64(float32(s0)), float64(float32(s1)), float64(float32(s2)), float64(float32(s3))
		x4, x5, x6, x7 = float64(float32(s4)), float64(float32(s5)), float64(float32(s6)), float64(float32(s7))
		b = b[portableNR:]
		a = a[min(portableMR, len(a)):]
	}
	*acc = [portableNR]float32{float32(x0), float32(x1), float32(x2), float32(x3), float32(x4), float32(x5), float32(x6), float32(x7)}
}

func tile64(acc *[portableNR]float64, a, b []float64) {
	for len(b) >= portableNR {
		for j, bv := range b[:portableNR] {
			acc[j] = math.FMA(a[0], bv, acc[j])
		}
		b = b[portableNR:]
		a = a[min(portableMR, len(a)):]
	}
}
