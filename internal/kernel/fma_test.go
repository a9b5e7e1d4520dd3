package kernel

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// exactFMA rounds a*b + c once, by way of big numbers.
func exactFMA(a, b, c float32) float32 {
	x := new(big.Float).SetPrec(2000).SetFloat64(float64(a) * float64(b)) // the product is exact
	x.Add(x, big.NewFloat(float64(c)))
	f, _ := x.Float32()
	return f
}

func checkFMA(t *testing.T, a, b, c float32) {
	t.Helper()
	want := exactFMA(a, b, c)
	if got := fma32(a, b, c); math.Float32bits(got) != math.Float32bits(want) && !(got == 0 && want == 0) {
		t.Fatalf("%x*%x + %x = %x, want %x", a, b, c, got, want)
	}
}

func TestFMARandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200000 {
		a := math.Float32frombits(rng.Uint32()&^(0x7f<<24) | uint32(40+rng.IntN(48))<<24)
		b := math.Float32frombits(rng.Uint32()&^(0x7f<<24) | uint32(40+rng.IntN(48))<<24)
		c := math.Float32frombits(rng.Uint32()&^(0x7f<<24) | uint32(rng.IntN(127))<<24)
		checkFMA(t, a, b, c)
	}
}

// TestFMAMidpoints builds sums whose float64 rounding lands on the midpoint of two float32: the product is just beside it, by
// less than float64 can hold.
func TestFMAMidpoints(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	hard := 0
	for range 100000 {
		c := 1 + float32(rng.IntN(1<<23))*0x1p-23
		tiny := float32(math.Ldexp(1, -24-rng.IntN(3))) // half an ulp of c and less
		a := float32(1+rng.IntN(1<<12)) * 0x1p-12
		b := tiny * (1 + float32(rng.IntN(5)-2)*0x1p-23)
		for _, s := range []float32{1, -1} {
			checkFMA(t, a, s*b, c)
			checkFMA(t, 1, s*b, c)
			checkFMA(t, -1, s*b, -c)
			if hazard(float64(b)*float64(s)+float64(c)) < 0 {
				hard++
			}
		}
	}
	if hard < 1000 {
		t.Errorf("only %d sums were hard", hard)
	}
	// below the normal range
	for range 100000 {
		a := float32(math.Ldexp(1+rng.Float64(), -70-rng.IntN(10)))
		b := float32(math.Ldexp(1+rng.Float64(), -70-rng.IntN(10)))
		c := math.Float32frombits(rng.Uint32N(1 << 24))
		checkFMA(t, a, b, c)
		checkFMA(t, a, -b, c)
	}
}

func TestFMASpecial(t *testing.T) {
	inf, nan, top := float32(math.Inf(1)), float32(math.NaN()), float32(math.MaxFloat32)
	for _, c := range []struct{ a, b, c, want float32 }{
		{inf, 1, 2, inf}, {1, 2, -inf, -inf}, {top, 2, 0, inf}, {top, 1, 0x1p103, inf}, {top, 1, 0x1p102, top},
		{top, 2, -top, top}, {0, 0, 0, 0}, {1, -1, 1, 0}, {0x1p-126, 0x1p-24, 0, 0},
	} {
		if got := fma32(c.a, c.b, c.c); got != c.want {
			t.Errorf("%g*%g + %g = %g, want %g", c.a, c.b, c.c, got, c.want)
		}
	}
	for _, c := range [][3]float32{{nan, 1, 1}, {1, nan, 1}, {1, 1, nan}, {inf, 0, 1}, {inf, 1, -inf}} {
		if got := fma32(c[0], c[1], c[2]); got == got {
			t.Errorf("%v: got %g, want NaN", c, got)
		}
	}
}
