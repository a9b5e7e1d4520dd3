package ggml

// The K types with a minimum per sub-block: Q2_K, Q4_K and Q5_K are one algorithm with different constants.

// kmin describes one of the three.
type kmin struct {
	sub             int     // weights per sub-block
	scaleLevels     int32   // integer scales and minima 0 … scaleLevels
	sigma           float32 // sigma² of the importance weights = sigma·Σx²/256
	plain, weighted asymSpec
	plainRMS        bool // weight without importance: |x| plus the root mean square of the sub-block; else |x|
}

var (
	kminQ2 = kmin{sub: 16, scaleLevels: 15, sigma: 1,
		plain:    asymSpec{levels: 3, first: -0.5, step: 0.1, steps: 15, abs: true},
		weighted: asymSpec{levels: 3, first: -0.9, step: 0.05, steps: 36}}
	kminQ4 = kmin{sub: 32, scaleLevels: 63, sigma: 2, plainRMS: true,
		plain:    asymSpec{levels: 15, first: -1, step: 0.1, steps: 20},
		weighted: asymSpec{levels: 15, first: -0.9, step: 0.05, steps: 36}}
	kminQ5 = kmin{sub: 32, scaleLevels: 63, sigma: 2, plainRMS: true,
		plain:    asymSpec{levels: 31, first: -0.5, step: 0.1, steps: 15},
		weighted: asymSpec{levels: 31, first: -0.9, step: 0.05, steps: 36}}
)

// kwork is the scratch memory of a portable fit: per sub-block of a batch.
type kwork struct {
	w                   [batch * superBlock]float32
	scale, minimum, sum [batch * superBlock / 16]float32
}

func (c *coder) work() *kwork {
	if c.kw == nil {
		c.kw = new(kwork)
	}
	return c.kw
}

// fit chooses parameters and codes of len(p) super-blocks.
func (t *kmin) fit(c *coder, p []Params, codes []uint8, x []float32, im columns) {
	step := t.fitBatch
	if c.k != nil {
		step = t.fitPlanes
	}
	eachBatch(p, codes, x, im, func(p []Params, codes []uint8, x []float32, im columns) { step(c, p, codes, x, im) })
}

// eachBatch cuts super-blocks into batches.
func eachBatch(p []Params, codes []uint8, x []float32, im columns, f func(p []Params, codes []uint8, x []float32, im columns)) {
	for b := 0; b < len(p); b += batch {
		n := min(batch, len(p)-b)
		at, end := b*superBlock, (b+n)*superBlock
		f(p[b:b+n], codes[at:end], x[at:end], im.skip(at))
	}
}

// fitBatch is the portable fit.
func (t *kmin) fitBatch(c *coder, p []Params, codes []uint8, x []float32, im columns) {
	work := c.work()
	subs := superBlock / t.sub
	spec := &t.plain
	if !im.none() {
		spec = &t.weighted
	}
	for i := 0; i < len(x); i += superBlock {
		t.weights(work.w[i:i+superBlock], x[i:i+superBlock], im.of(i, superBlock))
	}
	for j := range len(x) / t.sub {
		from, to := j*t.sub, (j+1)*t.sub
		work.scale[j], work.minimum[j] = searchAsym(codes[from:to], x[from:to], work.w[from:to], spec)
		work.sum[j] = sum(work.w[from:to])
	}
	for b := range p {
		from, to := b*subs, (b+1)*subs
		scale, minimum := work.scale[from:to], work.minimum[from:to]
		p[b] = Params{}
		if im.none() {
			p[b].D = t.integerScales(p[b].Scale[:], scale)
			p[b].DMin = t.integerScales(p[b].Min[:], minimum)
		} else {
			p[b].D = t.fittedScales(p[b].Scale[:], scale, work.sum[from:to])
			p[b].DMin = t.fittedScales(p[b].Min[:], minimum, work.sum[from:to])
		}
		t.requant(codes[b*superBlock:(b+1)*superBlock], &p[b], x[b*superBlock:(b+1)*superBlock])
	}
}

func (t *kmin) plainWeights(w, x []float32) {
	for i := 0; i < len(x); i += t.sub {
		var root float32
		if t.plainRMS {
			root = sqrt32(sumSquares(x[i:i+t.sub]) / float32(t.sub))
		}
		for j, v := range x[i : i+t.sub] {
			w[i+j] = root + abs32(v)
		}
	}
}

// integerScales divides the scales by their maximum and returns what one unit is worth.
func (t *kmin) integerScales(out []int16, scales []float32) (d float32) {
	var peak float32
	for _, s := range scales {
		if s > peak {
			peak = s
		}
	}
	if !(peak > 0) {
		return 0
	}
	inv := float32(t.scaleLevels) / peak
	for j, s := range scales {
		out[j] = int16(min(t.scaleLevels, int32(uint8(rn(float32(inv*s))))))
	}
	return roundF16(peak / float32(t.scaleLevels))
}

