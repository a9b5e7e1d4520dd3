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

// tile32 runs the chains of one row: a holds every portableMR-th element for this row.
func tile32(acc *[portableNR]float32, a, b []float32) {
	for len(b) >= portableNR {
		av := float64(a[0])
		for j, bv := range b[:portableNR] {
			acc[j] = fma32(float32(av), bv, acc[j])
		}
		b = b[portableNR:]
		a = a[min(portableMR, len(a)):]
	}
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
