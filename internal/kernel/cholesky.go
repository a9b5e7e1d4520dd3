package kernel

import (
	"fmt"
	"math"
	"unsafe"
)

// PivotError says that a matrix is not positive definite: the pivot of row Index came out as Value.
type PivotError struct {
	Index int
	Value float64
}

func (e *PivotError) Error() string {
	return fmt.Sprintf("matrix is not positive definite: pivot %d is %g", e.Index, e.Value)
}

// CholeskyUpperInverse replaces the symmetric positive definite n x n matrix h (row-major, lower triangle read) by the
// upper triangular U with a positive diagonal and H⁻¹ = UᵀU, the factor of GPTQ. The strict lower triangle becomes zero.
//
// With J the reversal of rows and columns, JHJ = LLᵀ gives H = VVᵀ for the upper V = JLJ, hence U = V⁻¹: one
// factorization and one triangular inverse, 2n³/3 operations in all, where inverting H and factoring again takes twice
// as many. Besides h it needs cholBlock columns and the panels of the products. After a *PivotError h is undefined.
func CholeskyUpperInverse(p *Pool, h []float64, n int) error {
	checkShape("CholeskyUpperInverse", n, n, n, len(h))
	return factorInPlace(p, h, n)
}

// CholeskyUpperInverse32 is CholeskyUpperInverse in float32, for matrices too large for float64: leaves are still factored
// in float64, the products around them are not.
func CholeskyUpperInverse32(p *Pool, h []float32, n int) error {
	checkShape("CholeskyUpperInverse32", n, n, n, len(h))
	return factorInPlace(p, h, n)
}

func factorInPlace[T real](p *Pool, h []T, n int) error {
	if p == nil {
		p = NewPool(1)
	}
	symmetrize(p, h, n)
	words := p.take(int(unsafe.Sizeof(*new(T))) * n * cholBlock)
	defer p.give(words)
	f := factor[T]{pool: p, m: dense[T]{n, n, n, h}, temp: floats[T](words, n*cholBlock), block: cholBlock}
	if err := f.decompose(); err != nil {
		return err
	}
	f.invert()
	return nil
}

// Diagonal blocks of cholBlock are factored with blocks smaller by cholSplit, and so on down to leaves that are small enough
// for scalar loops. The sizes are part of the definition of the result.
const (
	cholBlock = 512
	cholSplit = 4
	cholLeaf  = 32
)

// factor works on the upper triangle of m, block columns from the right, in place.
type factor[T real] struct {
	pool  *Pool
	m     dense[T]
	temp  []T // m.rows x block
	block int
	first int // index of row 0 in the whole matrix, for errors
}

// decompose replaces the upper triangle of H = VVᵀ by V outside the diagonal blocks and by their inverses inside.
func (f *factor[T]) decompose() error {
	n := f.m.rows
	for j1 := n; j1 > 0; {
		j0 := (j1 - 1) / f.block * f.block
		diag := f.m.slice(j0, j1, j0, j1)
		if err := f.leaf(diag, j0); err != nil {
			return err
		}
		if j0 > 0 {
			rest := f.m.slice(0, j0, j0, j1) // H[:j0, J] becomes V[:j0, J] = H[:j0, J]·V_JJ⁻ᵀ
			v := dense[T]{j0, j1 - j0, j1 - j0, f.temp}
			g := newDense(f.pool, v, rest.operand(true), diag.operand(true), j1-j0, false)
			g.zeros = zeroBUpper
			g.run()
			f.copyNegated(rest, v)
			g = newDense(f.pool, f.m.slice(0, j0, 0, j0), v.operand(true), rest.operand(true), j1-j0, true)
			g.part = upper // H[:j0, :j0] -= V[:j0, J]·V[:j0, J]ᵀ, with the sign in rest
			g.run()
			f.negate(rest)
		}
		j1 = j0
	}
	return nil
}

