package ggml

// Params are the parameters of one block as the file stores them. Weight i of sub-block j decodes to
//
//	(D·Scale[j])·Levels[code] − (DMin·Min[j])
//
// in float32, in that order. Legacy types have one sub-block with Scale 1; types without a minimum have DMin 0.
type Params struct {
	D, DMin    float32 // exactly representable in the stored format
	Scale, Min [16]int16
}

// Scalar is a block type whose weights are coded one by one, opened up for rounders that choose codes themselves: fit
// parameters as stored, ask what a code decodes to, pack any codes. Shared and read-only; safe for concurrent use.
type Scalar struct {
	Type   string
	Span   int       // columns of a block
	Sub    int       // columns of a sub-block; Span/Sub is at most 16
	Levels []float32 // value of code i in units of the step; ascending, except E2M1 whose codes 8 … 15 are the negatives
	HasMin bool
	// Legal sub-scales and sub-minima. Both are 1 … 1 where the type has none.
	ScaleMin, ScaleMax int16
	MinMax             int16

	value    *[256]float32       // Levels, for any byte
	subScale func(int16) float32 // value of a sub-scale that is not an integer
	roundD   func(float32) float32
	fit      func(c *coder, p []Params, codes []uint8, x []float32, im columns) // codes as the encoder stores them
	codes    func(codes []uint8, p *Params, x []float32)
	weights  func(w, x, im []float32)
	search   subSearch
	pack     func(dst []byte, p *Params, codes []uint8)
	head     func(dst []byte, p *Params) // pack without the codes, of types whose codes a kernel packs
	unpack   func(p *Params, codes []uint8, src []byte)
}

// subSearch finds the unrounded scale (and minimum) of a sub-block under explicit weights; one field is set.
type subSearch struct {
	asym   *asymSpec
	levels int32 // symmetric
	other  func(x, w []float32) float32
	plane  func(k *kernels, x, w *float32, n int, scale *float32) // other, in every lane; may be nil
}

// SubBlocks returns the number of sub-blocks of a block.
func (s *Scalar) SubBlocks() int { return s.Span / s.Sub }

// RoundD returns the nearest value that D (or DMin) can take in a file; fp16 for nearly all types.
func (s *Scalar) RoundD(d float32) float32 { return s.roundD(d) }

// Step returns scale and minimum of sub-block j: a code decodes to step·Levels[code] − minimum.
func (s *Scalar) Step(p *Params, j int) (step, minimum float32) {
	if s.subScale != nil {
		return s.subScale(p.Scale[j]), 0
	}
	return float32(p.D * float32(p.Scale[j])), float32(p.DMin * float32(p.Min[j]))
}

// Fit chooses the parameters of len(p) blocks of Span weights, x[len(p)·Span], as the reference does with importance (one
// number per column of the block, the same for all blocks: x is a column of blocks of a matrix) or, when nil, without.
func (s *Scalar) Fit(p []Params, x, importance []float32) {
	codes := make([]uint8, len(x))
	s.fit(newCoder(active()), p, codes, x, columns{im: importance})
}

// Weights fills w with the weights that Fit gives the elements of one block.
func (s *Scalar) Weights(w, x, importance []float32) { s.weights(w, x, importance) }

// FitSub returns the unrounded scale and minimum of len(scale) sub-blocks of Sub weights each, under explicit weights w: the
// first level of Fit, for callers that change some sub-blocks and keep D. Types without a minimum leave minimum alone.
func (s *Scalar) FitSub(scale, minimum, x, w []float32) {
	k := active()
	done := 0
	if k != nil && len(scale) >= lanes && s.search.vector() {
		c := newCoder(k)
		for ; done+lanes <= len(scale); done += lanes {
			at, end := done*s.Sub, (done+lanes)*s.Sub
			s.fitSubPlanes(c, scale[done:done+lanes], minimum, done, x[at:end], w[at:end])
		}
	}
	var codes [subBlockMax]uint8
	for j := done; j < len(scale); j++ {
		xj, wj := x[j*s.Sub:(j+1)*s.Sub], w[j*s.Sub:(j+1)*s.Sub]
		switch t := &s.search; {
		case t.asym != nil:
			scale[j], minimum[j] = searchAsym(codes[:s.Sub], xj, wj, t.asym)
		case t.levels > 0:
			scale[j] = searchSym(codes[:s.Sub], xj, wj, t.levels)
		default:
			scale[j] = t.other(xj, wj)
		}
	}
}

