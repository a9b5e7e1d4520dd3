package ggml

import (
	"encoding/binary"
	"math"
)

const sizeIQ1S = 50

// iq1sSub is the fit of one sub-block of 32.
type iq1sSub struct {
	scale  float32
	minus  bool // shift -1/8
	levels [32]uint8
	words  [4]uint16
}

func encodeIQ1S(e *encoder) {
	grid := gridIQ1()
	if e.coder.k != nil {
		e.encodeIQ1SPlanes(grid)
		return
	}
	e.blocks(superBlock, sizeIQ1S, func(b []byte, x, im []float32) { encodeBlockIQ1S(b, grid, x, im) })
}

// encodeBlockIQ1S is the portable encoder of one super-block.
func encodeBlockIQ1S(b []byte, grid *codebook, x, im []float32) {
	var w [superBlock]float32
	importanceWeights(w[:], x, im, float32(2*sumSquares(x)/superBlock))
	var subs [8]iq1sSub
	for j := range subs {
		subs[j].fit(grid, x[32*j:32*j+32], w[32*j:32*j+32])
	}
	packIQ1S(b, grid, &subs)
}

func packIQ1S(b []byte, grid *codebook, subs *[8]iq1sSub) {
	clear(b)
	var peak float32
	for j := range subs {
		peak = max(peak, subs[j].scale)
	}
	if !(peak > 0) {
		return
	}
	d := peak / 15
	inv := 1 / d
	putF16(b, float32(d*1.125))
	for j := range subs {
		code := uint16(rnClamp(float32(0.5*(float32(inv*subs[j].scale)-1)), 0, 7)) << 12
		if subs[j].minus {
			code |= 1 << 15
		}
		for g, word := range subs[j].words {
			index := uint16(grid.index[word])
			b[2+4*j+g] = uint8(index)
			code |= index >> 8 << (3 * g)
		}
		binary.LittleEndian.PutUint16(b[34+2*j:], code)
	}
}

func (s *iq1sSub) values() *[3]float32 {
	if s.minus {
		return &iq1Values[1]
	}
	return &iq1Values[0]
}

func (s *iq1sSub) fit(grid *codebook, x, w []float32) {
	if _, amax := extreme(x); amax < zeroIQ1S {
		s.zero()
		return
	}
	s.split(x, w)
	s.turn()
	all := true
	for g := range s.words {
		var on bool
		s.words[g], on = iq1Group(grid, s.levels[8*g:8*g+8], x[8*g:], w[8*g:], s.scale, s.values())
		all = all && on
	}
	if !all {
		s.refit(x, w)
	}
}

// zero makes the sub-block decode to as near zero as the type can.
func (s *iq1sSub) zero() {
	*s = iq1sSub{words: [4]uint16{zeroWordIQ1, zeroWordIQ1, zeroWordIQ1, zeroWordIQ1}}
}

// turn makes a negative scale positive.
func (s *iq1sSub) turn() {
	if s.scale < 0 {
		reverseLevels(s.levels[:])
		s.scale, s.minus = -s.scale, !s.minus
	}
}

func (s *iq1sSub) refit(x, w []float32) {
	values := s.values()
	s.scale = refitIQ1(s.scale, s.levels[:], x, w, func(int) *[3]float32 { return values })
}

// split sorts the weights and tries every division into three runs for levels 0, 1, 2 under both shifts.
func (s *iq1sSub) split(x, w []float32) {
	var idx [32]uint8
	order(idx[:], x)
	var sx, sw [33]float32 // sums over the first j in sorted order
	for j, i := range idx {
		sx[j+1] = sx[j] + float32(w[i]*x[i])
		sw[j+1] = sw[j] + w[i]
	}
	best := float32(-math.MaxFloat32)
	cut1, cut2 := 0, 0
	for i1 := range 33 {
		for i2 := i1; i2 <= 32; i2++ {
			x0, x1, x2 := sx[i1]-sx[0], sx[i2]-sx[i1], sx[32]-sx[i2]
			w0, w1, w2 := sw[i1]-sw[0], sw[i2]-sw[i1], sw[32]-sw[i2]
			for shift := range iq1Values {
				c := &iq1Values[shift]
				a := float32(x0*c[0]) + float32(x1*c[1]) + float32(x2*c[2])
				b := float32(float32(w0*c[0])*c[0]) + float32(float32(w1*c[1])*c[1]) + float32(float32(w2*c[2])*c[2])
				if b > 0 && float32(a*a) > float32(best*b) {
					s.scale = a / b
					best = float32(s.scale * a)
					s.minus = shift == 1
					cut1, cut2 = i1, i2
				}
			}
		}
	}
	cutLevels(s.levels[:], idx[:], cut1, cut2)
}
