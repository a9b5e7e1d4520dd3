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
