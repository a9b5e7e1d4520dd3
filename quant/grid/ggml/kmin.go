package ggml

// The K types with a minimum per sub-block: Q2_K, Q4_K and Q5_K are one algorithm with different constants.

// batch is how many super-blocks the fits handle at once, so that vector kernels find 16 of everything.
const batch = 16

// kmin describes one of the three.
type kmin struct {
	sub             int     // weights per sub-block
	scaleLevels     int32   // integer scales and minima 0 … scaleLevels
	sigma           float32 // sigma² of the importance weights = sigma·Σx²/256
	plain, weighted asymSpec
	plainWeights    func(w, x []float32)
}

var (
	kminQ2 = kmin{sub: 16, scaleLevels: 15, sigma: 1, plainWeights: weightsAbs,
		plain:    asymSpec{levels: 3, first: -0.5, step: 0.1, steps: 15, abs: true},
		weighted: asymSpec{levels: 3, first: -0.9, step: 0.05, steps: 36}}
	kminQ4 = kmin{sub: 32, scaleLevels: 63, sigma: 2, plainWeights: weightsRMS,
		plain:    asymSpec{levels: 15, first: -1, step: 0.1, steps: 20},
		weighted: asymSpec{levels: 15, first: -0.9, step: 0.05, steps: 36}}
	kminQ5 = kmin{sub: 32, scaleLevels: 63, sigma: 2, plainWeights: weightsRMS,
		plain:    asymSpec{levels: 31, first: -0.5, step: 0.1, steps: 15},
		weighted: asymSpec{levels: 31, first: -0.9, step: 0.05, steps: 36}}
)

// weightsAbs is |x|.
func weightsAbs(w, x []float32) {
	for i, v := range x {
		w[i] = abs32(v)
	}
}

// weightsRMS is |x| plus the root mean square of the sub-block.
func weightsRMS(w, x []float32) {
	rms := sqrt32(sumSquares(x) / float32(len(x)))
	for i, v := range x {
		w[i] = rms + abs32(v)
	}
}

// kwork is the scratch memory of a fit: per sub-block of a batch.
type kwork struct {
	w                   [batch * superBlock]float32
	scale, minimum, sum [batch * superBlock / 16]float32
}

// fit chooses parameters and first codes of len(p) super-blocks.
func (t *kmin) fit(p []Params, codes []uint8, x []float32, im columns) {
	var work kwork
	for b := 0; b < len(p); b += batch {
		n := min(batch, len(p)-b)
		at, end := b*superBlock, (b+n)*superBlock
		if im.none() {
			t.fitPlain(&work, p[b:b+n], codes[at:end], x[at:end])
		} else {
			t.fitWeighted(&work, p[b:b+n], codes[at:end], x[at:end], im.skip(at))
		}
	}
}

func (t *kmin) fitPlain(work *kwork, p []Params, codes []uint8, x []float32) {
	subs := superBlock / t.sub
	for i := 0; i < len(x); i += t.sub {
		t.plainWeights(work.w[i:i+t.sub], x[i:i+t.sub])
	}
	searchAsymAll(codes, x, work.w[:len(x)], t.sub, &t.plain, work.scale[:], work.minimum[:])
	for b := range p {
		p[b] = Params{}
		p[b].D = t.integerScales(p[b].Scale[:], work.scale[b*subs:(b+1)*subs])
		p[b].DMin = t.integerScales(p[b].Min[:], work.minimum[b*subs:(b+1)*subs])
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

func (t *kmin) fitWeighted(work *kwork, p []Params, codes []uint8, x []float32, im columns) {
	subs := superBlock / t.sub
	for b := range p {
		at := b * superBlock
		block := x[at : at+superBlock]
		sigma2 := t.sigma * sumSquares(block) / superBlock
		importanceWeights(work.w[at:at+superBlock], block, im.of(at, superBlock), sigma2)
	}
	for j := 0; j < len(x)/t.sub; j++ {
		work.sum[j] = sum(work.w[j*t.sub : (j+1)*t.sub])
	}
	searchAsymAll(codes, x, work.w[:len(x)], t.sub, &t.weighted, work.scale[:], work.minimum[:])
	var l [16]uint8
	for b := range p {
		from, to := b*subs, (b+1)*subs
		p[b] = Params{}
		p[b].D = roundF16(searchPos(l[:subs], work.scale[from:to], work.sum[from:to], t.scaleLevels))
		setScales(p[b].Scale[:], l[:subs])
		p[b].DMin = roundF16(searchPos(l[:subs], work.minimum[from:to], work.sum[from:to], t.scaleLevels))
		setScales(p[b].Min[:], l[:subs])
	}
}

func setScales(dst []int16, codes []uint8) {
	for j, c := range codes {
		dst[j] = int16(c)
	}
}

// searchAsymAll runs searchAsym on every n weights of x.
func searchAsymAll(codes []uint8, x, w []float32, n int, spec *asymSpec, scale, minimum []float32) {
	for j := 0; j < len(x)/n; j++ {
		at := j * n
		scale[j], minimum[j] = searchAsym(codes[at:at+n], x[at:at+n], w[at:at+n], spec)
	}
}

// requant rounds a super-block with its stored parameters; sub-blocks of step 0 keep the codes they have.
func (t *kmin) requant(codes []uint8, p *Params, x []float32) {
	levels := t.plain.levels
	for j := range superBlock / t.sub {
		step := p.D * float32(p.Scale[j])
		if step == 0 {
			continue
		}
		m := p.DMin * float32(p.Min[j])
		for i := j * t.sub; i < (j+1)*t.sub; i++ {
			codes[i] = uint8(rnClamp((x[i]+m)/step, 0, levels))
		}
	}
}

// scalar builds the public view of a type with minima.
func (t *kmin) scalar(name string, pack func([]byte, *Params, []uint8), unpack func(*Params, []uint8, []byte)) Scalar {
	return Scalar{
		Type: name, Span: superBlock, Sub: t.sub, Levels: integers(0, int(t.plain.levels)), HasMin: true,
		ScaleMin: 0, ScaleMax: int16(t.scaleLevels), MinMax: int16(t.scaleLevels),
		roundD: roundF16, fit: t.fit, codes: t.requant, pack: pack, unpack: unpack,
		sub: func(codes []uint8, x, w []float32) (float32, float32) { return searchAsym(codes, x, w, &t.weighted) },
	}
}
