package ggml

// The search of iqfit.go with vector kernels: 16 super-blocks at once, a lane each. Only the comparison of neighbours goes
// lane by lane.

// wordPlanes is the memory for the codewords of one sub-block in every lane: a row per group.
type wordPlanes struct {
	levels, words         [8 * lanes]uint32 // of a candidate, as rounded and as codewords
	bestLevels, bestWords [8 * lanes]uint32
	scale, best           [lanes]float32 // of the best candidate: scale and figure of merit
	peak, step, a, b      [lanes]float32
	amax                  [lanes]float32 // of the super-block
	dead, odd             [lanes]bool    // zero sub-block; block that only the portable code handles
}

// oddValues are the magnitudes that levels stand for.
var oddValues = [8]float32{1, 3, 5, 7, 9, 11, 13, 15}

// iqGridKernels puts the kernels for the words of a codebook and its tables together.
type iqGridKernels struct {
	*wordKernels
	grid   *codebook
	groups int // codewords per sub-block
}

func (t *iqSpec) gridKernels(c *coder) iqGridKernels {
	g := iqGridKernels{wordKernels: &c.k.pairs, grid: t.grid()}
	if g.grid.elems == 4 {
		g.wordKernels = &c.k.triples
	}
	g.groups = t.sub / g.grid.elems
	return g
}

// encodePlanes is encodeBlock for up to 16 super-blocks.
func (t *iqSpec) encodePlanes(c *coder, out []iqBlock, x []float32, im columns) {
	pl, bp := c.load(x, superBlock), c.books()
	t.planeWeights(c, im)
	c.k.signs(&bp.mag[0], &bp.signs[0], &pl.x[0], &pl.w[0], superBlock, t.parity)
	c.k.roots(&bp.v[0], &bp.wx[0], &pl.w[0], &bp.mag[0], superBlock)
	wp := &bp.word
	c.k.rowPeak(&wp.amax[0], &pl.x[0], superBlock)
	wp.odd = [lanes]bool{}
	grid := t.gridKernels(c)
	var scales [lanes][16]float32
	for b := range out {
		out[b] = iqBlock{}
	}
	for j := range superBlock / t.sub {
		t.planeStart(c, j)
		for k := -t.steps; k <= t.steps; k++ {
			t.planeCandidate(c, &grid, j, float32(2*t.top+1)+float32(float32(k)*t.step))
		}
		t.planeRefit(c, &grid, j)
		for b := range out {
			scales[b][j] = t.planeResult(bp, &grid, &out[b], j, b)
		}
	}
	for b := range out {
		if wp.odd[b] {
			t.encodeBlock(&out[b], x[b*superBlock:(b+1)*superBlock], im.of(b*superBlock, superBlock))
			continue
		}
		t.finish(&out[b], &scales[b])
	}
}

func (t *iqSpec) planeWeights(c *coder, im columns) {
	pl := c.pl
	if !im.none() {
		c.importanceWeights(im, t.sigma)
		return
	}
	c.meanSquares(superBlock, t.sigma)
	for l, s := range pl.sigma {
		pl.sigma[l] = t.plain * s
	}
	c.k.squareAdd(&pl.w[0], &pl.x[0], &pl.sigma[0], superBlock)
}

// planeStart finds the first scale and the peak that the candidates divide, and marks zero sub-blocks and blocks whose
// numbers leave the range of exact rounding.
func (t *iqSpec) planeStart(c *coder, j int) {
	pl, bp := c.pl, c.bp
	wp := &bp.word
	mag := subPlane(bp.mag[:], j, t.sub)
	c.k.rowMax(&wp.peak[0], mag, t.sub)
	for l, peak := range wp.peak {
		wp.dead[l] = peak < t.eps || peak == 0
		wp.scale[l] = peak / float32(2*t.top+1)
	}
	if t.byScale {
		c.k.pos(&pl.codes[0], mag, subPlane(pl.w[:], j, t.sub), t.sub, t.top+2, &wp.scale[0])
		for l, scale := range wp.scale {
			wp.peak[l] = scale * float32(t.top+1)
			wp.dead[l] = wp.dead[l] || wp.peak[l] <= 0
		}
	}
	largest := float32(2*t.top+1) + float32(float32(t.steps)*t.step)
	for l := range lanes {
		wp.best[l] = 0
		if wp.dead[l] {
			wp.peak[l] = 1
		} else if !(wp.amax[l]*largest < exactRange*wp.peak[l]) || wp.peak[l] < 1e-30 {
			wp.odd[l] = true
			wp.peak[l] = max(1, wp.amax[l])
		}
	}
	clear(wp.bestLevels[:])
	clear(wp.bestWords[:])
}

