package ggml

// The search shared by IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS and IQ3_S: magnitudes of a sub-block are rounded to odd
// multiples 1, 3, 5 … of a scale, groups of 8 or 4 are moved to the nearest codeword, and the scale is refitted.

// refitRule says which groups are rounded again with the fitted scale.
type refitRule uint8

const (
	refitAll     refitRule = iota // always all
	refitOffGrid                  // those that were no codeword
	refitAny                      // all, if one was no codeword
)

// iqSpec describes one of the five types.
type iqSpec struct {
	grid    func() *codebook
	sub     int     // weights per sub-block
	top     int32   // largest level
	sigma   float32 // sigma² = sigma·Σx²/256
	plain   float32 // weight without importance: plain·sigma² + x²
	eps     float32 // sub-blocks with all magnitudes below count as zero
	step    float32 // candidate scales: (2·top + 1 + step·k) / largest magnitude, k = -steps … steps
	steps   int
	byScale bool // the largest magnitude is taken from a first fit of the scale instead
	parity  bool // seven sign bits per 8: the number of minus signs is even
	refit   refitRule
	stored  float32 // the stored scale is this times the fitted one
}

var (
	specIQ2XXS = iqSpec{grid: gridIQ2XXS, sub: 32, top: 2, sigma: 1, eps: searchEps, step: 0.1, steps: 6, byScale: true,
		parity: true, refit: refitAll, stored: 1}
	specIQ2XS = iqSpec{grid: gridIQ2XS, sub: 16, top: 2, sigma: 1, eps: searchEps, step: 0.1, steps: 9,
		parity: true, refit: refitOffGrid, stored: 1}
	specIQ2S = iqSpec{grid: gridIQ2S, sub: 16, top: 2, sigma: 2, plain: 0.25, eps: 1e-8, step: 0.1, steps: 9,
		refit: refitOffGrid, stored: 0.9875}
	specIQ3XXS = iqSpec{grid: gridIQ3XXS, sub: 32, top: 7, sigma: 2, eps: 1e-8, step: 0.2, steps: 15,
		parity: true, refit: refitOffGrid, stored: 1.0125}
	specIQ3S = iqSpec{grid: gridIQ3S, sub: 32, top: 7, sigma: 2, step: 0.2, steps: 9,
		refit: refitAny, stored: 1.033}
)

// iqBlock is an encoded super-block before packing.
type iqBlock struct {
	d     float32    // stored scale, before rounding to fp16
	scale [16]uint8  // 4-bit code of each sub-block
	words [64]uint16 // index of each codeword
	signs [32]uint8  // one byte per 8 weights; bit 7 is redundant where parity rules
}

// iqSub is the state of one sub-block's search.
type iqSub struct {
	t       *iqSpec
	grid    *codebook
	x, w, v [subBlockMax]float32 // magnitudes, weights, square roots of the weights
	best    [8]uint16            // packed levels of each group
	onGrid  [8]bool
	cost    [8][8]float32
}

// encodeBlock searches one super-block.
func (t *iqSpec) encodeBlock(out *iqBlock, x, im []float32) {
	*out = iqBlock{}
	var w [superBlock]float32
	sigma2 := float32(t.sigma * sumSquares(x) / superBlock)
	if im != nil {
		importanceWeights(w[:], x, im, sigma2)
	} else {
		for i, v := range x {
			w[i] = float32(t.plain*sigma2) + float32(v*v)
		}
	}
	sub := iqSub{t: t, grid: t.grid()}
	groups := t.sub / sub.grid.elems
	var scales [16]float32
	for j := range superBlock / t.sub {
		from, to := j*t.sub, (j+1)*t.sub
		s := sub.search(x[from:to], w[from:to], out.signs[from/8:to/8])
		scales[j] = s
		if s == 0 {
			continue // index 0 at its own place
		}
		for g := range groups {
			out.words[j*groups+g] = uint16(sub.grid.index[sub.best[g]])
		}
	}
	t.finish(out, &scales)
}

// finish rounds the scales of the sub-blocks to 4-bit codes. A block whose scales are all zero becomes zero bytes.
func (t *iqSpec) finish(out *iqBlock, scales *[16]float32) {
	var peak float32
	for _, s := range scales {
		if s > peak {
			peak = s
		}
	}
	if !(peak > 0) {
		*out = iqBlock{}
		return
	}
	d := peak / 31
	inv := 1 / d
	for j := range superBlock / t.sub {
		out.scale[j] = uint8(rnClamp(float32(0.5*(float32(inv*scales[j])-1)), 0, 15))
	}
	out.d = float32(d * t.stored)
}

// encode encodes all rows; pack writes one super-block.
func (t *iqSpec) encode(e *encoder, size int, pack func(b []byte, q *iqBlock)) {
	var q [batch]iqBlock
	for i := 0; i < len(e.x); i += batch * superBlock {
		x := e.x[i:min(i+batch*superBlock, len(e.x))]
		n := len(x) / superBlock
		im := e.im.skip(i)
		if e.coder.k != nil {
			t.encodePlanes(e.coder, q[:n], x, im)
		} else {
			for b := range n {
				t.encodeBlock(&q[b], x[b*superBlock:(b+1)*superBlock], im.of(b*superBlock, superBlock))
			}
		}
		for b := range n {
			at := (i/superBlock + b) * size
			pack(e.dst[at:at+size], &q[b])
		}
	}
}

