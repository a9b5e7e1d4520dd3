package tensor

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// edges are the numbers where 64-bit arithmetic goes wrong.
var edges = []int64{0, 1, 2, 3, 7, 8, 31, 32, 255, 1 << 20, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<32 + 1, 1 << 62, 1<<62 + 1,
	math.MaxInt64 - 1, math.MaxInt64, -1, -2, -8, -1 << 31, math.MinInt64, math.MinInt64 + 1, 3037000499, 3037000500}

// pairs calls f with every pair of edges and many random pairs of every magnitude.
func pairs(f func(a, b int64)) {
	for _, a := range edges {
		for _, b := range edges {
			f(a, b)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200_000 {
		f(int64(rng.Uint64())>>rng.IntN(64), int64(rng.Uint64())>>rng.IntN(64))
	}
}

// agree compares a checked result with the exact one: ok exactly when no operand is negative and the result fits.
func agree(t *testing.T, got int64, ok bool, exact *big.Int, valid bool, a, b int64) {
	valid = valid && exact.IsInt64()
	if ok != valid || ok && got != exact.Int64() || !ok && got != 0 {
		t.Fatalf("%d, %d: got %d %v, exactly %v", a, b, got, ok, exact)
	}
}

func TestCheckedArithmetic(t *testing.T) {
	pairs(func(a, b int64) {
		A, B, positive := big.NewInt(a), big.NewInt(b), a >= 0 && b >= 0
		got, ok := Mul(a, b)
		agree(t, got, ok, new(big.Int).Mul(A, B), positive, a, b)
		got, ok = Add(a, b)
		agree(t, got, ok, new(big.Int).Add(A, B), positive, a, b)
		aligned := new(big.Int)
		if b > 0 {
			rest := new(big.Int).Mod(new(big.Int).Neg(A), B)
			aligned.Add(A, rest)
		}
		got, ok = Align(a, b)
		agree(t, got, ok, aligned, a >= 0 && b > 0, a, b)
	})
}

func TestElements(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range 50_000 {
		shape := make([]int64, rng.IntN(6))
		exact, valid := big.NewInt(1), true
		for i := range shape {
			shape[i] = int64(rng.Uint64()) >> (rng.IntN(60) + 4)
			valid = valid && shape[i] >= 0
			exact.Mul(exact, big.NewInt(shape[i]))
			valid = valid && exact.IsInt64() // a product that overflows on the way is refused even when a zero follows
		}
		got, ok := Elements(shape)
		agree(t, got, ok, exact, valid, int64(len(shape)), 0)
	}
	n, ok := Elements(nil)
	require.True(t, ok)
	require.EqualValues(t, 1, n)
}
