package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestCholeskyUpperInverse checks U·H·Uᵀ = I.
func TestCholeskyUpperInverse(t *testing.T) {
	for _, n := range []int{0, 1, 2, 7, 40} {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		x := make([]float32, 2*n*n)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		h := make([]float64, n*n)
		SyrkAddF64(nil, h, n, MatF32(2*n, n, x))
		Symmetrize(nil, h, n)
		u := append([]float64(nil), h...)
		if err := CholeskyUpperInverse(nil, u, n); err != nil {
			t.Fatal(err)
		}
		uh, id := make([]float64, n*n), make([]float64, n*n)
		GemmNN64(nil, MatF64(n, n, uh), MatF64(n, n, u), MatF64(n, n, h), false)
		GemmNT64(nil, MatF64(n, n, id), MatF64(n, n, uh), MatF64(n, n, u), false)
		for i := range id {
			want := 0.0
			if i%(n+1) == 0 {
				want = 1
			}
			if math.Abs(id[i]-want) > 1e-10 {
				t.Fatalf("n=%d: UHUᵀ[%d] = %g", n, i, id[i])
			}
		}
	}
}

func TestFMA32Random(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 100000 {
		a, b, c := float32(rng.NormFloat64()), float32(rng.NormFloat64()), float32(rng.NormFloat64())
		if got := fma32(a, b, c); math.Abs(float64(got)-float64(a)*float64(b)-float64(c)) > math.Abs(float64(got))*0x1p-24*1.0001 {
			t.Fatal(a, b, c, got)
		}
	}
}
