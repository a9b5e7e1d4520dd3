package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// guard surrounds matrices in tests; a kernel that writes outside its matrix destroys it.
const guard = float32(-12345.5)

// matrix returns a random rows x cols matrix whose stride exceeds its width by pad, inside guard elements.
func matrix(rng *rand.Rand, kind Kind, rows, cols, pad int) Mat {
	m := Mat{Rows: rows, Cols: cols, Stride: cols + pad, Kind: kind}
	n := max(0, rows*m.Stride-pad)
	f := make([]float32, n+64)
	for i := range f {
		f[i] = guard
	}
	for i := range rows {
		for j := range cols {
			f[32+i*m.Stride+j] = float32(rng.NormFloat64())
		}
	}
	switch kind {
	case F32:
		m.F32 = f[32 : 32+n : 32+n]
		return m
	case BF16:
		m.U16 = make([]uint16, n)
		NarrowBF16(m.U16, f[32:32+n])
	case F16:
		m.U16 = make([]uint16, n)
		NarrowF16(m.U16, f[32:32+n])
	}
	return m
}

// at reads one element, widened.
func (m Mat) at(i, j int) float32 {
	if m.Kind == F32 {
		return m.F32[i*m.Stride+j]
	}
	var v [1]float32
	Widen(v[:], m.U16[i*m.Stride+j:][:1], m.Kind)
	return v[0]
}

// clone copies a float32 matrix with its guards.
func (m Mat) clone() Mat {
	full := make([]float32, len(m.F32)+64)
	for i := range full {
		full[i] = guard
	}
	copy(full[32:], m.F32)
	m.F32 = full[32 : 32+len(m.F32) : 32+len(m.F32)]
	return m
}

// guards fails the test if an element outside of m has changed.
func (m Mat) guards(t *testing.T) {
	t.Helper()
	for i := range m.Rows - 1 {
		for j := m.Cols; j < m.Stride; j++ {
			if m.F32[i*m.Stride+j] != guard {
				t.Fatalf("row %d: element %d behind the row was written", i, j-m.Cols)
			}
		}
	}
}

// product orders the three shapes of a product.
type shape struct {
	name string
	call func(p *Pool, c, a, b Mat, accumulate bool)
	ta   bool // A is stored as [K, M]
	tb   bool // B is stored as [N, K]
}

var productShapes = []shape{{"NT", GemmNT, false, true}, {"NN", GemmNN, false, false}, {"TN", GemmTN, true, false}}

func (s shape) operands(rng *rand.Rand, kind Kind, m, n, k, pad int) (a, b Mat) {
	a, b = matrix(rng, F32, m, k, pad), matrix(rng, kind, k, n, pad)
	if s.ta {
		a = matrix(rng, F32, k, m, pad)
	}
	if s.tb {
		b = matrix(rng, kind, n, k, pad)
	}
	return a, b
}

// define computes c as the package comment defines it, and the error bound of every element.
func (s shape) define(c, a, b Mat, accumulate bool) (bound []float64) {
	k := a.Cols
	if s.ta {
		k = a.Rows
	}
	bound = make([]float64, c.Rows*c.Cols)
	for i := range c.Rows {
		for j := range c.Cols {
			sum, exact, size := float32(0), 0.0, 0.0
			if accumulate {
				sum = c.at(i, j)
				exact, size = float64(sum), math.Abs(float64(sum))
			}
			for k0 := 0; k0 < k; k0 += KC {
				var acc float32
				for kk := k0; kk < min(k, k0+KC); kk++ {
					av, bv := float32(0), float32(0)
					if s.ta {
						av = a.at(kk, i)
					} else {
						av = a.at(i, kk)
					}
					if s.tb {
						bv = b.at(j, kk)
					} else {
						bv = b.at(kk, j)
					}
					acc = fma32(av, bv, acc)
					exact += float64(av) * float64(bv)
					size += math.Abs(float64(av) * float64(bv))
				}
				if k0 == 0 && !accumulate {
					sum = acc
				} else {
					sum += acc
				}
			}
			c.F32[i*c.Stride+j] = sum
			bound[i*c.Cols+j] = math.Abs(float64(sum)-exact) - float64(min(k, KC)+k/KC+2)*0x1p-24*size
		}
	}
	return bound
}

func sameBits(t *testing.T, got, want Mat) {
	t.Helper()
	for i := range want.Rows {
		for j := range want.Cols {
			g, w := got.at(i, j), want.at(i, j)
			if math.Float32bits(g) != math.Float32bits(w) {
				t.Fatalf("element (%d, %d) is %g (%#x), want %g (%#x)", i, j, g, math.Float32bits(g), w, math.Float32bits(w))
			}
		}
	}
}

// eachPool runs f with every kernel set of this machine at 1, 2 and 3 threads.
func eachPool(t *testing.T, f func(t *testing.T, p *Pool)) {
	for _, s := range available() {
		for threads := 1; threads <= 3; threads++ {
			t.Run(fmt.Sprintf("%s/%d", s.name, threads), func(t *testing.T) {
				p := NewPool(threads)
				p.set = s
				f(t, p)
			})
		}
	}
}

func TestProductsMatchDefinition(t *testing.T) {
	dims := [][3]int{{0, 3, 2}, {3, 0, 2}, {3, 2, 0}, {1, 1, 1}, {2, 3, 1}, {1, 33, 40}, {14, 32, 17}, {15, 33, 65}, {7, 31, 513}, {29, 65, 100}, {3, 70, 1030}, {16, 40, 520}, {17, 8, 31}, {64, 64, 64}, {200, 170, 40}}
	for _, s := range productShapes {
		for _, kind := range []Kind{F32, BF16, F16} {
			t.Run(s.name+"/"+kind.String(), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(7, uint64(kind)))
				type job struct {
					a, b, c, want Mat
					add           bool
				}
				var jobs []job
				for i, d := range dims {
					a, b := s.operands(rng, kind, d[0], d[1], d[2], i%3)
					c := matrix(rng, F32, d[0], d[1], i%4)
					j := job{a, b, c, c.clone(), i%2 == 1}
					for e, over := range s.define(j.want, a, b, j.add) {
						if over > 0 {
							t.Fatalf("%v: definition off by %g more than the bound at %d", d, over, e)
						}
					}
					jobs = append(jobs, j)
				}
				eachPool(t, func(t *testing.T, p *Pool) {
					for _, j := range jobs {
						c := j.c.clone()
						s.call(p, c, j.a, j.b, j.add)
						sameBits(t, c, j.want)
						c.guards(t)
					}
				})
			})
		}
	}
}
