package tensor

import (
	"math"
	"math/bits"
)

// Mul returns a·b; ok is false when a factor is negative or the product leaves int64.
func Mul(a, b int64) (product int64, ok bool) {
	if a < 0 || b < 0 {
		return 0, false
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return 0, false
	}
	return int64(lo), true
}

// Add returns a+b; ok is false when a term is negative or the sum leaves int64.
func Add(a, b int64) (sum int64, ok bool) {
	if a < 0 || b < 0 || a > math.MaxInt64-b {
		return 0, false
	}
	return a + b, true
}

// Align rounds n up to a multiple of to (a positive number); ok is false on overflow or a bad argument.
func Align(n, to int64) (aligned int64, ok bool) {
	if n < 0 || to <= 0 {
		return 0, false
	}
	if rest := n % to; rest != 0 {
		return Add(n, to-rest)
	}
	return n, true
}

// Elements returns the product of the dimensions of shape (1 for a scalar).
func Elements(shape []int64) (n int64, ok bool) {
	n = 1
	for _, d := range shape {
		if n, ok = Mul(n, d); !ok {
			return 0, false
		}
	}
	return n, true
}
