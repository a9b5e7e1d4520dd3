package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// chainOfPairs adds k's [k0, k1) of two rows in the order of the definition.
func chainOfPairs(a, b []float32, k0, k1 int) (acc float32) {
	for k := k0; k < k1; k += 2 {
		acc = exactFlush(a[k+1], b[k+1], acc)
		acc = exactFlush(a[k], b[k], acc)
	}
	return acc
}

// halves is a random rows x cols matrix of bfloat16 numbers, mostly ordinary ones; wild makes every few rows strange.
func halves(rng *rand.Rand, rows, cols, pad int, wild bool) Mat {
	m := Mat{Rows: rows, Cols: cols, Stride: cols + pad, Kind: BF16}
	m.U16 = make([]uint16, max(0, rows*m.Stride-pad))
	for i := range m.U16 {
		family := 0
		if row := i / m.Stride; wild && row%3 == 2 {
			family = row / 3 % families
		}
		m.U16[i] = number(rng, family)
	}
	return m
}

// widened returns the rows of m, or its columns.
func widened(m Mat, columns bool) [][]float32 {
	n, k := m.Rows, m.Cols
	if columns {
		n, k = k, n
	}
	rows := make([][]float32, n)
	for i := range rows {
		rows[i] = make([]float32, k+k%2) // an odd last number is paired with zero
		for j := range k {
			if columns {
				rows[i][j] = m.at(j, i)
			} else {
				rows[i][j] = m.at(i, j)
			}
		}
	}
	return rows
}

// defineBF16 computes C from rows along k as the package comment defines it.
func defineBF16(c Mat, a, b [][]float32, accumulate bool) {
	for i := range c.Rows {
		for j := range c.Cols {
			k := len(a[i])
			sum := float32(0)
			if accumulate {
				sum = c.at(i, j)
			}
			for k0 := 0; k0 < k; k0 += KC {
				block := chainOfPairs(a[i], b[j], k0, min(k, k0+KC))
				if k0 == 0 && !accumulate {
					sum = block
				} else {
					sum += block
				}
			}
			c.F32[i*c.Stride+j] = sum
		}
	}
}

// sameMat compares bit for bit, except that any NaN equals any other.
func sameMat(t *testing.T, got, want Mat) {
	t.Helper()
	for i := range want.Rows {
		equalBits(t, fmt.Sprintf("row %d", i), got.Row(i), want.Row(i))
	}
	got.guards(t)
}

// pairsOf packs the rows of a float32 matrix whose values are bfloat16 numbers.
func pairsOf(p *Pool, m Mat, pad int) Mat {
	wide := MatF32(m.Rows, m.Cols, make([]float32, m.Rows*m.Cols))
	for i := range m.Rows {
		Widen(wide.Row(i), m.U16[i*m.Stride:][:m.Cols], BF16)
	}
	w := Mat{Rows: (m.Rows + 1) / 2, Cols: m.Cols, Stride: m.Cols + pad, Kind: Pairs}
	w.U16 = make([]uint16, max(0, 2*(w.Rows*w.Stride-pad)))
	PairRows(p, w, wide)
	return w
}

func TestBF16ProductsMatchDefinition(t *testing.T) {
	dims := [][3]int{{0, 3, 2}, {3, 0, 2}, {3, 2, 0}, {1, 1, 2}, {2, 3, 4}, {1, 33, 40}, {5, 32, 1030}, {14, 32, 18}, {15, 33, 66}, {7, 31, 514}, {29, 65, 100}, {16, 40, 522}, {13, 8, 30}, {64, 64, 64}, {150, 70, 40}, {530, 20, 8}}
	rng := rand.New(rand.NewPCG(33, 34))
	for i, d := range dims {
		m, n, k, add, wild := d[0], d[1], d[2], i%2 == 1, i%3 > 0
		old := matrix(rng, F32, m, n, i%4)
		a, b := halves(rng, m, k, i%3*2, wild), halves(rng, n, k, i%2*2, wild)
		nt := old.clone()
		defineBF16(nt, widened(a, false), widened(b, false), add)
		rows := k - k/2%2 // odd numbers of rows too
		at, bt := halves(rng, rows, m, 0, wild), halves(rng, rows, n, 0, wild)
		tn := old.clone()
		defineBF16(tn, widened(at, true), widened(bt, true), add)
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			eachPool(t, func(t *testing.T, p *Pool) {
				c := old.clone()
				GemmNTBF16(p, c, a, b, add)
				sameMat(t, c, nt)
				c = old.clone()
				GemmTNPairs(p, c, pairsOf(p, at, i%3), pairsOf(p, bt, i%2), add)
				sameMat(t, c, tn)
			})
		})
	}
}

func TestSyrkPairs(t *testing.T) {
	rng := rand.New(rand.NewPCG(35, 36))
	for i, d := range [][2]int{{0, 5}, {3, 0}, {1, 1}, {7, 33}, {1027, 20}, {40, 70}} {
		rows, n := d[0], d[1]
		x := halves(rng, rows, n, 0, i%2 == 1)
		columns := widened(x, true)
		old := matrix(rng, F32, n, n, 3)
		for r := range n {
			for c := range r {
				old.F32[c*old.Stride+r] = old.F32[r*old.Stride+c]
			}
		}
		want := old.clone()
		defineBF16(want, columns, columns, true)
		h := make([]float64, n*n) // its lower triangle
		for r := range n {
			for c := range r + 1 {
				h[r*n+c] = 1.25
				for k0 := 0; k0 < len(columns[r]); k0 += KC {
					h[r*n+c] += float64(chainOfPairs(columns[r], columns[c], k0, min(len(columns[r]), k0+KC)))
				}
			}
		}
		eachPool(t, func(t *testing.T, p *Pool) {
			words := pairsOf(p, x, 1)
			c := old.clone()
			SyrkPairs(p, c, words, true)
			sameMat(t, c, want)
			got := make([]float64, n*n)
			for r := range n {
				for c := range r + 1 {
					got[r*n+c] = 1.25
				}
			}
			SyrkPairsAddF64(p, got, n, words)
			for j, w := range h {
				if math.Float64bits(got[j]) != math.Float64bits(w) && (w == w || got[j] == got[j]) {
					t.Fatalf("element %d of H is %g, want %g", j, got[j], w)
				}
			}
		})
	}
}

// A column of words is a matrix like any other: parts of it give parts of the product.
func TestSlicesOfPairs(t *testing.T) {
	rng := rand.New(rand.NewPCG(37, 38))
	x := pairsOf(nil, halves(rng, 40, 50, 0, false), 2)
	all, part := MatF32(50, 50, make([]float32, 2500)), MatF32(20, 30, make([]float32, 600))
	GemmTNPairs(nil, all, x, x, false)
	GemmTNPairs(nil, part, x.Slice(0, 20, 3, 23), x.Slice(0, 20, 11, 41), false)
	sameBits(t, part, all.Slice(3, 23, 11, 41))
	require.Empty(t, x.Slice(3, 3, 0, 50).U16)
}

func TestBF16ShapesArePanics(t *testing.T) {
	m := func(kind Kind, rows, cols int) Mat { return MatU16(kind, rows, cols, make([]uint16, 2*rows*cols)) }
	c := func(rows, cols int) Mat { return MatF32(rows, cols, make([]float32, rows*cols)) }
	odd := m(BF16, 2, 4)
	odd.Cols, odd.Stride = 2, 3
	for name, f := range map[string]func(){
		"odd K":           func() { GemmNTBF16(nil, c(2, 2), m(BF16, 2, 3), m(BF16, 2, 3), false) },
		"odd stride":      func() { GemmNTBF16(nil, c(2, 2), odd, m(BF16, 2, 2), false) },
		"F16":             func() { GemmNTBF16(nil, c(2, 2), m(F16, 2, 2), m(BF16, 2, 2), false) },
		"inner":           func() { GemmNTBF16(nil, c(2, 2), m(BF16, 2, 2), m(BF16, 2, 4), false) },
		"outer":           func() { GemmTNPairs(nil, c(2, 2), m(Pairs, 2, 2), m(Pairs, 2, 3), false) },
		"no pairs":        func() { SyrkPairs(nil, c(2, 2), m(BF16, 2, 2), false) },
		"hessian":         func() { SyrkPairsAddF64(nil, make([]float64, 9), 3, m(Pairs, 2, 2)) },
		"pairs as number": func() { GemmNT(nil, c(2, 2), c(2, 2), m(Pairs, 2, 2), false) },
		"pair rows":       func() { PairRows(nil, m(Pairs, 2, 2), c(2, 2)) },
		"narrow rows":     func() { NarrowRows(nil, m(BF16, 2, 2), c(2, 3)) },
		"short pairs":     func() { MatU16(Pairs, 2, 2, make([]uint16, 7)) },
	} {
		require.Panics(t, f, name)
	}
}
