package grid

import (
	"context"
	"math"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
)

// RoundNearest rounds every weight of w[out, in] to the nearest value of the grid, with parameters fitted to the weights
// under importance (one number per column, nil for equal). It is the quality floor, and the fallback of every
// calibrated method. Rows are spread over the pool; the result does not depend on it.
func RoundNearest(ctx context.Context, pool *kernel.Pool, w []float32, out, in int, g Grid, importance []float32) (*packing.Linear, error) {
	if err := CheckFinite(w, in); err != nil {
		return nil, err
	}
	l := g.New(out, in)
	tile := TileRows(out, pool.Threads())
	pool.Run((out+tile-1)/tile, func(i int) {
		if ctx.Err() != nil {
			return
		}
		row0 := i * tile
		t := NewTile(min(tile, out-row0), in)
		t.Load(w, in, row0)
		p, y := make(Params, g.Width()*t.Rows), make([]float32, t.Rows)
		codes := make([]uint8, g.Span()*t.Rows)
		for col0 := 0; col0 < in; col0 += g.Span() {
			col1 := min(col0+g.Span(), in)
			var im []float32
			if importance != nil {
				im = importance[col0:col1]
			}
			g.Fit(p, t.Cut(col0, col1), im)
			for k := col0; k < col1; k++ {
				g.Round(p, k-col0, t.Col(k), y, codes[(k-col0)*t.Rows:(k-col0+1)*t.Rows])
			}
			g.Store(l, row0, col0, p, codes[:(col1-col0)*t.Rows])
		}
	})
	return l, ctx.Err()
}

// CheckFinite refuses weights that no grid has a code for, naming the first and their number.
func CheckFinite(w []float32, cols int) error {
	bad, first := 0, 0
	for i, v := range w {
		if v-v != 0 { // NaN or Inf
			if bad == 0 {
				first = i
			}
			bad++
		}
	}
	if bad == 0 {
		return nil
	}
	return safeio.Corruptf("%d weights are not finite, the first at row %d, column %d: %v", bad, first/cols, first%cols, w[first])
}

// MeanImportance scales importance to mean 1 in float32, so that sums over it stay in range whatever the units of the
// statistics were. Anything that is not finite, negative or all zero counts as equal importance: nil.
func MeanImportance(h []float64) []float32 {
	sum := 0.0
	for _, v := range h {
		if v < 0 || math.IsNaN(v) {
			return nil
		}
		sum += v
	}
	mean := sum / float64(len(h))
	if !(mean > 0) || math.IsInf(mean, 0) {
		return nil
	}
	im := make([]float32, len(h))
	for i, v := range h {
		im[i] = float32(v / mean)
	}
	return im
}
