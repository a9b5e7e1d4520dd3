package ggml

import "sync"

// The searches of iq1s.go and iq1m.go with vector kernels: 16 super-blocks at once, a lane each.

// ternaryPlanes is the memory for one sub-block in every lane.
type ternaryPlanes struct {
	key, a, b            [32 * lanes]float32 // sorted: weights, and what moves along
	order                [32 * lanes]uint32
	scale                [lanes]float32
	first, second, shift [lanes]uint32
	values               [lanes * 4]float32 // of the levels, lane by lane
	words, levels        [4 * lanes]uint32
	zero                 [lanes]bool // nothing to search
	odd                  [lanes]bool // super-block for the portable code
}

// sorting networks for rows of a plane, as pairs of byte offsets.
var (
	network16 = sync.OnceValue(func() []uint16 { return sortingNetwork(16) })
	network32 = sync.OnceValue(func() []uint16 { return sortingNetwork(32) })
)

// sortingNetwork is Batcher's odd-even merge sort for n (a power of two) elements.
func sortingNetwork(n int) (pairs []uint16) {
	const row = 4 * lanes
	for p := 1; p < n; p *= 2 {
		for k := p; k >= 1; k /= 2 {
			for j := k % p; j+k < n; j += 2 * k {
				for i := 0; i < k && i+j+k < n; i++ {
					if (i+j)/(2*p) == (i+j+k)/(2*p) {
						pairs = append(pairs, uint16((i+j)*row), uint16((i+j+k)*row))
					}
				}
			}
		}
	}
	return pairs
}

// ternaryStart fills the planes of a batch.
func (c *coder) ternaryStart(x []float32, im columns) {
	pl := c.load(x, superBlock)
	if im.none() {
		c.k.square(&pl.w[0], &pl.x[0], superBlock)
	} else {
		c.importanceWeights(im, 2)
	}
	bp := c.books()
	c.k.roots(&bp.v[0], &bp.wx[0], &pl.w[0], &pl.x[0], superBlock)
	tp := &bp.ternary
	var peak, weight [lanes]float32
	c.k.rowPeak(&peak[0], &pl.x[0], superBlock)
	c.k.rowPeak(&weight[0], &pl.w[0], superBlock)
	for l := range lanes { // costs of neighbours must stay finite
		tp.odd[l] = !(float64(weight[l])*float64(peak[l])*float64(peak[l]) < 1e30)
	}
}

// ternarySort sorts sub-block j of n rows and marks lanes where it counts as zero.
func (c *coder) ternarySort(j, n int, zero float32, network []uint16) {
	pl, tp := c.pl, &c.bp.ternary
	from, to := j*n*lanes, (j+1)*n*lanes
	copy(tp.key[:], pl.x[from:to])
	copy(tp.a[:], c.bp.wx[from:to])
	copy(tp.b[:], pl.w[from:to])
	for i := range n {
		for l := range lanes {
			tp.order[i*lanes+l] = uint32(i)
		}
	}
	c.k.rowPeak(&tp.scale[0], &tp.key[0], n)
	for l, peak := range tp.scale {
		tp.zero[l] = peak < zero
	}
	c.k.sortRows(&tp.key[0], &tp.a[0], &tp.b[0], &tp.order[0], &network[0], len(network)/2)
}

// laneOrder returns the sorted positions of lane l.
func (tp *ternaryPlanes) laneOrder(l, n int) (order [32]uint8) {
	for i := range n {
		order[i] = uint8(tp.order[i*lanes+l])
	}
	return order
}

// plausible reports whether a scale came out of sums that made sense; others are left to the portable code.
func plausible(scale float32) bool { return scale > -1e15 && scale < 1e15 }

// ternaryWords packs eight levels into the word of group g in lane l.
func (tp *ternaryPlanes) ternaryWord(g, l int, levels []uint8) {
	var word uint32
	for i, v := range levels[:8] {
		word |= uint32(v) << (2 * i)
	}
	tp.levels[g*lanes+l] = word
}

// ternaryNearest moves the levels of `groups` groups from row `row` on to codewords.
func (c *coder) ternaryNearest(grid *codebook, first, groups, row int) {
	pl, tp := c.pl, &c.bp.ternary
	c.k.pairs.nearest(&tp.words[first*lanes], &tp.levels[first*lanes], &pl.x[row*lanes], &pl.w[row*lanes], &tp.scale[0], groups,
		&tp.values[0], 4, &grid.index[0], &grid.start[0], &grid.list[0])
}

// laneBlock copies n rows of the x and w planes of lane l.
func (pl *planes) laneBlock(row, n, l int) (x, w [32]float32) {
	for i := range n {
		x[i], w[i] = pl.x[(row+i)*lanes+l], pl.w[(row+i)*lanes+l]
	}
	return x, w
}

// moved takes the codeword of group g in lane l, with its levels, and reports whether it was off the grid.
func (tp *ternaryPlanes) moved(g, l int, word *uint16, levels []uint8) bool {
	i := g*lanes + l
	*word = uint16(tp.words[i])
	for k := range levels[:8] {
		levels[k] = uint8(*word >> (2 * k) & 3)
	}
	return tp.words[i] != tp.levels[i]
}

