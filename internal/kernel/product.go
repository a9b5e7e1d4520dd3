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
	wide    []float64 // if set, replaces c: blocks of k are added to this matrix of row length ldc
	mirror  bool      // copy the lower triangle to the upper
	zeros   zeros     // what need not be multiplied
	kc      int
	serial  bool // too small to be worth starting helpers
}

// Bounds of a block of C, which bound the packed panels (some 8 MB each for float32).
const (
	blockRows = 2016 // a multiple of every mr
	blockCols = 4096
	// smallProduct is the number of multiplications under which starting helpers costs more than it gains.
	smallProduct = 1 << 17
)

// block is the part of a product that is packed at one time.
type block[T real] struct {
	i0, i1, j0, j1, k0, kc int
	a, b                   []T
	add                    bool // to what C holds
	last                   bool // block of k
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
	words := g.pool.take((sizeA + sizeB) * int(unsafe.Sizeof(*new(T))))
	defer g.pool.give(words)
	panelA := floats[T](words, sizeA+sizeB)
	panelB := panelA[sizeA:]
	for j0 := 0; j0 < g.n; j0 += blockCols {
		for i0 := 0; i0 < g.m; i0 += blockRows {
			b := block[T]{i0: i0, i1: min(g.m, i0+blockRows), j0: j0, j1: min(g.n, j0+blockCols), a: panelA, b: panelB}
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

// pack fills the panels of A and B for one block, a few panels per task.
func (g *product[T]) pack(b *block[T]) {
	const perTask = 8 // panels
	ks := g.ks
	countA := (b.i1 - b.i0 + ks.mr - 1) / ks.mr
	countB := (b.j1 - b.j0 + ks.nr - 1) / ks.nr
	tasksA, tasksB := (countA+perTask-1)/perTask, (countB+perTask-1)/perTask
	g.parallel(tasksA+tasksB, func(t int) {
		p, o := panels[T]{k0: b.k0, kc: b.kc}, &g.b
		if t < tasksB {
			first := t * perTask
			p.width, p.stride, p.copy = ks.nr, ks.nr, ks.copyB[g.b.kind]
			p.first, p.count = b.j0+first*ks.nr, min(perTask, countB-first)
			p.dst = b.b[first*ks.nr*b.kc:]
		} else {
			first := (t - tasksB) * perTask
			o = &g.a
			p.width, p.stride, p.copy = ks.mr, ks.aStride, ks.copyA
			p.first, p.count = b.i0+first*ks.mr, min(perTask, countA-first)
			p.dst = b.a[first*ks.aStride*b.kc:]
		}
		p.pack(ks, o)
	})
}

// multiply computes the tiles of one block. A task covers up to mc panels of A, which then stay in the second-level cache,
// times a few panels of B; there are enough tasks to balance the workers.
func (g *product[T]) multiply(b *block[T]) {
	ks := g.ks
	height, width := ks.mc*ks.mr, 8*ks.nr
	rows, cols := b.i1-b.i0, b.j1-b.j0
	tasks := func() int { return ((rows + height - 1) / height) * ((cols + width - 1) / width) }
	for want := 8 * g.pool.Threads(); want > 8 && tasks() < want && (width > ks.nr || height > ks.mr); {
		if width > ks.nr {
			width /= 2
		} else {
			height = max(ks.mr, height/ks.mr/2*ks.mr)
		}
	}
	across := (cols + width - 1) / width
	g.parallel(tasks(), func(t int) {
		i, j := b.i0+t/across*height, b.j0+t%across*width
		i1, j1 := min(b.i1, i+height), min(b.j1, j+width)
		if g.part == lower && i1 <= j || g.part == upper && i >= j1 {
			return
		}
		g.tileBlock(b, i, i1, j, j1)
		if g.mirror && b.last {
			mirror(ks, g.c, g.ldc, i, i1, j, j1)
		}
	})
}

// tileBlock computes rows [i0, i1) and columns [j0, j1) of C for one block of k.
func (g *product[T]) tileBlock(b *block[T], i0, i1, j0, j1 int) {
	ks := g.ks
	var edge []T // a tile that does not lie wholly in C, or in its part
	for j := j0; j < j1; j += ks.nr {
		cols := min(ks.nr, j1-j)
		for i := i0; i < i1; i += ks.mr {
			rows := min(ks.mr, i1-i)
			k0, k1 := g.zeros.span(b.k0, b.k0+b.kc, i, j, j1)
			k, skip := k1-k0, k0-b.k0
			if k == 0 {
				if b.add {
					continue
				}
				skip = 0
			}
			pa, pb := &b.a[(i-b.i0)/ks.mr*ks.aStride*b.kc+skip*ks.aStride], &b.b[(j-b.j0)*b.kc+skip*ks.nr]
			switch g.place(i, rows, j, cols) {
			case outside:
			case inside:
				if g.wide != nil {
					ks.tileWide(k, pa, pb, &g.wide[i*g.ldc+j], g.ldc)
				} else {
					ks.tiles[rows-1](k, pa, pb, &g.c[i*g.ldc+j], g.ldc, b.add)
				}
			case across:
				if edge == nil {
					edge = make([]T, ks.mr*ks.nr)
				}
				ks.tiles[rows-1](k, pa, pb, &edge[0], ks.nr, false)
				g.emit(edge, i, rows, j, cols, b.add)
			}
		}
	}
}

// placement says how a tile lies with respect to the elements that are to be computed.
type placement uint8

const (
	inside placement = iota
	across
	outside
)

func (g *product[T]) place(i, rows, j, cols int) placement {
	switch {
	case g.part == lower && i+rows <= j, g.part == upper && i >= j+cols:
		return outside
	case cols < g.ks.nr, g.part == lower && i < j+cols-1, g.part == upper && i+rows-1 > j:
		return across
	case g.wide != nil && (rows < g.ks.mr || g.ks.tileWide == nil):
		return across
	}
	return inside
}

// emit stores or adds the wanted elements of a tile.
func (g *product[T]) emit(tile []T, i0, rows, j0, cols int, add bool) {
	for r := range rows {
		from, to := g.part.columns(i0+r, j0, j0+cols)
		src := tile[r*g.ks.nr+from-j0:][:to-from]
		at := (i0 + r) * g.ldc
		switch {
		case g.wide != nil:
			for j, v := range src {
				g.wide[at+from+j] += float64(v)
			}
		case add:
			dst := g.c[at+from : at+to]
			for j, v := range src {
				dst[j] += v
			}
		default:
			copy(g.c[at+from:at+to], src)
		}
	}
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
