package ggml

// The scale searches shared by the block types. Each takes the n elements of one sub-block and returns its scale (and
// minimum), leaving the integer codes in codes. Sums run in index order in float32: see the package comment.

// searchEps is the magnitude below which a sub-block counts as zero.
const searchEps = 1e-15

// symSteps is how many steps of 0.1 the symmetric search tries on either side of the full range.
const symSteps = 9

// searchSym fits x ≈ s·l with integers l in -levels … levels-1 by weighted least squares over 19 candidate ranges;
// codes hold l+levels. A nil w weights every element with its square.
func searchSym(codes []uint8, x, w []float32, levels int32) float32 {
	peak, amax := extreme(x)
	if amax < searchEps {
		clear(codes[:len(x)])
		return 0
	}
	bestInv := float32(-levels) / peak
	a, b := symSums(x, w, bestInv, levels)
	var scale float32
	if b != 0 {
		scale = a / b
	}
	best := float32(scale * a)
	for k := -symSteps; k <= symSteps; k++ {
		if k == 0 {
			continue
		}
		inv := -(float32(levels) + float32(0.1*float32(k))) / peak
		a, b := symSums(x, w, inv, levels)
		if b > 0 && float32(a*a) > float32(best*b) {
			scale = a / b
			best = float32(scale * a)
			bestInv = inv
		}
	}
	for i, v := range x {
		codes[i] = uint8(rnClamp(float32(bestInv*v), -levels, levels-1) + levels)
	}
	return scale
}

// symSums returns Σ w·x·l and Σ w·l² for the integers of inverse scale inv.
func symSums(x, w []float32, inv float32, levels int32) (a, b float32) {
	if w == nil {
		for _, v := range x {
			l := float32(rnClamp(float32(inv*v), -levels, levels-1))
			wt := float32(v * v)
			a += float32(float32(wt*v) * l)
			b += float32(float32(wt*l) * l)
		}
		return a, b
	}
	w = w[:len(x)]
	for i, v := range x {
		l := float32(rnClamp(float32(inv*v), -levels, levels-1))
		a += float32(float32(w[i]*v) * l)
		b += float32(float32(w[i]*l) * l)
	}
	return a, b
}

// searchSym3 is the unweighted fit of Q3_K (levels -4 … 3): start at the full range, then improve one code at a time.
func searchSym3(codes []uint8, x []float32) float32 {
	const levels = 4
	peak, amax := extreme(x)
	if amax < searchEps {
		clear(codes[:len(x)])
		return 0
	}
	inv := float32(-levels) / peak
	var buf [subBlockMax]int32
	l := buf[:len(x)]
	var a, b float32
	for i, v := range x {
		l[i] = rnClamp(float32(inv*v), -levels, levels-1)
		w, f := float32(v*v), float32(l[i])
		a += float32(float32(w*v) * f)
		b += float32(float32(w*f) * f)
	}
	for range 5 {
		if !improveSym3(l, x, &a, &b) {
			break
		}
	}
	for i := range l {
		codes[i] = uint8(l[i] + levels)
	}
	if b > 0 {
		return a / b
	}
	return 0
}

// improveSym3 moves each code to the optimum of the scale that the other codes imply, if that raises a²/b.
func improveSym3(l []int32, x []float32, a, b *float32) (changed bool) {
	for i, v := range x {
		w, old := float32(v*v), float32(l[i])
		wx := float32(w * v)
		restA := *a - float32(wx*old)
		if !(restA > 0) {
			continue
		}
		restB := *b - float32(float32(w*old)*old)
		next := rnClamp(float32(v*restB)/restA, -4, 3)
		if next == l[i] {
			continue
		}
		f := float32(next)
		restA += float32(wx * f)
		restB += float32(float32(w*f) * f)
		if restB > 0 && float32(float32(restA*restA)**b) > float32(float32(*a**a)*restB) {
			l[i], *a, *b = next, restA, restB
			changed = true
		}
	}
	return changed
}

// asymSpec is one setting of the search for a scale and a minimum.
type asymSpec struct {
	levels      int32   // codes 0 … levels
	first, step float32 // candidate ranges levels + first + step·k
	steps       int     // k = 0 … steps
	abs         bool    // score by |error|, not error²
}

// searchAsym fits x ≈ s·code − m with m ≥ 0.
func searchAsym(codes []uint8, x, w []float32, spec *asymSpec) (scale, minimum float32) {
	lo, hi := x[0], x[0]
	var sumW, sumX float32
	w = w[:len(x)]
	for i, v := range x {
		if v < lo {
			lo = v
		}
		if v > hi {
			hi = v
		}
		if i == 0 { // starting from the first term, not from 0: the sign of a zero sum follows it
			sumW, sumX = w[0], float32(w[0]*v)
			continue
		}
		sumW += w[i]
		sumX += float32(w[i] * v)
	}
	if lo > 0 {
		lo = 0
	}
	codes = codes[:len(x)]
	if hi <= lo {
		clear(codes)
		return 0, -lo
	}
	inv := float32(spec.levels) / (hi - lo)
	scale = 1 / inv
	asymCodes(codes, x, inv, lo, spec.levels)
	best := asymError(codes, x, w, scale, lo, spec.abs)
	var buf [subBlockMax]uint8
	trial := buf[:len(x)]
	for k := 0; k <= spec.steps; k++ {
		inv := (spec.first + float32(spec.step*float32(k)) + float32(spec.levels)) / (hi - lo)
		asymCodes(trial, x, inv, lo, spec.levels)
		s, m, ok := asymFit(trial, x, w, sumW, sumX)
		if !ok {
			continue
		}
		if e := asymError(trial, x, w, s, m, spec.abs); e < best {
			copy(codes, trial)
			best, scale, lo = e, s, m // later candidates start from the new minimum
		}
	}
	return scale, -lo
}

