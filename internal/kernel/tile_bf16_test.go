package kernel

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// exactFlush is a*b + c rounded once to 24 bits by way of big numbers, denormal numbers taken as zero and flushed to zero.
func exactFlush(a, b, c float32) float32 {
	const smallest = 0x1p-126
	zero := func(v float64) float64 {
		if math.Abs(v) < smallest {
			return math.Copysign(0, v)
		}
		return v
	}
	x, y, z := zero(float64(a)), zero(float64(b)), zero(float64(c))
	if s := x*y + z; math.IsInf(s, 0) || math.IsNaN(s) {
		return float32(s) // not by rounding: float64 reaches further
	}
	sum := new(big.Float).SetPrec(2000).SetFloat64(x * y) // exact
	sum.Add(sum, big.NewFloat(z)).SetPrec(24)
	f, _ := sum.Float64()
	return float32(zero(f))
}

// number is a random bfloat16 number of one of several families.
func number(rng *rand.Rand, family int) uint16 {
	special := []uint16{0, 0x8000, 1, 0x7f, 0x80, 0x8080, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0x3f80, 0xbf80, 0x7f7f, 0x40, 0x8040, 0x81}
	exponent := func(low, n int) uint16 { return uint16(rng.Uint32()&0x807f) | uint16(low+rng.IntN(n))<<7 }
	switch family {
	case 0:
		return exponent(118, 12) // ordinary
	case 1:
		return exponent(54, 20) // products near underflow
	case 2:
		return exponent(186, 8) // products near overflow
	case 3:
		return exponent(126, 2) &^ 0x7c // few values: sums cancel
	case 4:
		return special[rng.IntN(len(special))]
	}
	return uint16(rng.Uint32())
}

const families = 6

// The step of a chain is the same in the definition, in big numbers and in every kernel, this processor's instruction
// included.
func TestDotPair(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	const rounds = 4000
	for _, s := range available() {
		ks := &s.bf16
		a, b := make([]float32, ks.aStride), make([]float32, ks.nr)
		c, got := make([]float32, ks.mr*ks.nr), make([]float32, ks.mr*ks.nr)
		for round := range rounds {
			family := round % families
			word := func() uint32 { return uint32(number(rng, family)) | uint32(number(rng, family))<<16 }
			seed := [2]uint32{word(), word()} // the accumulator that the step starts from
			for i := range a {
				a[i] = math.Float32frombits(word())
			}
			for i := range b {
				b[i] = math.Float32frombits(word())
			}
			// two steps: the first one makes accumulators of all kinds
			pa, pb := make([]float32, 2*len(a)), make([]float32, 2*len(b))
			for i := range a {
				pa[i], pa[len(a)+i] = math.Float32frombits(seed[0]), a[i]
			}
			for i := range b {
				pb[i], pb[len(b)+i] = math.Float32frombits(seed[1]), b[i]
			}
			ks.tiles[ks.mr-1](2, &pa[0], &pb[0], &got[0], ks.nr, false)
			start := dotPair(0, seed[0], seed[1])
			for i := range c {
				c[i] = dotPair(start, math.Float32bits(a[i/ks.nr]), math.Float32bits(b[i%ks.nr]))
			}
			equalBits(t, fmt.Sprintf("%s, family %d", s.name, family), got, c)
			if s != generic {
				continue
			}
			for i := range c[:4] {
				u, v := math.Float32bits(a[i/ks.nr]), math.Float32bits(b[i%ks.nr])
				half := math.Float32frombits
				want := exactFlush(half(u&0xffff0000), half(v&0xffff0000), start)
				want = exactFlush(half(u<<16), half(v<<16), want)
				equalBits(t, "definition", c[i:i+1], []float32{want})
			}
		}
	}
}

// Results on both sides of the smallest normal number.
func TestFlush(t *testing.T) {
	const smallest = 0x1p-126
	for _, c := range []struct{ a, b, c, want float32 }{
		{0x1p-63, 0x1p-63, 0, smallest}, {0x1p-64, 0x1p-63, 0, 0}, {-0x1p-64, 0x1p-63, 0, float32(math.Copysign(0, -1))},
		{-0x1p-75, 0x1p-76, smallest, smallest}, // half a unit below: to even
		{-0x1.02p-75, 0x1p-76, smallest, 0}, {-0x1p-75, 0x1p-75, smallest, 0}, {0x1.02p-75, 0x1p-76, -smallest, float32(math.Copysign(0, -1))},
		{0x1.fep-64, 0x1.fep-64, 0, 0}, {1, -1, 1, 0}, {0x1p-100, -0x1p-100, smallest, smallest},
	} {
		equalBits(t, fmt.Sprintf("%x*%x + %x", c.a, c.b, c.c), []float32{fmaFlush(c.a, c.b, c.c), exactFlush(c.a, c.b, c.c)}, []float32{c.want, c.want})
	}
	require.Zero(t, math.Float32bits(dotPair(0, 0x00010001, 0x7f7f7f7f)), "denormal operands are zero")
	require.True(t, math.IsNaN(float64(dotPair(0, 0x0001, 0x7f80))), "also times infinity")
}