// vector reports whether the search has a kernel.
func (t *subSearch) vector() bool { return t.asym != nil || t.levels > 0 || t.plane != nil }

// fitSubPlanes is FitSub for 16 sub-blocks.
func (s *Scalar) fitSubPlanes(c *coder, scale, minimum []float32, first int, x, w []float32) {
	pl := c.load(x, s.Sub)
	c.k.transpose(&pl.w[0], &w[0], s.Sub, s.Sub)
	switch t := &s.search; {
	case t.asym != nil:
		c.searchAsym(0, 1, s.Sub, t.asym)
		copy(minimum[first:first+lanes], pl.minimum[:lanes])
	case t.levels > 0:
		c.searchSym(0, s.Sub, t.levels)
	default:
		t.plane(c.k, &pl.x[0], &pl.w[0], s.Sub, &pl.scale[0])
	}
	copy(scale, pl.scale[:lanes])
}

// Codes rounds one block to the codes the reference would store with these parameters.
func (s *Scalar) Codes(codes []uint8, p *Params, x []float32) { s.codes(codes, p, x) }

// Decode writes the Span weights of one block.
func (s *Scalar) Decode(dst []float32, p *Params, codes []uint8) {
	for j := range s.SubBlocks() {
		step, minimum := s.Step(p, j)
		from, to := j*s.Sub, (j+1)*s.Sub
		x := dst[from:to]
		for i, c := range codes[from:to] {
			x[i] = float32(step*s.value[c]) - minimum
		}
	}
}

// Pack encodes one block from parameters and codes of the caller's choice. Codes must be below len(Levels), scales and
// minima in their ranges, D and DMin as RoundD returns them.
func (s *Scalar) Pack(dst []byte, p *Params, codes []uint8) { s.pack(dst, p, codes) }

// Unpack reads one block back; Decode then gives what DecodeRow gives.
func (s *Scalar) Unpack(p *Params, codes []uint8, src []byte) { s.unpack(p, codes, src) }

// newScalar completes a table row.
func newScalar(s Scalar) Scalar {
	s.value = new([256]float32)
	copy(s.value[:], s.Levels)
	if s.roundD == nil {
		s.roundD = roundF16
	}
	if s.MinMax == 0 {
		s.MinMax = 1
	}
	if s.ScaleMax == 0 {
		s.ScaleMin, s.ScaleMax = 1, 1
	}
	return s
}

// integers returns the levels lo … hi.
func integers(lo, hi int) []float32 {
	l := make([]float32, 0, hi-lo+1)
	for v := lo; v <= hi; v++ {
		l = append(l, float32(v))
	}
	return l
}

// decodeScalar is DecodeRow for types that have no decoder of their own.
func decodeScalar(s *Scalar, size int, dst []float32, src []byte) {
	var p Params
	var codes [superBlock]uint8
	eachBlock(s.Span, size, dst, src, func(x []float32, b []byte) {
		s.unpack(&p, codes[:s.Span], b)
		s.Decode(x, &p, codes[:s.Span])
	})
}

// blockPacker stores the codes of blocks that follow each other and leaves everything else in them alone.
type blockPacker func(dst *byte, codes *uint8, blocks int)

// encodeScalar encodes all rows of a super-block type.
func encodeScalar(e *encoder, s *Scalar, size int) {
	var p [batch]Params
	var codes [batch * superBlock]uint8
	for i := 0; i < len(e.x); i += batch * superBlock {
		x := e.x[i:min(i+batch*superBlock, len(e.x))]
		n := len(x) / superBlock
		s.fit(e.coder, p[:n], codes[:len(x)], x, e.im.skip(i))
		dst := e.dst[i/superBlock*size:][:n*size]
		pack := s.pack
		if e.coder.k != nil {
			e.coder.k.pack[s.Type](&dst[0], &codes[0], n)
			pack = func(b []byte, p *Params, _ []uint8) { s.head(b, p) }
		}
		for b := range n {
			pack(dst[b*size:(b+1)*size], &p[b], codes[b*superBlock:(b+1)*superBlock])
		}
	}
}