// encodeIQ1SPlanes is the encoder of IQ1_S with vector kernels.
func (e *encoder) encodeIQ1SPlanes(grid *codebook) {
	var subs [lanes][8]iq1sSub
	e.tiles(superBlock, sizeIQ1S, func(dst []byte, x []float32, im columns) {
		e.ternaryStart(x, im)
		tp := &e.bp.ternary
		blocks := len(x) / superBlock
		for j := range 8 {
			e.ternarySort(j, 32, zeroIQ1S, network32())
			e.coder.k.split32(&tp.a[0], &tp.b[0], &tp.scale[0], &tp.first[0], &tp.second[0], &tp.shift[0])
			for l := range lanes {
				e.splitIQ1S(&subs[l][j], l)
			}
			e.ternaryNearest(grid, 0, 4, 32*j)
			for l := range blocks {
				e.wordsIQ1S(&subs[l][j], j, l)
			}
		}
		for l := range blocks {
			b := dst[l*sizeIQ1S : (l+1)*sizeIQ1S]
			if tp.odd[l] {
				encodeBlockIQ1S(b, grid, x[l*superBlock:(l+1)*superBlock], im.of(l*superBlock, superBlock))
				continue
			}
			packIQ1S(b, grid, &subs[l])
		}
	})
}

// splitIQ1S turns the division found in lane l into levels.
func (c *coder) splitIQ1S(s *iq1sSub, l int) {
	tp := &c.bp.ternary
	if !plausible(tp.scale[l]) {
		tp.odd[l] = true
	}
	if tp.zero[l] || tp.odd[l] {
		s.zero()
		for g := range 4 {
			tp.levels[g*lanes+l] = zeroWordIQ1
		}
		return
	}
	order := tp.laneOrder(l, 32)
	*s = iq1sSub{scale: tp.scale[l], minus: tp.shift[l] == 1}
	cutLevels(s.levels[:], order[:], int(tp.first[l]), int(tp.second[l]))
	s.turn()
	tp.scale[l] = s.scale
	copy(tp.values[4*l:], s.values()[:])
	for g := range 4 {
		tp.ternaryWord(g, l, s.levels[8*g:])
	}
}

// wordsIQ1S takes the codewords of lane l and refits the scale where one has moved.
func (c *coder) wordsIQ1S(s *iq1sSub, j, l int) {
	tp := &c.bp.ternary
	if tp.zero[l] || tp.odd[l] {
		return
	}
	any := false
	for g := range s.words {
		any = tp.moved(g, l, &s.words[g], s.levels[8*g:]) || any
	}
	if any {
		x, w := c.pl.laneBlock(32*j, 32, l)
		s.refit(x[:], w[:])
	}
}

// encodeIQ1MPlanes is the encoder of IQ1_M with vector kernels.
func (e *encoder) encodeIQ1MPlanes(grid *codebook) {
	var subs [lanes][16]iq1mSub
	e.tiles(superBlock, sizeIQ1M, func(dst []byte, x []float32, im columns) {
		e.ternaryStart(x, im)
		tp := &e.bp.ternary
		blocks := len(x) / superBlock
		for j := range 16 {
			e.ternarySort(j, 16, zeroIQ1M, network16())
			e.coder.k.split16(&tp.key[0], &tp.b[0], &tp.order[0], &tp.scale[0], &tp.first[0], &tp.second[0], &tp.shift[0])
			for l := range lanes {
				e.splitIQ1M(&subs[l][j], l)
			}
			for g := range 2 {
				for l := range lanes {
					copy(tp.values[4*l:], subs[l][j].values(g)[:])
				}
				e.ternaryNearest(grid, g, 1, 16*j+8*g)
			}
			for l := range blocks {
				e.wordsIQ1M(&subs[l][j], j, l)
			}
		}
		var w [superBlock]float32
		for l := range blocks {
			b, block := dst[l*sizeIQ1M:(l+1)*sizeIQ1M], x[l*superBlock:(l+1)*superBlock]
			if tp.odd[l] {
				encodeBlockIQ1M(b, grid, block, im.of(l*superBlock, superBlock))
				continue
			}
			for i := range w {
				w[i] = e.pl.w[i*lanes+l]
			}
			packIQ1M(b, grid, &subs[l], block, w[:])
		}
	})
}

// splitIQ1M turns the division found in lane l into levels.
func (c *coder) splitIQ1M(s *iq1mSub, l int) {
	tp := &c.bp.ternary
	if !plausible(tp.scale[l]) {
		tp.odd[l] = true
	}
	if tp.zero[l] || tp.odd[l] {
		s.zero()
		for g := range 2 {
			tp.levels[g*lanes+l] = zeroWordIQ1
		}
		return
	}
	order := tp.laneOrder(l, 16)
	*s = iq1mSub{scale: tp.scale[l], shifts: int(tp.shift[l])}
	cutLevels(s.levels[:], order[:16], int(tp.first[l]), int(tp.second[l]))
	s.turn()
	tp.scale[l] = s.scale
	for g := range 2 {
		tp.ternaryWord(g, l, s.levels[8*g:])
	}
}

// wordsIQ1M takes the codewords of lane l and refits the scale where one has moved.
func (c *coder) wordsIQ1M(s *iq1mSub, j, l int) {
	tp := &c.bp.ternary
	if tp.zero[l] || tp.odd[l] {
		return
	}
	any := false
	for g := range s.words {
		any = tp.moved(g, l, &s.words[g], s.levels[8*g:]) || any
	}
	if any {
		x, w := c.pl.laneBlock(16*j, 16, l)
		s.refit(x[:16], w[:16])
	}
}
