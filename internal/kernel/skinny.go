package kernel

// A product with few rows of A (a token, a small expert) is bound by reading B, the weights. Packing B for it would cost
// more than the arithmetic, so it is done the other way around: vectors hold one value per row of A, and B is widened
// row by row and broadcast. The chains are the same, so are the bits.

const (
	skinnyMax    = 16      // rows of A
	skinnyRows   = 8       // rows of B per kernel call
	skinnyStride = KC + 16 // between widened rows; see gen/skinny.go
	skinnyTask   = 64      // rows of B per task, at most
)

// skinnyFunc multiplies a packed panel of A (width rows) with skinnyRows widened rows of B: c holds width numbers per row of B.
type skinnyFunc func(k int, a, b, c *float32, add bool)

// skinny is the family of kernels of one set by width; a missing one is nil.
type skinny struct {
	by4, by8, by16 skinnyFunc
}

// panelsFor cuts m rows of A into panels and returns their widths and kernels.
func (s *skinny) panelsFor(m int) (widths []int, funcs []skinnyFunc) {
	for ; m > 0; m -= widths[len(widths)-1] {
		w, f := 4, s.by4
		switch {
		case m > 8 && s.by16 != nil:
			w, f = 16, s.by16
		case m > 4:
			w, f = 8, s.by8
		}
		widths, funcs = append(widths, w), append(funcs, f)
	}
	return widths, funcs
}

// skinnyProduct is C[M,N] (+)= A[M,K]·B[N,K]ᵀ for M <= skinnyMax.
type skinnyProduct struct {
	*product[float32]
	set    *set
	widths []int
	funcs  []skinnyFunc
	total  int       // sum of widths
	packed []float32 // for every block of k, the panels one after the other: width numbers per step of k
}

// runSkinny computes g if it is skinny and the set has kernels for that.
func runSkinny(g *product[float32], s *set) bool {
	if s.skinny.by4 == nil || g.m > skinnyMax || g.m == 0 || g.n == 0 || g.k == 0 || !g.a.alongK || !g.b.alongK {
		return false
	}
	p := skinnyProduct{product: g, set: s}
	p.widths, p.funcs = s.skinny.panelsFor(g.m)
	for _, w := range p.widths {
		p.total += w
	}
	words := g.pool.take(4*p.total*g.k + 64) // transposing packs write up to a vector beyond the end
	defer g.pool.give(words)
	p.packed = floats[float32](words, p.total*g.k)
	p.packA()
	rows := roundUp(min(skinnyTask, g.n/(4*g.pool.Threads())+1), skinnyRows)
	g.serial = g.m*g.n*g.k <= smallProduct
	g.parallel((g.n+rows-1)/rows, func(t int) { p.task(t*rows, min(g.n, (t+1)*rows)) })
	return true
}

// packA packs all of A.
func (p *skinnyProduct) packA() {
	for k0 := 0; k0 < p.k; k0 += KC {
		first, at, kc := 0, p.total*k0, min(KC, p.k-k0)
		for _, w := range p.widths {
			a := panels[float32]{dst: p.packed[at:], width: min(w, p.m-first), stride: w, first: first, count: 1, k0: k0, kc: kc}
			a.pack(p.ks, &p.a)
			first += w
			at += w * kc
		}
	}
}

// task computes columns [j0, j1) of C. All blocks of k of a group of rows come before the next group, so that B is read in
// a few long streams.
func (p *skinnyProduct) task(j0, j1 int) {
	wide := make([]float32, skinnyRows*skinnyStride)
	sums := make([]float32, skinnyTask*p.total) // by row of B, then panel
	if p.add {
		p.exchange(sums, j0, j1, func(c, sum *float32) { *sum = *c })
	}
	for j := j0; j < j1; j += skinnyRows {
		for k0 := 0; k0 < p.k; k0 += KC {
			kc := min(KC, p.k-k0)
			for r := range min(skinnyRows, j1-j) {
				p.widenRow(wide[r*skinnyStride:][:kc], j+r, k0)
			}
			a, out := p.total*k0, (j-j0)*p.total
			for i, w := range p.widths {
				p.funcs[i](kc, &p.packed[a], &wide[0], &sums[out], p.add || k0 > 0)
				a += w * kc
				out += skinnyRows * w
			}
		}
	}
	p.exchange(sums, j0, j1, func(c, sum *float32) { *c = *sum })
}

// exchange visits the elements of columns [j0, j1) of C with their places in sums.
func (p *skinnyProduct) exchange(sums []float32, j0, j1 int, visit func(c, sum *float32)) {
	for j := j0; j < j1; j++ {
		group, r := (j-j0)/skinnyRows*skinnyRows*p.total, (j-j0)%skinnyRows
		first := 0
		for _, w := range p.widths {
			for i := range min(w, p.m-first) {
				visit(&p.c[(first+i)*p.ldc+j], &sums[group+r*w+i])
			}
			first += w
			group += skinnyRows * w
		}
	}
}

// widenRow reads len(dst) values of row i of B from column k on.
func (p *skinnyProduct) widenRow(dst []float32, i, k int) {
	body := len(dst) &^ (lanes - 1)
	if body > 0 {
		p.set.vec.widen[p.b.kind](&dst[0], p.b.address(i, k), body)
	}
	for j := body; j < len(dst); j++ {
		dst[j] = p.b.at(i, k+j)
	}
}
