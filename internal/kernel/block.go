package kernel

import "unsafe"

// pack fills the shared panels of one block, a few per task.
func (g *product[T]) pack(b *block[T]) {
	const perTask = 8 // panels
	countA := (b.i1 - b.i0 + g.ks.mr - 1) / g.ks.mr
	countB := (b.j1 - b.j0 + g.ks.nr - 1) / g.ks.nr
	if b.strips {
		countB = 0
	}
	tasksA, tasksB := (countA+perTask-1)/perTask, (countB+perTask-1)/perTask
	g.parallel(tasksA+tasksB, func(t int) {
		if t < tasksB {
			first := t * perTask
			g.packB(b, b.b[first*g.ks.nr*b.kc:], b.j0+first*g.ks.nr, min(perTask, countB-first))
		} else {
			first := (t - tasksB) * perTask
			g.packA(b, b.a[first*g.ks.aStride*b.kc:], b.i0+first*g.ks.mr, min(perTask, countA-first))
		}
	})
}

func (g *product[T]) packA(b *block[T], dst []T, first, count int) {
	if g.zeros&zeroALower != 0 && first >= b.k0+b.kc {
		return // nothing but zeros, which no tile reads
	}
	p := panels[T]{dst: dst, width: g.ks.mr, stride: g.ks.aStride, first: first, count: count, k0: b.k0, kc: b.kc, copy: g.ks.copyA}
	p.pack(g.ks, &g.a)
}

func (g *product[T]) packB(b *block[T], dst []T, first, count int) {
	p := panels[T]{dst: dst, width: g.ks.nr, stride: g.ks.nr, first: first, count: count, k0: b.k0, kc: b.kc, copy: g.ks.copyB[g.b.kind]}
	p.pack(g.ks, &g.b)
}

// multiply computes the tiles of one block: tasks of height x width elements of C, enough of them to balance the workers.
func (g *product[T]) multiply(b *block[T]) {
	height, width := g.taskShape(b)
	across := (b.j1 - b.j0 + width - 1) / width
	down := (b.i1 - b.i0 + height - 1) / height
	g.parallel(across*down, func(t int) {
		i, j := b.i0+t/across*height, b.j0+t%across*width
		i1, j1 := min(b.i1, i+height), min(b.j1, j+width)
		if g.part == lower && i1 <= j || g.part == upper && i >= j1 {
			return
		}
		if b.strips {
			g.strip(b, j, j1)
			return
		}
		g.tileBlock(b, i, i1, j, j1)
		if g.mirror && b.last {
			mirror(g.ks, g.c, g.ldc, i, i1, j, j1)
		}
	})
}

// taskShape covers up to mc panels of A, which then stay in the second-level cache, times a few panels of B; strips have all
// rows of C. With many workers tasks become smaller.
func (g *product[T]) taskShape(b *block[T]) (height, width int) {
	ks, rows, cols := g.ks, b.i1-b.i0, b.j1-b.j0
	height, width = ks.mc*ks.mr, 8*ks.nr
	if b.strips {
		height, width = rows, 2*ks.nr
	}
	want := 8 * g.pool.Threads()
	for want > 8 && ((rows+height-1)/height)*((cols+width-1)/width) < want {
		switch {
		case width > ks.nr:
			width /= 2
		case height > ks.mr && !b.strips:
			height = max(ks.mr, height/ks.mr/2*ks.mr)
		default:
			return height, width
		}
	}
	return height, width
}

// strip computes columns [j0, j1) of C for one block of k, with panels of B of its own.
func (g *product[T]) strip(b *block[T], j0, j1 int) {
	count := (j1 - j0 + g.ks.nr - 1) / g.ks.nr
	size := count * g.ks.nr * b.kc
	words := g.pool.take(size * int(unsafe.Sizeof(*new(T))))
	defer g.pool.give(words)
	own := *b
	own.j0, own.b = j0, floats[T](words, size)
	g.packB(b, own.b, j0, count)
	g.tileBlock(&own, b.i0, b.i1, j0, j1)
}

// spot is a tile of C: rows [i, i+rows) and columns [j, j+cols).
type spot struct{ i, rows, j, cols int }

// tileBlock computes rows [i0, i1) and columns [j0, j1) of C for one block of k, all chains of a tile in turn while it is in
// the first-level cache.
func (g *product[T]) tileBlock(b *block[T], i0, i1, j0, j1 int) {
	ks := g.ks
	var scratch []T // a tile that does not lie wholly in C, or in its part
	for j := j0; j < j1; j += ks.nr {
		for i := i0; i < i1; i += ks.mr {
			t := spot{i, min(ks.mr, i1-i), j, min(ks.nr, j1-j)}
			var edge []T
			switch g.place(t) {
			case outside:
				continue
			case across:
				if scratch == nil {
					scratch = make([]T, ks.mr*ks.nr)
				}
				edge = scratch
			}
			for k := b.k0; k < b.k0+b.kc; k += g.chain {
				g.tile(b, t, edge, k, min(b.k0+b.kc, k+g.chain))
			}
		}
	}
}

// tile computes the chains [k0, k1) of one tile, by way of edge if that is set.
func (g *product[T]) tile(b *block[T], t spot, edge []T, k0, k1 int) {
	ks, add := g.ks, b.add || k0 > b.k0
	from, to := g.zeros.span(k0, k1, t.i, t.j, t.j+t.cols)
	if from == to {
		if add {
			return
		}
		from, to = b.k0, b.k0
	}
	k, skip := to-from, from-b.k0
	pa, pb := &b.a[(t.i-b.i0)/ks.mr*ks.aStride*b.kc+skip*ks.aStride], &b.b[(t.j-b.j0)*b.kc+skip*ks.nr]
	switch {
	case edge != nil:
		ks.tiles[t.rows-1](k, pa, pb, &edge[0], ks.nr, false)
		g.emit(edge, t, add)
	case g.wide != nil:
		ks.tileWide(k, pa, pb, &g.wide[t.i*g.ldc+t.j], g.ldc)
	default:
		ks.tiles[t.rows-1](k, pa, pb, &g.c[t.i*g.ldc+t.j], g.ldc, add)
	}
}

// placement says how a tile lies with respect to the elements that are to be computed.
type placement uint8

const (
	inside placement = iota
	across
	outside
)

func (g *product[T]) place(t spot) placement {
	switch {
	case g.part == lower && t.i+t.rows <= t.j, g.part == upper && t.i >= t.j+t.cols:
		return outside
	case t.cols < g.ks.nr, g.part == lower && t.i < t.j+t.cols-1, g.part == upper && t.i+t.rows-1 > t.j:
		return across
	case g.wide != nil && (t.rows < g.ks.mr || g.ks.tileWide == nil):
		return across
	}
	return inside
}

// emit stores or adds the wanted elements of a tile.
func (g *product[T]) emit(tile []T, t spot, add bool) {
	for r := range t.rows {
		from, to := g.part.columns(t.i+r, t.j, t.j+t.cols)
		src := tile[r*g.ks.nr+from-t.j:][:to-from]
		at := (t.i + r) * g.ldc
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
