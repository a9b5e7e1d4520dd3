package ggml

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
