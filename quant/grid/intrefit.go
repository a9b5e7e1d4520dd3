package grid

import "github.com/llmquant/quantize/internal/kernel"

// Refit implements Grid. With v = q − z, a new scale s' and a zero point moved by −m change the values of a row by
// d = s'·(v + m) − s·v, and the error falls by 2·r·d − d·H·dᵀ: a parabola in s' for every m, whose best stored scale is
// the one nearest to its vertex.
func (g *Int) Refit(p Params, codes []uint8, r Tile, h []float32) bool {
	n, cols := r.Rows, r.Cols
	f := intRefit{v: NewTile(n, cols), hv: NewTile(n, cols)}
	zero := p.Plane(1, n)
	for k := range cols {
		for i, q := range codes[k*n : (k+1)*n] {
			f.v.Col(k)[i] = float32(q) - zero[i]
		}
	}
	kernel.GemmNN(nil, f.hv.mat(), kernel.MatF32(cols, cols, h), f.v.mat(), false)
	f.sums(r, h)
	changed := false
	for i := range n {
		changed = g.refitRow(p, i, n, &f) || changed
	}
	return changed
}

// intRefit holds the sums of one group that Refit needs, per row.
type intRefit struct {
	v, hv                  Tile
	rv, vhv, r1, vh1, hOne []float32 // r·v, v·H·v, r·1, v·H·1; row sums of H
	oneHOne                float32
}

func (f *intRefit) sums(r Tile, h []float32) {
	n, cols := r.Rows, r.Cols
	vec := func() []float32 { return make([]float32, n) }
	f.rv, f.vhv, f.r1, f.vh1, f.hOne = vec(), vec(), vec(), vec(), make([]float32, cols)
	for j := range cols {
		for _, x := range h[j*cols : (j+1)*cols] {
			f.hOne[j] += x
		}
		f.oneHOne += f.hOne[j]
		v, hv, rj := f.v.Col(j), f.hv.Col(j), r.Col(j)
		for i := range n {
			f.rv[i] += float32(rj[i] * v[i])
			f.vhv[i] += float32(hv[i] * v[i])
			f.r1[i] += rj[i]
			f.vh1[i] += hv[i]
		}
	}
}

func (g *Int) refitRow(p Params, i, n int, f *intRefit) bool {
	scale, zero := p.Plane(0, n), p.Plane(1, n)
	s, z := scale[i], zero[i]
	rv, vhv, r1, vh1, ones := float64(f.rv[i]), float64(f.vhv[i]), float64(f.r1[i]), float64(f.vh1[i]), float64(f.oneHOne)
	bestGain, bestScale, bestZero := 0.0, s, z
	for _, m := range zeroMoves {
		if m != 0 && (g.scheme.Sym || z-m < g.low || z-m > g.top) {
			continue
		}
		m64 := float64(m)
		full := vhv + float64(2*m64*vh1) + float64(m64*m64*ones) // v'·H·v' of v' = v + m
		if !(full > 0) {
			continue
		}
		vertex := (rv + float64(m64*r1) + float64(float64(s)*(vhv+float64(m64*vh1)))) / full
		s2 := g.storedSigned(float32(vertex), s)
		x, y := float64(s2)-float64(s), m64*float64(s2) // d = x·v + y·1, which does not cancel
		gain := 2*(float64(x*rv)+float64(y*r1)) - (float64(x*x*vhv) + float64(2*x*y*vh1) + float64(y*y*ones))
		if gain > bestGain {
			bestGain, bestScale, bestZero = gain, s2, z-m
		}
	}
	scale[i], zero[i] = bestScale, bestZero
	return bestScale != s || bestZero != z
}

// zeroMoves are the moves m of the zero point that Refit tries, the old one first.
var zeroMoves = [...]float32{0, 1, -1}
