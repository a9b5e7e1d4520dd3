package grid

import "github.com/llmquant/quantize/formats/packing"

// TileRows returns the number of rows that rounders should handle together: long enough for the inner loops to pay,
// short enough that every thread gets some tiles and that 128 columns of a tile stay in the second-level cache. It is part
// of nothing's definition: rows never interact, so results do not depend on it.
func TileRows(out, threads int) int {
	share := (out/(2*threads) + 15) / 16 * 16
	return min(max(share, 32), 256)
}

// Tile is a block of a matrix, column by column: column k of all rows is Data[k·Rows : (k+1)·Rows].
type Tile struct {
	Rows, Cols int
	Data       []float32
}

// NewTile allocates a tile of zeros.
func NewTile(rows, cols int) Tile { return Tile{rows, cols, make([]float32, rows*cols)} }

// Col returns column k of all rows.
func (t Tile) Col(k int) []float32 { return t.Data[k*t.Rows : (k+1)*t.Rows] }

// Cut returns columns [k0, k1) of the tile, sharing memory.
func (t Tile) Cut(k0, k1 int) Tile { return Tile{t.Rows, k1 - k0, t.Data[k0*t.Rows : k1*t.Rows]} }

// Load fills the tile with rows [row0, row0+Rows) of a row-major matrix of cols columns.
func (t Tile) Load(w []float32, cols, row0 int) {
	for r := range t.Rows {
		for k, v := range w[(row0+r)*cols : (row0+r)*cols+t.Cols] {
			t.Data[k*t.Rows+r] = v
		}
	}
}

// Params are the parameters of one span of columns for all rows of a tile: plane i (scales, zero points, …; the grid
// decides) is Params[i·rows : (i+1)·rows].
type Params []float32

// Plane returns number i of every row.
func (p Params) Plane(i, rows int) []float32 { return p[i*rows : (i+1)*rows] }

// CopyRow copies the parameters of row r.
func (p Params) CopyRow(from Params, r, rows int) {
	for i := r; i < len(p); i += rows {
		p[i] = from[i]
	}
}

// Grid is a number format. Columns are counted from the start of their span; a span at the end of a row may be short.
// Methods are safe for concurrent use; slices are never kept.
type Grid interface {
	// Name is the format's name as users write it ("int4 g128 sym", "Q4_K").
	Name() string
	// Span is the number of columns that share parameters; at most this many are passed to Fit.
	Span() int
	// Sub is the number of columns within a span that share the parameters Propose varies: the span itself for plain
	// groups, a sub-block for super-block formats. It divides Span.
	Sub() int
	// Width is the number of planes of a parameter set.
	Width() int
	// Fit chooses parameters for the columns of w, one set per row, minimising Σ_k importance[k]·(w_k − y_k)² as far as
	// the grid's search goes. importance is nil for equal weights.
	Fit(p Params, w Tile, importance []float32)
	// Start is a quick Fit for rounders that will try what Propose offers.
	Start(p Params, w Tile, importance []float32)
	// Propose returns a sequence of parameter sets for sub-block sub, whose weights now are w: each call of the function
	// writes the next into out, given the best set so far, and returns false at the end. The first is best itself; only
	// what the sub-block alone uses may differ. Rounders try each with error feedback and keep, row by row, what does best.
	Propose(sub int, w Tile, importance []float32) (next func(out, best Params) bool)
	// Round writes for column col the nearest representable values y of x and their codes.
	Round(p Params, col int, x, y []float32, codes []uint8)
	// Decode writes the values of codes of column col.
	Decode(p Params, col int, codes []uint8, y []float32)
	// Refit improves p for given codes under the quadratic error of the span, row by row: r holds (w − y)·H for the
	// columns of the span, and h the symmetric H of the span, so that a change d of the values lowers the error by
	// 2·r·d − d·h·dᵀ. Parameters that would not lower it stay. It reports whether anything changed.
	Refit(p Params, codes []uint8, r Tile, h []float32) bool
	// New allocates the weight that Store fills.
	New(out, in int) *packing.Linear
	// Store writes parameters and codes (column-major, as elsewhere) of the span at column col0 for rows from row0 on.
	// Different tiles may store concurrently.
	Store(l *packing.Linear, row0, col0 int, p Params, codes []uint8)
}