// search fits one sub-block: levels go to s.best, sign bytes to signs; the scale is returned, 0 for a zero sub-block.
func (s *iqSub) search(x, w []float32, signs []uint8) float32 {
	t := s.t
	n := t.sub
	copy(s.w[:n], w)
	s.takeSigns(x, signs)
	xs, ws := s.x[:n], s.w[:n]
	peak := xs[0]
	for _, v := range xs[1:] {
		if v > peak {
			peak = v
		}
	}
	if peak < t.eps || peak == 0 {
		clear(signs)
		return 0
	}
	for i, v := range ws {
		s.v[i] = sqrt32(v)
	}
	scale := peak / float32(2*t.top+1)
	if t.byScale {
		var codes [subBlockMax]uint8
		scale = searchPos(codes[:n], xs, ws, t.top+2)
		if peak = scale * float32(t.top+1); peak <= 0 {
			clear(signs)
			return 0
		}
	}
	scale = s.candidates(scale, peak)
	scale = s.refitScale(scale)
	if scale < 0 { // cannot happen with non-negative magnitudes, but a flipped one is negative
		for i := range signs {
			signs[i] = ^signs[i]
		}
		return -scale
	}
	return scale
}

// takeSigns splits the sub-block into magnitudes and sign bytes. Where parity rules and the count of negatives of a
// group of 8 is odd, the element of least weight w·x² changes its sign and becomes a negative magnitude.
func (s *iqSub) takeSigns(x []float32, signs []uint8) {
	for g := range signs {
		var bits uint8
		odd := false
		for i, v := range x[8*g : 8*g+8] {
			if v < 0 {
				v = -v
				bits |= 1 << i
				odd = !odd
			}
			s.x[8*g+i] = v
		}
		if odd && s.t.parity {
			least := 0
			var cost float32
			for i := range 8 {
				v := x[8*g+i]
				c := float32(float32(s.w[8*g+i]*v) * v)
				if i == 0 || c < cost {
					least, cost = i, c
				}
			}
			s.x[8*g+least] = -s.x[8*g+least]
			bits ^= 1 << least
		}
		signs[g] = bits
	}
}

// candidates tries the candidate scales and returns the best, keeping its levels.
func (s *iqSub) candidates(scale, peak float32) float32 {
	t := s.t
	groups := t.sub / s.grid.elems
	for g := range groups {
		s.best[g], s.onGrid[g] = 0, true
	}
	var best float32
	var trial [8]uint16
	var onGrid [8]bool
	for k := -t.steps; k <= t.steps; k++ {
		id := (float32(2*t.top+1) + float32(float32(k)*t.step)) / peak
		this := 1 / id
		for g := range groups {
			trial[g], onGrid[g] = s.round(g, id, this)
		}
		a, b := s.sums(&trial)
		if b > 0 && float32(a*a) > float32(best*b) {
			scale = a / b
			best = float32(scale * a)
			s.best, s.onGrid = trial, onGrid
		}
	}
	return scale
}

// refitScale rounds again with the fitted scale, as the type's rule says, and fits once more.
func (s *iqSub) refitScale(scale float32) float32 {
	groups := s.t.sub / s.grid.elems
	any := false
	for g := range groups {
		any = any || !s.onGrid[g]
	}
	if !(scale > 0) || (s.t.refit != refitAll && !any) {
		return scale
	}
	id := 1 / scale
	for g := range groups {
		if s.t.refit != refitOffGrid || !s.onGrid[g] {
			s.best[g], _ = s.round(g, id, scale)
		}
	}
	if a, b := s.sums(&s.best); b > 0 {
		return a / b
	}
	return scale
}

// round returns the codeword for group g at inverse scale id; neighbours are compared at scale this.
func (s *iqSub) round(g int, id, this float32) (packed uint16, onGrid bool) {
	n, bits := s.grid.elems, s.grid.bits
	x := s.x[g*n : g*n+n]
	for i, v := range x {
		l := rnClamp(float32(0.5*(float32(id*v)-1)), 0, s.t.top)
		packed |= uint16(l) << (bits * i)
	}
	near := s.grid.candidates(packed)
	if near == nil {
		return packed, true
	}
	v := s.v[g*n : g*n+n]
	for i, xi := range x {
		for l := range int(s.t.top) + 1 {
			diff := float32(this*float32(2*l+1)) - xi
			s.cost[i][l] = float32(float32(v[i]*diff) * diff)
		}
	}
	return s.grid.nearest(near, &s.cost), false
}

// sums returns Σ w·x·q and Σ w·q² over the sub-block, q = 2·level + 1.
func (s *iqSub) sums(words *[8]uint16) (a, b float32) {
	n, bits := s.grid.elems, s.grid.bits
	for i, x := range s.x[:s.t.sub] {
		q := float32(2*int(words[i/n]>>(bits*(i%n))&(1<<bits-1)) + 1)
		a += float32(float32(s.w[i]*x) * q)
		b += float32(float32(s.w[i]*q) * q)
	}
	return a, b
}
