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

// signedScales makes integers of the scales of a batch; the largest magnitude becomes the lowest, -highest-1. Blocks with
// none of magnitude eps have the integers `none`.
func (c *coder) signedScales(p []Params, highest, none int32, eps float32) {
	pl := c.pl
	var d [lanes]float32
	c.k.signedScales(&pl.levels[0], &pl.step[0], &d[0], &pl.scale[0], 16, float32(-highest-1), highest, none, eps)
	for b := range p {
		p[b] = Params{D: d[b]}
		for j := range 16 {
			p[b].Scale[j] = int16(int8(pl.levels[j*lanes+b]))
		}
	}
}

// steps sets the steps of a batch from its parameters.
func (c *coder) steps(p []Params) {
	for b := range p {
		for j := range 16 {
			c.pl.step[j*lanes+b] = p[b].D * float32(p[b].Scale[j])
		}
	}
}

// requantSym finishes a batch: it rounds the x plane with the steps and takes the codes out.
func (c *coder) requantSym(codes []uint8, levels int32) {
	clear(c.pl.offset[:])
	for j := range 16 {
		c.requant(j, 16, -levels, levels-1, levels)
	}
	c.store(codes, superBlock)
}