// leaf replaces a diagonal block H_JJ = V_JJ·V_JJᵀ by V_JJ⁻¹, with zeros below the diagonal.
func (f *factor[T]) leaf(d dense[T], at int) error {
	if f.block > cholLeaf {
		sub := factor[T]{m: d, temp: f.temp, block: f.block / cholSplit, first: f.first + at, pool: f.pool}
		err := sub.decompose()
		if err == nil {
			sub.invert()
		}
		return err
	}
	var leaf [cholLeaf * cholLeaf]float64
	n := d.rows
	for i := range n {
		for j := i; j < n; j++ {
			leaf[i*n+j] = float64(d.data[i*d.stride+j])
		}
	}
	if err := decomposeLeaf(leaf[:n*n], n, f.first+at); err != nil {
		return err
	}
	invertLeaf(leaf[:n*n], n)
	for i := range n {
		for j := range n {
			d.data[i*d.stride+j] = T(leaf[i*n+j])
		}
	}
	return nil
}

// invert completes U = V⁻¹ from the inverted diagonal blocks, block columns from the left: with U[:j0, :j0] done,
// U[:j0, J] = -U[:j0, :j0]·(V[:j0, J]·U_JJ).
func (f *factor[T]) invert() {
	n := f.m.rows
	for j0 := 0; j0 < n; j0 += f.block {
		j1 := min(n, j0+f.block)
		for i := j0; i < j1; i++ {
			clear(f.m.data[i*f.m.stride : i*f.m.stride+j0])
		}
		if j0 == 0 {
			continue
		}
		v, t := f.m.slice(0, j0, j0, j1), dense[T]{j0, j1 - j0, j1 - j0, f.temp}
		g := newDense(f.pool, t, v.operand(true), f.m.slice(j0, j1, j0, j1).operand(false), j1-j0, false)
		g.zeros = zeroBLower
		g.run()
		g = newDense(f.pool, v, f.m.slice(0, j0, 0, j0).operand(true), t.operand(false), j0, false)
		g.zeros = zeroALower
		g.run()
		f.negate(v)
	}
}

// copyNegated sets dst = -src.
func (f *factor[T]) copyNegated(dst, src dense[T]) {
	f.pool.Run(rowTasks(dst.rows), func(t int) {
		for i := t * rowsPerTask; i < min(dst.rows, (t+1)*rowsPerTask); i++ {
			to, from := dst.data[i*dst.stride:][:dst.cols], src.data[i*src.stride:][:dst.cols]
			for j, x := range from {
				to[j] = -x
			}
		}
	})
}

func (f *factor[T]) negate(m dense[T]) { f.copyNegated(m, m) }

const rowsPerTask = 64

func rowTasks(rows int) int { return (rows + rowsPerTask - 1) / rowsPerTask }

// decomposeLeaf replaces the upper triangle of H = VVᵀ by V, element by element.
func decomposeLeaf(d []float64, n, first int) error {
	row := func(i int) []float64 { return d[i*n:][:n] }
	for j := n - 1; j >= 0; j-- {
		rj := row(j)
		s := chain(-1, rj[j+1:], rj[j+1:], rj[j])
		if !(s > 0) || math.IsInf(s, 0) {
			return &PivotError{first + j, s}
		}
		rj[j] = math.Sqrt(s)
		for i := range j {
			ri := row(i)
			ri[j] = chain(-1, ri[j+1:], rj[j+1:], ri[j]) / rj[j]
		}
	}
	return nil
}

// chain adds sign*a[k]*b[k] to s, in order.
func chain(sign float64, a, b []float64, s float64) float64 {
	for k, v := range a {
		s = math.FMA(sign*v, b[k], s)
	}
	return s
}

// invertLeaf replaces the upper triangular V by V⁻¹ and clears what lies below the diagonal.
func invertLeaf(d []float64, n int) {
	var col [cholLeaf]float64
	for j := range n {
		rj := d[j*n:][:n]
		clear(rj[:j])
		inv := 1 / rj[j]
		for i := range j {
			col[i] = d[i*n+j]
		}
		for i := range j {
			ri := d[i*n:][:n]
			ri[j] = -chain(1, ri[i:j], col[i:j], 0) * inv
		}
		rj[j] = inv
	}
}