func asymCodes(codes []uint8, x []float32, inv, lo float32, levels int32) {
	for i, v := range x {
		codes[i] = uint8(rnClamp(float32(inv*(v-lo)), 0, levels))
	}
}

// asymFit solves the 2×2 least squares problem for scale and minimum; a positive minimum is replaced by 0.
func asymFit(codes []uint8, x, w []float32, sumW, sumX float32) (s, m float32, ok bool) {
	var sl, sl2, sxl float32
	for i, v := range x {
		l := float32(codes[i])
		wl := float32(w[i] * l)
		sl += wl
		sl2 += float32(wl * l)
		sxl += float32(wl * v)
	}
	det := float32(sumW*sl2) - float32(sl*sl)
	if !(det > 0) {
		return 0, 0, false
	}
	s = (float32(sumW*sxl) - float32(sumX*sl)) / det
	m = (float32(sl2*sumX) - float32(sl*sxl)) / det
	if m > 0 {
		m = 0
		s = sxl / sl2
	}
	return s, m, true
}

func asymError(codes []uint8, x, w []float32, s, m float32, abs bool) (e float32) {
	for i, v := range x {
		diff := float32(s*float32(codes[i])) + m - v
		if abs {
			diff = abs32(diff)
		} else {
			diff = float32(diff * diff)
		}
		e += float32(w[i] * diff)
	}
	return e
}

// searchPos fits non-negative x ≈ s·code: the scale of a list of scales. Codes are unsigned bytes and wrap, which
// matters when an entry is negative.
func searchPos(codes []uint8, x, w []float32, levels int32) float32 {
	var peak float32
	for _, v := range x {
		if v > peak {
			peak = v
		}
	}
	codes = codes[:len(x)]
	if peak < searchEps {
		clear(codes)
		return 0
	}
	inv := posRange(x, w, levels, peak)
	var a, b float32
	for i, v := range x {
		l := min(levels, rn(float32(inv*v)))
		codes[i] = uint8(l)
		f := float32(l)
		a += float32(float32(w[i]*v) * f)
		b += float32(float32(w[i]*f) * f)
	}
	for range 5 {
		if !improvePos(codes, x, w, levels, &a, &b) {
			break
		}
	}
	if b > 0 {
		return a / b
	}
	return 0
}

// posRange picks the inverse scale of least weighted squared error among nine.
func posRange(x, w []float32, levels int32, peak float32) float32 {
	bestInv := float32(levels) / peak
	s := 1 / bestInv
	var best float32
	for i, v := range x {
		diff := v - float32(s*float32(uint8(rn(float32(bestInv*v)))))
		best += float32(float32(w[i]*diff) * diff)
	}
	for k := -4; k <= 4; k++ {
		if k == 0 {
			continue
		}
		inv := (float32(0.1*float32(k)) + float32(levels)) / peak
		s := 1 / inv
		var e float32
		for i, v := range x {
			diff := v - float32(s*float32(min(levels, rn(float32(inv*v)))))
			e += float32(float32(w[i]*diff) * diff)
		}
		if e < best {
			best, bestInv = e, inv
		}
	}
	return bestInv
}

// improvePos is improveSym3 for codes 0 … levels.
func improvePos(codes []uint8, x, w []float32, levels int32, a, b *float32) (changed bool) {
	for i, v := range x {
		old := float32(codes[i])
		wx := float32(w[i] * v)
		restA := *a - float32(wx*old)
		restB := *b - float32(float32(w[i]*old)*old)
		if !(restA > 0 && restB > 0) {
			continue
		}
		next := min(levels, rn(float32(v*restB)/restA))
		if next == int32(codes[i]) {
			continue
		}
		f := float32(next)
		restA += float32(wx * f)
		restB += float32(float32(w[i]*f) * f)
		if float32(float32(restA*restA)**b) > float32(float32(*a**a)*restB) {
			codes[i], *a, *b = uint8(next), restA, restB
			changed = true
		}
	}
	return changed
}

// importanceWeights fills w with im·sqrt(sigma2 + x²), the usual weight of an element.
func importanceWeights(w, x, im []float32, sigma2 float32) {
	w, im = w[:len(x)], im[:len(x)]
	for i, v := range x {
		w[i] = float32(im[i] * sqrt32(sigma2+float32(v*v)))
	}
}

// squares fills w with x².
func squares(w, x []float32) {
	for i, v := range x {
		w[i] = float32(v * v)
	}
}

// sum adds in index order.
func sum(w []float32) (s float32) {
	for _, v := range w {
		s += v
	}
	return s
}
