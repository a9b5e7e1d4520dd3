package ggml

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
