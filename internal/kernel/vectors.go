package kernel

// vectors holds the elementwise kernels of a set. They take a multiple of 16 elements; sums go to 16 accumulators, element i
// to accumulator i%16. The portable set has none: the loops in Go that finish every row then do all of it.
type vectors struct {
	exp                   func(dst, x *float32, n int)
	expSum                func(acc *[lanes]float32, x *float32, top float32, n int)
	siluMul               func(dst, gate, up *float32, n int)
	scale                 func(x *float32, s float32, n int)
	addScaled             func(dst, x *float32, s float32, n int)
	addScaledRows         func(dst, x *float32, stride int, s *float32, count, n int)
	scaleMul              func(dst, x, weight *float32, s float32, n int)
	max, sum, sumSq       func(acc *[lanes]float32, x *float32, n int)
	dot64, sqDiff         func(acc *[lanes]float64, a, b *float32, n int)
	colAbsSum, colSumSq   func(dst *float64, x *float32, stride, rows, cols int)
	widen                 [3]func(dst *float32, src *byte, n int) // by Kind
	narrowBF16, narrowF16 func(dst *uint16, src *float32, n int)
	pairBF16              func(dst *uint16, low, high *float32, n int)
}

// vectorBurst bounds the elements of one call of a kernel, which cannot be preempted, to some 10 µs.
const vectorBurst = 1 << 13

// bursts calls f for as much of [0, n) as kernels can do and returns how much that was.
func (s *set) bursts(n int, f func(v *vectors, from, count int)) (done int) {
	for s.vec != nil && n-done >= lanes {
		count := min((n-done)&^(lanes-1), vectorBurst)
		f(s.vec, done, count)
		done += count
	}
	return done
}
