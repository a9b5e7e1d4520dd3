package kernel

import "unsafe"

// part says which elements of C a product computes; the others are neither read nor written.
type part uint8

const (
	full  part = iota
	lower      // row >= column
	upper      // row <= column
)

// zeros says which elements of A or B are known to be zero. Leaving them out changes no bit of a chain.
type zeros uint8

const (
	zeroALower zeros = 1 << iota // A[i,k] = 0 for k < i
	zeroBUpper                   // B[k,j] = 0 for k < j
	zeroBLower                   // B[k,j] = 0 for k > j
)

// span returns the part of [k0, k1) that matters to rows from i on and columns [j, j1).
func (z zeros) span(k0, k1, i, j, j1 int) (from, to int) {
	if z&zeroALower != 0 {
		k0 = max(k0, i)
	}
	if z&zeroBUpper != 0 {
		k0 = max(k0, j)
	}
	if z&zeroBLower != 0 {
		k1 = min(k1, j1)
	}
	return k0, max(k0, k1)
}

// product is one C (+)= A·B with packed panels.
//
// C is cut into blocks of blockRows x blockCols; for each and for each block of k, all workers first pack the panels of A and
// B that it needs into shared memory and then take tiles of C from a queue, so that uneven shapes (a triangle, a busy core)
// balance. The queue decides only who computes a tile, never how.
type product[T real] struct {
	pool    *Pool
	ks      *kernels[T]
	a, b    operand[T]
	m, n, k int
	c       []T
	ldc     int
	part    part
	add     bool      // to the old C
	wide    []float64 // if set, replaces c: chains are added to this matrix of row length ldc
	mirror  bool      // copy the lower triangle to the upper
	zeros   zeros     // what need not be multiplied
	kc      int       // values of k in a block, whole chains
	chain   int       // values of k in a chain
	serial  bool      // too small to be worth starting helpers
}

// Bounds of a block of C, which bound the packed panels (some 8 MB each for float32).
const (
	blockRows = 2016 // a multiple of every mr
	blockCols = 4096
	// stripRows is the height up to which a task takes all rows of C and packs the few columns of B for itself, while they
	// are in its cache; higher products share them.
	stripRows = 512
	// smallProduct is the number of multiplications under which starting helpers costs more than it gains.
	smallProduct = 1 << 17
)

// block is the part of a product that is packed at one time.
type block[T real] struct {
	i0, i1, j0, j1, k0, kc int
	a, b                   []T
	add                    bool // to what C holds
	last                   bool // block of k
	strips                 bool // panels of B belong to the tasks
}

func (g *product[T]) run() {
	if g.m == 0 || g.n == 0 {
		return
	}
	if g.k == 0 {
		g.finishEmpty()
		return
	}
	g.serial = g.m*g.n*g.k <= smallProduct
	kc := min(g.k, g.kc)
	rows, cols := min(g.m, blockRows), min(g.n, blockCols)
	sizeA := (rows + g.ks.mr - 1) / g.ks.mr * g.ks.aStride * kc
	sizeB := (cols + g.ks.nr - 1) / g.ks.nr * g.ks.nr * kc
	strips := g.m <= stripRows && g.part == full
	if strips {
		sizeB = 0
	}
	words := g.pool.take((sizeA + sizeB) * int(unsafe.Sizeof(*new(T))))
	defer g.pool.give(words)
	panelA := floats[T](words, sizeA+sizeB)
	panelB := panelA[sizeA:]
	for j0 := 0; j0 < g.n; j0 += blockCols {
		for i0 := 0; i0 < g.m; i0 += blockRows {
			b := block[T]{i0: i0, i1: min(g.m, i0+blockRows), j0: j0, j1: min(g.n, j0+blockCols), a: panelA, b: panelB, strips: strips}
			if g.part == lower && b.i1 <= j0 || g.part == upper && i0 >= b.j1 {
				continue
			}
			for b.k0 = 0; b.k0 < g.k; b.k0 += g.kc {
				b.kc = min(g.kc, g.k-b.k0)
				b.add = g.add || b.k0 > 0
				b.last = b.k0+b.kc == g.k
				g.pack(&b)
				g.multiply(&b)
			}
		}
	}
}

// finishEmpty is the product for K = 0: nothing is added.
func (g *product[T]) finishEmpty() {
	for i := 0; i < g.m && !g.add; i++ {
		from, to := g.part.columns(i, 0, g.n)
		clear(g.c[i*g.ldc+from : i*g.ldc+to])
	}
	if g.mirror {
		mirror(g.ks, g.c, g.ldc, 0, g.m, 0, g.n)
	}
}

// columns clips the columns [j0, j1) of row i to the part.
func (p part) columns(i, j0, j1 int) (from, to int) {
	switch p {
	case lower:
		return j0, max(j0, min(j1, i+1))
	case upper:
		return min(j1, max(j0, i)), j1
	}
	return j0, j1
}

func (g *product[T]) parallel(n int, f func(i int)) {
	if !g.serial {
		g.pool.Run(n, f)
		return
	}
	for i := range n {
		f(i)
	}
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }
