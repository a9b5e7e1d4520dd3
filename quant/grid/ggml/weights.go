package ggml

// What the searches weight the elements with, and sums in index order.

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

// sumSquares adds x² in index order.
func sumSquares(x []float32) float32 {
	var s float32
	for _, v := range x {
		s += float32(v * v)
	}
	return s
}

// extreme returns the element of largest magnitude, the first of equals, and that magnitude.
func extreme(x []float32) (signed, amax float32) {
	for _, v := range x {
		if a := abs32(v); a > amax {
			amax, signed = a, v
		}
	}
	return signed, amax
}
