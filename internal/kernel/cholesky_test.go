package kernel

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/lapack/lapack64"

	"gonum.org/v1/gonum/blas/blas64"
)

// gram returns a well conditioned symmetric matrix XᵀX/T + 0.1 of correlated columns.
func gram(n int) []float64 {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	rows := 2*n + 3
	x := matrix(rng, F32, rows, n, 0)
	for i := range rows {
		for j := 1; j < n; j++ {
			x.F32[i*n+j] += x.F32[i*n+j-1] / 2
		}
	}
	h := make([]float64, n*n)
	SyrkAddF64(nil, h, n, x)
	for i := range h {
		h[i] /= float64(rows)
	}
	for i := range n {
		h[i*n+i] += 0.1
	}
	Symmetrize(nil, h, n)
	return h
}

// oracle computes U as the GPTQ reference does: Cholesky, inverse, Cholesky of the inverse.
func oracle(t *testing.T, h []float64, n int) []float64 {
	a := blas64.Symmetric{N: n, Stride: n, Data: append([]float64(nil), h...), Uplo: blas.Upper}
	tri, ok := lapack64.Potrf(a)
	if !ok {
		t.Fatal("oracle: not positive definite")
	}
	lapack64.Potri(tri)
	tri, ok = lapack64.Potrf(a)
	if !ok {
		t.Fatal("oracle: inverse not positive definite")
	}
	for i := range n {
		clear(tri.Data[i*n : i*n+i])
	}
	return tri.Data
}

func TestCholeskyUpperInverse(t *testing.T) {
	for _, n := range []int{0, 1, 2, 7, 32, 33, 65, 255, 256, 257, 530} {
		h := gram(n)
		var want, first []float64
		if n > 0 {
			want = oracle(t, h, n)
		}
		eachPool(t, func(t *testing.T, p *Pool) {
			if p.set == generic && n > 300 && p.threads > 1 {
				t.Skip("slow")
			}
			u := append([]float64(nil), h...)
			for i := range n { // the upper triangle is not input
				for j := i + 1; j < n; j++ {
					u[i*n+j] = math.NaN()
				}
			}
			if err := CholeskyUpperInverse(p, u, n); err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = u
			}
			for i := range u {
				if math.Float64bits(u[i]) != math.Float64bits(first[i]) {
					t.Fatalf("n=%d: element %d is %g with this kernel set, %g with the first", n, i, u[i], first[i])
				}
				if math.Abs(u[i]-want[i]) > 1e-10 {
					t.Fatalf("n=%d: element %d is %g, want %g", n, i, u[i], want[i])
				}
			}
		})
	}
}

func TestCholeskyNamesThePivot(t *testing.T) {
	const n = 300
	for _, bad := range []int{0, 5, 40, 299} {
		for _, v := range []float64{0, -1, math.NaN(), math.Inf(1)} {
			h := gram(n)
			for j := range n { // row and column of their own, so that the pivot is h[bad,bad] itself
				h[bad*n+j], h[j*n+bad] = 0, 0
			}
			h[bad*n+bad] = v
			var pivot *PivotError
			if err := CholeskyUpperInverse(NewPool(2), h, n); !errors.As(err, &pivot) || pivot.Index != bad {
				t.Errorf("pivot %d = %g: got %v", bad, v, err)
			}
		}
	}
}

func TestSyrk(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, d := range [][2]int{{1, 1}, {0, 5}, {5, 0}, {3, 45}, {520, 33}, {1100, 17}, {40, 230}} {
		rows, n := d[0], d[1]
		x := matrix(rng, F32, rows, n, 3)
		for _, add := range []bool{false, true} {
			c := matrix(rng, F32, n, n, 2)
			want := c.clone()
			shape{ta: true}.define(want, x, x, add)
			for i := range n {
				for j := range i {
					want.F32[j*want.Stride+i] = want.F32[i*want.Stride+j]
				}
			}
			h, wantH := make([]float64, n*n), make([]float64, n*n)
			for i := range h {
				h[i] = rng.NormFloat64()
			}
			copy(wantH, h)
			for r := 0; r < rows; r += KC {
				part := MatF32(n, n, make([]float32, n*n))
				shape{ta: true}.define(part, x.Slice(r, min(rows, r+KC), 0, n), x.Slice(r, min(rows, r+KC), 0, n), false)
				for i := range n {
					for j := range i + 1 {
						wantH[i*n+j] += float64(part.F32[i*n+j])
					}
				}
			}
			eachPool(t, func(t *testing.T, p *Pool) {
				got := c.clone()
				Syrk(p, got, x, add)
				sameBits(t, got, want)
				got.guards(t)
				gotH := append([]float64(nil), h...)
				SyrkAddF64(p, gotH, n, x)
				for i := range wantH {
					if gotH[i] != wantH[i] {
						t.Fatalf("float64: element %d is %g, want %g", i, gotH[i], wantH[i])
					}
				}
			})
		}
	}
}

func TestProducts64MatchDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	random := func(rows, cols int) Mat64 {
		m := Mat64{Rows: rows, Cols: cols, Stride: cols + 3, F64: make([]float64, rows*(cols+3))}
		for i := range m.F64 {
			m.F64[i] = rng.NormFloat64()
		}
		return m
	}
	calls := []func(p *Pool, c, a, b Mat64, add bool){GemmNT64, GemmNN64, GemmTN64}
	for _, d := range [][3]int{{1, 1, 1}, {0, 2, 2}, {2, 2, 0}, {14, 16, 8}, {29, 37, 300}, {5, 3, 600}} {
		for s, call := range calls {
			m, n, k := d[0], d[1], d[2]
			a, b, c := random(m, k), random(k, n), random(m, n)
			if s == 0 {
				b = random(n, k)
			}
			if s == 2 {
				a = random(k, m)
			}
			want := append([]float64(nil), c.F64...)
			for i := range m {
				for j := range n {
					sum := want[i*c.Stride+j]
					for k0 := 0; k0 < k; k0 += KC64 {
						acc := 0.0
						for kk := k0; kk < min(k, k0+KC64); kk++ {
							ai, bj := i*a.Stride+kk, kk*b.Stride+j
							if s == 0 {
								bj = j*b.Stride + kk
							}
							if s == 2 {
								ai = kk*a.Stride + i
							}
							acc = math.FMA(a.F64[ai], b.F64[bj], acc)
						}
						sum += acc
					}
					want[i*c.Stride+j] = sum
				}
			}
			eachPool(t, func(t *testing.T, p *Pool) {
				got := c
				got.F64 = append([]float64(nil), c.F64...)
				call(p, got, a, b, true)
				for i, w := range want {
					if got.F64[i] != w {
						t.Fatalf("%v: element %d is %g, want %g", d, i, got.F64[i], w)
					}
				}
			})
		}
	}
}