// fittedScales is integerScales by weighted least squares.
func (t *kmin) fittedScales(out []int16, scales, weights []float32) (d float32) {
	var l [16]uint8
	d = roundF16(searchPos(l[:len(scales)], scales, weights, t.scaleLevels))
	for j := range scales {
		out[j] = int16(l[j])
	}
	return d
}

// requant rounds a super-block with its stored parameters; sub-blocks of step 0 keep the codes they have.
func (t *kmin) requant(codes []uint8, p *Params, x []float32) {
	levels := t.plain.levels
	for j := range superBlock / t.sub {
		step := p.D * float32(p.Scale[j])
		if step == 0 {
			continue
		}
		m := float32(p.DMin * float32(p.Min[j]))
		for i := j * t.sub; i < (j+1)*t.sub; i++ {
			codes[i] = uint8(rnClamp((x[i]+m)/step, 0, levels))
		}
	}
}

// fitPlanes is fitBatch with vector kernels, a super-block per lane.
func (t *kmin) fitPlanes(c *coder, p []Params, codes []uint8, x []float32, im columns) {
	pl := c.load(x, superBlock)
	subs := superBlock / t.sub
	spec := &t.plain
	if im.none() {
		scale := float32(0) // leaves |x|
		if t.plainRMS {
			scale = 1 / float32(t.sub)
		}
		for j := range subs {
			c.k.rootWeights(subPlane(pl.w[:], j, t.sub), subPlane(pl.x[:], j, t.sub), t.sub, scale)
		}
	} else {
		spec = &t.weighted
		c.importanceWeights(im, t.sigma)
	}
	c.searchAsym(0, subs, t.sub, spec)
	if im.none() {
		t.planeScales(c, p)
	} else {
		t.planeFittedScales(c, p)
	}
	for j := range subs {
		c.requant(j, t.sub, 0, t.plain.levels, 0)
	}
	c.store(codes, superBlock)
}

// importanceWeights fills the w plane of a batch of super-blocks.
func (c *coder) importanceWeights(im columns, sigma float32) {
	pl := c.pl
	c.loadImportance(im, superBlock)
	c.meanSquares(superBlock, sigma)
	c.k.weights(&pl.w[0], &pl.x[0], &pl.im[0], &pl.sigma[0], superBlock)
}

// planeScales sets the parameters of a batch, and steps and offsets with them.
func (t *kmin) planeScales(c *coder, p []Params) {
	pl := c.pl
	subs := superBlock / t.sub
	top := float32(t.scaleLevels)
	var d [lanes]float32
	c.k.maxScales(&pl.levels[0], &pl.step[0], &d[0], &pl.scale[0], subs, top)
	for b := range p {
		p[b] = Params{D: d[b]}
		for j := range subs {
			p[b].Scale[j] = int16(pl.levels[j*lanes+b])
		}
	}
	c.k.maxScales(&pl.levels[0], &pl.offset[0], &d[0], &pl.minimum[0], subs, top)
	for b := range p {
		p[b].DMin = d[b]
		for j := range subs {
			p[b].Min[j] = int16(pl.levels[j*lanes+b])
		}
	}
}

// planeFittedScales is planeScales with importance.
func (t *kmin) planeFittedScales(c *coder, p []Params) {
	pl := c.pl
	subs := superBlock / t.sub
	for b := range p {
		p[b] = Params{}
	}
	var d [lanes]float32
	c.k.pos(&pl.levels[0], &pl.scale[0], &pl.sum[0], subs, t.scaleLevels, &d[0])
	for b := range p {
		p[b].D = roundF16(d[b])
		for j := range subs {
			p[b].Scale[j] = int16(pl.levels[j*lanes+b])
		}
	}
	c.k.pos(&pl.levels[0], &pl.minimum[0], &pl.sum[0], subs, t.scaleLevels, &d[0])
	for b := range p {
		p[b].DMin = roundF16(d[b])
		for j := range subs {
			p[b].Min[j] = int16(pl.levels[j*lanes+b])
			pl.step[j*lanes+b] = p[b].D * float32(p[b].Scale[j])
			pl.offset[j*lanes+b] = float32(p[b].DMin * float32(p[b].Min[j]))
		}
	}
}

// weights fills the weights of one super-block.
func (t *kmin) weights(w, x, im []float32) {
	if im == nil {
		t.plainWeights(w, x)
		return
	}
	importanceWeights(w, x, im, float32(t.sigma*sumSquares(x)/superBlock))
}

// scalar builds the public view of a type with minima.
func (t *kmin) scalar(name string, head func([]byte, *Params), pack func([]byte, *Params, []uint8), unpack func(*Params, []uint8, []byte)) Scalar {
	return newScalar(Scalar{
		Type: name, Span: superBlock, Sub: t.sub, Levels: integers(0, int(t.plain.levels)), HasMin: true,
		ScaleMax: int16(t.scaleLevels), MinMax: int16(t.scaleLevels),
		fit: t.fit, codes: t.requant, weights: t.weights, search: subSearch{asym: &t.weighted}, head: head, pack: pack, unpack: unpack,
	})
}
