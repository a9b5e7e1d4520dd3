package ggml

// Q3_K and Q6_K: super-blocks of 16 sub-blocks with a signed integer scale each and no minimum.

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

// requantSym finishes a batch: it rounds the x plane with the parameters p and takes the codes out.
func (c *coder) requantSym(p []Params, codes []uint8, levels int32) {
	pl := c.pl
	clear(pl.offset[:])
	for b := range p {
		for j := range 16 {
			pl.step[j*lanes+b] = p[b].D * float32(p[b].Scale[j])
		}
	}
	for j := range 16 {
		c.requant(j, 16, -levels, levels-1, levels)
	}
	c.store(codes, superBlock)
}
