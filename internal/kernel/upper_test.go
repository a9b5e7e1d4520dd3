package kernel

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// Products with a triangular matrix are the full ones, bit for bit, on every kernel set.
func TestUpperProducts(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	for _, d := range [][2]int{{1, 1}, {3, 40}, {17, 33}, {40, 200}, {9, 1100}} {
		m, n := d[0], d[1]
		a, u := matrix(rng, F32, m, n, 3), matrix(rng, F32, n, n, 5)
		for i := range n {
			clear(u.F32[i*u.Stride : i*u.Stride+i])
		}
		one := NewPool(1)
		one.set = generic
		nt, nn := MatF32(m, n, make([]float32, m*n)), MatF32(m, n, make([]float32, m*n))
		GemmNT(one, nt, a, u, false)
		GemmNN(one, nn, a, u, false)
		eachPool(t, func(t *testing.T, p *Pool) {
			if p.set == generic && n > 1000 && p.threads > 1 {
				t.Skip("slow")
			}
			c := matrix(rng, F32, m, n, 2)
			GemmNTUpper(p, c, a, u)
			sameBits(t, c, nt)
			c.guards(t)
			GemmNNUpper(p, c, a, u)
			sameBits(t, c, nn)
			c.guards(t)
		})
	}
}

// The factor in float32 is the one in float64 to its own precision, and the same bits on every kernel set.
func TestCholeskyUpperInverse32(t *testing.T) {
	for _, n := range []int{0, 1, 7, 33, 257, 530} {
		h := gram(n)
		want := append([]float64(nil), h...)
		if err := CholeskyUpperInverse(nil, want, n); err != nil {
			t.Fatal(err)
		}
		var first []float32
		eachPool(t, func(t *testing.T, p *Pool) {
			if p.set == generic && n > 300 && p.threads > 1 {
				t.Skip("slow")
			}
			u := make([]float32, n*n)
			for i, v := range h {
				u[i] = float32(v)
			}
			if err := CholeskyUpperInverse32(p, u, n); err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = u
			}
			equalBits(t, "factor", u, first)
			for i, v := range u {
				if math.Abs(float64(v)-want[i]) > 1e-5 {
					t.Fatalf("n=%d: element %d is %g, want %g", n, i, v, want[i])
				}
			}
		})
	}
	bad := []float32{1, 0, 2, 1}
	var pivot *PivotError
	if err := CholeskyUpperInverse32(nil, bad, 2); !errors.As(err, &pivot) {
		t.Fatalf("an indefinite matrix gave %v", err)
	}
}
