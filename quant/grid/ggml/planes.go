package ggml

// lanes is the width of a plane: blocks that the vector kernels handle at once. Super-blocks come in batches of as many.
const (
	lanes = 16
	batch = lanes
)

// exactRange is the magnitude up to which rn and vector rounding agree; a little less than 2^22.
const exactRange = 4e6

// coder is what an encoder of any type works with: the vector kernels and their memory.
type coder struct {
	k  *kernels // nil: portable code
	pl *planes
	bp *bookPlanes
	kw *kwork
}

func newCoder(k *kernels) *coder { return &coder{k: k} }

// planes is the memory of the vector kernels for one batch. Row i of a plane holds weight i of each of the 16 blocks.
type planes struct {
	x, w, im            [superBlock * lanes]float32
	codes               [superBlock * lanes]uint8
	scale, minimum, sum [16 * lanes]float32 // row j: sub-block j
	step, offset        [16 * lanes]float32
	sigma               [lanes]float32
	levels              [16 * lanes]uint8

	stage  [superBlock * lanes]float32 // blocks one after another, where the input is not
	out    [superBlock * lanes]uint8
	column int // column of the first weight of im, plus 1; 0: none loaded
	width  int // len of the importance loaded
}

// bookPlanes is the memory that only the codebook types need.
type bookPlanes struct {
	mag, v, wx [superBlock * lanes]float32   // magnitudes, square roots of the weights, weights times magnitudes
	signs      [superBlock / 8 * lanes]uint8 // a row per 8 weights
	word       wordPlanes
	ternary    ternaryPlanes
}

func (c *coder) books() *bookPlanes {
	if c.bp == nil {
		c.bp = new(bookPlanes)
	}
	return c.bp
}

func (c *coder) planes() *planes {
	if c.pl == nil {
		c.pl = new(planes)
	}
	return c.pl
}

// load fills the x plane from up to 16 blocks of n weights; missing ones read as zeros.
func (c *coder) load(x []float32, n int) *planes {
	pl := c.planes()
	if len(x) < n*lanes {
		clear(pl.stage[copy(pl.stage[:], x) : n*lanes])
		x = pl.stage[:]
	}
	c.k.transpose(&pl.x[0], &x[0], n, n)
	return pl
}

// loadImportance fills the im plane for the blocks of n weights that begin at im.first. Rows of a matrix repeat the same
// columns, so often it is there already.
func (c *coder) loadImportance(im columns, n int) {
	pl := c.planes()
	if pl.column == im.first+1 && pl.width == len(im.im) {
		return
	}
	for l := range lanes {
		copy(pl.stage[l*n:(l+1)*n], im.of(l*n, n))
	}
	c.k.transpose(&pl.im[0], &pl.stage[0], n, n)
	pl.column, pl.width = im.first+1, len(im.im)
}

// meanSquares sets sigma to factor times the mean square of the n weights of each block; factor is a power of two.
func (c *coder) meanSquares(n int, factor float32) {
	pl := c.pl
	pl.sigma = [lanes]float32{}
	c.k.squares(&pl.sigma[0], &pl.x[0], n)
	for l, s := range pl.sigma {
		pl.sigma[l] = factor * s / float32(n)
	}
}

// store takes the codes of `blocks` blocks of n weights out of the codes plane.
func (c *coder) store(codes []uint8, n int) {
	pl := c.pl
	if len(codes) >= n*lanes {
		c.k.transposeBytes(&codes[0], n, &pl.codes[0], n)
		return
	}
	c.k.transposeBytes(&pl.out[0], n, &pl.codes[0], n)
	copy(codes, pl.out[:])
}

// sub returns the part of a plane that holds sub-block j of n weights.
func subPlane(plane []float32, j, n int) *float32 { return &plane[j*n*lanes] }

// searchAsym runs the asymmetric search on `count` sub-blocks of n weights, from the j-th on, in every lane.
func (c *coder) searchAsym(j, count, n int, spec *asymSpec) {
	for end := j + count; j < end; {
		search, subs := c.k.asym, 1
		if c.k.asymQuad != nil && end-j >= 4 {
			search, subs = c.k.asymQuad, 4
		}
		pl := c.pl
		ok := search(&pl.codes[j*n*lanes], subPlane(pl.x[:], j, n), subPlane(pl.w[:], j, n), n, float32(spec.levels), spec.first, spec.step,
			int32(spec.steps), spec.abs, &pl.scale[j*lanes], &pl.minimum[j*lanes], &pl.sum[j*lanes])
		for range subs {
			if !ok { // a nearly empty range in some lane: there the portable code wraps in a way that vector rounding does not
				for l := range lanes {
					c.asymLane(j, n, l, spec)
				}
			}
			j++
		}
	}
}

func (c *coder) asymLane(j, n, l int, spec *asymSpec) {
	pl := c.pl
	var x, w [subBlockMax]float32
	var codes [subBlockMax]uint8
	for i := range n {
		x[i], w[i] = pl.x[(j*n+i)*lanes+l], pl.w[(j*n+i)*lanes+l]
	}
	pl.scale[j*lanes+l], pl.minimum[j*lanes+l] = searchAsym(codes[:n], x[:n], w[:n], spec)
	pl.sum[j*lanes+l] = sum(w[:n])
	for i := range n {
		pl.codes[(j*n+i)*lanes+l] = codes[i]
	}
}

// searchSym runs the symmetric search on sub-block j of n weights in every lane.
func (c *coder) searchSym(j, n int, levels int32) {
	pl := c.pl
	c.k.sym(&pl.codes[j*n*lanes], subPlane(pl.x[:], j, n), subPlane(pl.w[:], j, n), n, float32(levels), &pl.scale[j*lanes])
}

// requant rounds sub-block j of n weights with the steps and minima of row j.
func (c *coder) requant(j, n int, lo, hi, base int32) {
	pl := c.pl
	c.k.requant(&pl.codes[j*n*lanes], subPlane(pl.x[:], j, n), n, &pl.step[j*lanes], &pl.offset[j*lanes], lo, hi, base)
}

// column returns lane l of the first n rows of a small plane.
func laneOf(plane []float32, l, n int) (v [16]float32) {
	for j := range n {
		v[j] = plane[j*lanes+l]
	}
	return v
}

// rowMeanSquares returns Σ x²/cols of every row, 16 rows at a time.
func (e *encoder) rowMeanSquares() []float32 {
	rows, pl := len(e.x)/e.cols, e.planes()
	sums := make([]float32, (rows+lanes-1)/lanes*lanes)
	for r := 0; r < rows; r += lanes {
		n := min(lanes, rows-r)
		for c := 0; c < e.cols; c += superBlock {
			width := min(superBlock, e.cols-c) // a multiple of 32
			x, stride := e.x[r*e.cols+c:], e.cols
			if n < lanes {
				clear(pl.stage[:])
				for l := range n {
					copy(pl.stage[l*width:(l+1)*width], x[l*stride:])
				}
				x, stride = pl.stage[:], width
			}
			e.coder.k.transpose(&pl.x[0], &x[0], stride, width)
			e.coder.k.squares(&sums[r], &pl.x[0], width)
		}
	}
	for i := range sums {
		sums[i] /= float32(e.cols)
	}
	return sums
}