// planeCandidate tries the scale peak/numerator.
func (t *iqSpec) planeCandidate(c *coder, grid *iqGridKernels, j int, numerator float32) {
	wp := &c.bp.word
	grid.levels(&wp.levels[0], &wp.step[0], subPlane(c.bp.mag[:], j, t.sub), &wp.peak[0], t.sub, numerator)
	t.planeWords(c, grid, j, &wp.step)
	c.k.better(&wp.scale[0], &wp.best[0], &wp.bestWords[0], &wp.bestLevels[0], &wp.a[0], &wp.b[0], &wp.words[0], &wp.levels[0], grid.groups)
}

// planeWords moves the levels to codewords at the given scales and sums up for the fit.
func (t *iqSpec) planeWords(c *coder, grid *iqGridKernels, j int, scale *[lanes]float32) {
	pl, bp := c.pl, c.bp
	wp := &bp.word
	book := grid.grid
	grid.nearest(&wp.words[0], &wp.levels[0], subPlane(bp.mag[:], j, t.sub), subPlane(bp.v[:], j, t.sub), &scale[0], grid.groups,
		&oddValues[0], 0, &book.index[0], &book.start[0], &book.list[0])
	grid.fit(&wp.a[0], &wp.b[0], subPlane(pl.w[:], j, t.sub), subPlane(bp.wx[:], j, t.sub), &wp.words[0], t.sub)
}

// planeRefit is refitScale in every lane.
func (t *iqSpec) planeRefit(c *coder, grid *iqGridKernels, j int) {
	wp := &c.bp.word
	var refit [lanes]bool
	for l, scale := range wp.scale {
		offGrid := false
		for g := range grid.groups {
			offGrid = offGrid || wp.bestLevels[g*lanes+l] != wp.bestWords[g*lanes+l]
		}
		refit[l] = scale > 0 && !wp.dead[l] && !wp.odd[l] && (t.refit == refitAll || offGrid)
		if refit[l] && !(wp.amax[l] < exactRange*scale) {
			refit[l], wp.odd[l] = false, true
		}
		wp.peak[l] = 1
		if refit[l] {
			wp.peak[l] = scale
		}
	}
	grid.levels(&wp.levels[0], &wp.step[0], subPlane(c.bp.mag[:], j, t.sub), &wp.peak[0], t.sub, 1)
	for g := range grid.groups {
		for l := range lanes {
			i := g*lanes + l
			if !refit[l] || t.refit == refitOffGrid && wp.bestLevels[i] == wp.bestWords[i] {
				wp.levels[i] = wp.bestWords[i] // a codeword: stays
			}
		}
	}
	t.planeWords(c, grid, j, &wp.peak)
	wp.bestWords = wp.words
	for l := range lanes {
		if refit[l] && wp.b[l] > 0 {
			wp.scale[l] = wp.a[l] / wp.b[l]
		}
	}
}

// planeResult writes what lane l found for sub-block j and returns its scale.
func (t *iqSpec) planeResult(bp *bookPlanes, grid *iqGridKernels, out *iqBlock, j, l int) float32 {
	wp := &bp.word
	scale := wp.scale[l]
	if wp.dead[l] || scale == 0 {
		return 0
	}
	var invert uint8
	if scale < 0 {
		scale, invert = -scale, 0xff
	}
	for g := j * t.sub / 8; g < (j+1)*t.sub/8; g++ {
		out.signs[g] = bp.signs[g*lanes+l] ^ invert
	}
	for g := range grid.groups {
		out.words[j*grid.groups+g] = uint16(grid.grid.index[wp.bestWords[g*lanes+l]])
	}
	return scale
}
