package ggml

import (
	"encoding/binary"
	"math"
)

const sizeIQ1M = 56

// iq1mSub is the fit of one sub-block of 16: two codewords with a shift each.
type iq1mSub struct {
	scale  float32
	shifts int // bit 1: shift of the first codeword is -1/8, bit 0: of the second
	levels [16]uint8
	words  [2]uint16
}

// values returns what the levels of codeword g stand for.
func (s *iq1mSub) values(g int) *[3]float32 { return &iq1Values[s.shifts>>(1-g)&1] }

func encodeIQ1M(e *encoder) {
	grid := gridIQ1()
	if e.coder.k != nil {
		e.encodeIQ1MPlanes(grid)
		return
	}
	e.blocks(superBlock, sizeIQ1M, func(b []byte, x, im []float32) { encodeBlockIQ1M(b, grid, x, im) })
}

// encodeBlockIQ1M is the portable encoder of one super-block.
func encodeBlockIQ1M(b []byte, grid *codebook, x, im []float32) {
	var w [superBlock]float32
	if im != nil {
		importanceWeights(w[:], x, im, float32(2*sumSquares(x)/superBlock))
	} else {
		squares(w[:], x)
	}
	var subs [16]iq1mSub
	for j := range subs {
		subs[j].fit(grid, x[16*j:16*j+16], w[16*j:16*j+16])
	}
	packIQ1M(b, grid, &subs, x, w[:])
}

// packIQ1M rounds the sub-scales to multiples of d, refits d over the whole super-block and writes it.
func packIQ1M(b []byte, grid *codebook, subs *[16]iq1mSub, x, w []float32) {
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
	var sxq, sqq float32
	for j := range subs {
		s := &subs[j]
		l := rnClamp(float32(0.5*(float32(inv*s.scale)-1)), 0, 7)
		sc := b[48+2*(j/4):]
		binary.LittleEndian.PutUint16(sc, binary.LittleEndian.Uint16(sc)|uint16(l)<<(3*(j%4)))
		for g, word := range s.words {
			index := uint16(grid.index[word])
			b[2*j+g] = uint8(index)
			b[32+j] |= uint8(index>>8|uint16(s.shifts>>(1-g)&1)<<3) << (4 * g)
			values := s.values(g)
			for i := range 8 {
				at := 16*j + 8*g + i
				q := float32(values[s.levels[8*g+i]] * float32(2*l+1))
				wq := float32(w[at] * q)
				sxq += float32(wq * x[at])
				sqq += float32(wq * q)
			}
		}
	}
	if sqq > 0 {
		d = sxq / sqq
	}
	bits := f16Bits(float32(d * 1.1125))
	for j := range 4 {
		sc := b[48+2*j:]
		binary.LittleEndian.PutUint16(sc, binary.LittleEndian.Uint16(sc)|bits>>(4*j)<<12)
	}
}

func (s *iq1mSub) fit(grid *codebook, x, w []float32) {
	if _, amax := extreme(x); amax < zeroIQ1M {
		s.zero()
		return
	}
	s.split(x, w)
	s.turn()
	all := true
	for g := range s.words {
		var on bool
		s.words[g], on = iq1Group(grid, s.levels[8*g:8*g+8], x[8*g:], w[8*g:], s.scale, s.values(g))
		all = all && on
	}
	if !all {
		s.refit(x, w)
	}
}

// zero makes the sub-block decode to as near zero as the type can.
func (s *iq1mSub) zero() {
	*s = iq1mSub{words: [2]uint16{zeroWordIQ1, zeroWordIQ1}}
	for i := range s.levels {
		s.levels[i] = 1
	}
}

// turn makes a negative scale positive.
func (s *iq1mSub) turn() {
	if s.scale < 0 {
		reverseLevels(s.levels[:])
		s.scale, s.shifts = -s.scale, 3-s.shifts
	}
}

func (s *iq1mSub) refit(x, w []float32) {
	s.scale = refitIQ1(s.scale, s.levels[:], x, w, func(i int) *[3]float32 { return s.values(i / 8) })
}

// split tries every division of the sorted weights into three runs under the four pairs of shifts.
func (s *iq1mSub) split(x, w []float32) {
	var idx [16]uint8
	order(idx[:], x)
	best := float32(-math.MaxFloat32)
	cut1, cut2 := 0, 0
	for i1 := range 17 {
		for i2 := i1; i2 <= 16; i2++ {
			var a, b [4]float32
			for j, i := range idx {
				level := 0
				if j >= i1 {
					level++
				}
				if j >= i2 {
					level++
				}
				g := int(i / 8)
				for pair := range 4 {
					q := iq1Values[pair>>(1-g)&1][level]
					wq := float32(w[i] * q)
					a[pair] += float32(wq * x[i])
					b[pair] += float32(wq * q)
				}
			}
			for pair := range 4 {
				if b[pair] > 0 && float32(a[pair]*a[pair]) > float32(best*b[pair]) {
					s.scale = a[pair] / b[pair]
					best = float32(s.scale * a[pair])
					s.shifts = pair
					cut1, cut2 = i1, i2
				}
			}
		}
	}
	cutLevels(s.levels[:], idx[:], cut1, cut2)
}
