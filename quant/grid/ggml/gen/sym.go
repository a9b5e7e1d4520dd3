package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// symState is what the parts of the sym kernel share.
type symState struct {
	g                       *gen
	x, w, n                 reg.GPVirtual
	products                Mem            // rows of w·x
	levels, low, high, zero reg.VecVirtual // codes are low … high
	peak                    held
	scale, best, bestInv    held // of the best candidate; best is scale·Σ w·x·l
}

// symSteps are the candidates: inverse scales -(levels + 0.1·k)/peak, the full range first.
var symSteps = []int{0, -9, -8, -7, -6, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6, 7, 8, 9}

// symWays is how many candidates are summed up at once: their sums are independent.
func (g *gen) symWays() int {
	if g.wide() {
		return 4
	}
	return 2
}

// sym is searchSym on a plane.
func sym(g *gen) {
	g.begin("sym", "func(codes *uint8, x, w *float32, n int, levels float32, scale *float32)",
		"is searchSym with weights in every lane; n is at most 32.")
	products, keep := g.local(32*rowBytes), g.slots(5)
	g.lanes(func() {
		s := &symState{g: g, x: g.plane("x"), w: g.plane("w"), n: g.rows("n"), products: products, zero: g.zero()}
		peak, none := peaks(g, "peak", s.x, s.n, g.float(searchEps))
		empty := g.hold(keep[0], none)
		s.peak, s.scale, s.best, s.bestInv = g.held(keep[1]), g.held(keep[2]), g.held(keep[3]), g.held(keep[4])
		s.peak.put(peak)
		g.each("products", 0, s.n, func(i reg.GPVirtual) {
			g.VMOVUPS(g.mul(g.load(at(s.w, i)), at(s.x, i)), s.products.Idx(i, 1))
		})
		s.levels = g.scalar("levels")
		s.low, s.high = g.sub(s.zero, s.levels), g.sub(s.levels, g.float(1))
		s.candidates()
		codes := g.bytePlane("codes")
		unused, inv := empty.get(), s.bestInv.get()
		g.each("codes", 0, s.n, func(i reg.GPVirtual) {
			l := g.add(g.roundTo(g.mul(inv, at(s.x, i)), s.low, s.high), s.levels)
			g.choose(unused, s.zero, l)
			g.storeBytes(g.toInt(l), Mem{Base: codes})
			g.ADDQ(Imm(16), codes)
		})
		scale := s.scale.get()
		g.choose(unused, s.zero, scale)
		g.VMOVUPS(scale, Mem{Base: g.plane("scale")})
	})
	g.end()
}

// inverse is the inverse scale of candidate k.
func (s *symState) inverse(k int) reg.VecVirtual {
	g := s.g
	if k == 0 {
		return g.div(s.low, s.peak.get())
	}
	step := float32(0.1) * float32(k)
	return g.div(g.sub(s.zero, g.add(s.levels, g.float(step))), s.peak.get())
}

// candidates tries all, a few at a time. The divisions for the next few are begun before the sums of these.
func (s *symState) candidates() {
	g := s.g
	ways := g.symWays()
	invert := func(steps []int) (inv []reg.VecVirtual) {
		for _, k := range steps {
			inv = append(inv, s.inverse(k))
		}
		return inv
	}
	rest := symSteps
	inv := invert(rest[:ways])
	for len(rest) > 0 {
		steps := rest[:min(ways, len(rest))]
		rest = rest[len(steps):]
		var next []reg.VecVirtual
		if g.wide() {
			next = invert(rest[:min(ways, len(rest))])
		}
		a, b := s.sums(fmt.Sprint("sums", steps[0]+10), steps, inv)
		for i, k := range steps {
			s.judge(k, inv[i], a[i], b[i])
		}
		if !g.wide() { // no registers to be early
			next = invert(rest[:min(ways, len(rest))])
		}
		inv = next
	}
}

// judge keeps a candidate that is better than the best so far.
func (s *symState) judge(k int, inv, a, b reg.VecVirtual) {
	g := s.g
	if k == 0 {
		scale := g.keep(g.compare(notEqual, b, s.zero), g.div(a, b))
		s.scale.put(scale)
		s.best.put(g.mul(scale, a))
		s.bestInv.put(inv)
		return
	}
	better := g.both(g.compare(greater, b, s.zero), g.compare(greater, g.mul(a, a), g.mul(s.best.get(), b)))
	scale := g.div(a, b)
	s.scale.choose(better, scale)
	s.best.choose(better, g.mul(scale, a))
	s.bestInv.choose(better, inv)
}

// sums returns Σ w·x·l and Σ w·l² for the codes of several inverse scales. |inv·x| is at most levels + 0.1·k: from -6 on
// down no code passes levels - 1, from 4 on down none -levels.
func (s *symState) sums(label string, steps []int, inv []reg.VecVirtual) (a, b []reg.VecVirtual) {
	g := s.g
	for range steps {
		a, b = append(a, g.zero()), append(b, g.zero())
	}
	g.each(label, 0, s.n, func(i reg.GPVirtual) {
		v := g.load(at(s.x, i))
		for c, k := range steps {
			l := g.round(g.mul(inv[c], v))
			if k > 4 {
				g.limitBelow(l, s.low)
			}
			if k > -6 {
				g.limitAbove(l, s.high)
			}
			g.addTo(a[c], g.mul(l, s.products.Idx(i, 1)))
			g.addTo(b[c], g.mul(g.mul(l, at(s.w, i)), l))
		}
	})
	return a, b
}

// searchEps is the magnitude below which a sub-block counts as zero, as in the package.
const searchEps = 1e-15

// peaks is extreme on a plane: the first element of largest magnitude. Lanes whose magnitudes stay below eps are empty; their
// peak becomes 1.
func peaks(g *gen, label string, x, n reg.Register, eps reg.VecVirtual) (peak reg.VecVirtual, empty mask) {
	peak = g.zero()
	amax := g.zero()
	magnitude := g.int(0x7fffffff)
	g.each(label, 0, n, func(i reg.GPVirtual) {
		v := g.load(at(x, i))
		a := g.abs(v, magnitude)
		m := g.compare(greater, a, amax)
		g.choose(m, a, amax)
		g.choose(m, v, peak)
	})
	empty = g.compare(less, amax, eps)
	g.choose(empty, g.float(1), peak)
	return peak, empty
}
