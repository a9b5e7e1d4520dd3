package ggml

// Q3_K and Q6_K: super-blocks of 16 sub-blocks with a signed integer scale each and no minimum.

// signedPeak returns the element of largest magnitude with its sign, the first of equals; 0 for zeros.
func signedPeak(x []float32) float32 {
	peak, _ := extreme(x)
	return peak
}

// searchSymAll runs searchSym on every n weights of x; a nil w weights by the square.
func searchSymAll(codes []uint8, x, w []float32, n int, levels int32, scale []float32) {
	for j := 0; j < len(x)/n; j++ {
		from, to := j*n, (j+1)*n
		var wj []float32
		if w != nil {
			wj = w[from:to]
		}
		scale[j] = searchSym(codes[from:to], x[from:to], wj, levels)
	}
}

// requantSym rounds a super-block with its stored parameters to codes 0 … 2·levels-1; sub-blocks of step 0 keep the
// codes they have.
func requantSym(codes []uint8, p *Params, x []float32, levels int32) {
	for j := range 16 {
		step := p.D * float32(p.Scale[j])
		if step == 0 {
			continue
		}
		for i := 16 * j; i < 16*j+16; i++ {
			codes[i] = uint8(rnClamp(x[i]/step, -levels, levels-1) + levels)
		}
	}
}
