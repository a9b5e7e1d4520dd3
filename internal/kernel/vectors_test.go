package kernel

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/llmquant/quantize/formats/tensor"
	"github.com/stretchr/testify/require"
)

// eachSet runs f with every kernel set of this machine.
func eachSet(t *testing.T, f func(t *testing.T, s *set)) {
	for _, s := range available() {
		t.Run(s.name, func(t *testing.T) { f(t, s) })
	}
}

// equalBits compares bit for bit, except that any NaN equals any other.
func equalBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i, w := range want {
		if math.Float32bits(got[i]) != math.Float32bits(w) && (w == w || got[i] == got[i]) {
			t.Fatalf("%s: element %d is %g (%#x), want %g (%#x)", what, i, got[i], math.Float32bits(got[i]), w, math.Float32bits(w))
		}
	}
}

// samples returns n numbers of many magnitudes, special ones among them.
func samples(rng *rand.Rand, n int) []float32 {
	special := []float32{0, float32(math.Copysign(0, -1)), 1, -1, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 88.7, 88.8, -87.4, -103.9, -104.1, 1e-40, -1e-40, math.MaxFloat32, math.SmallestNonzeroFloat32}
	x := make([]float32, n)
	for i := range x {
		switch rng.IntN(16) {
		case 0:
			x[i] = special[rng.IntN(len(special))]
		case 1:
			x[i] = math.Float32frombits(rng.Uint32())
		default:
			x[i] = float32(rng.NormFloat64() * 20)
		}
	}
	return x
}

func TestElementwiseSetsAgree(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, n := range []int{0, 1, 15, 16, 17, 100, 8192 + 16*3 + 5, 20000} {
		x, y := samples(rng, n), samples(rng, n)
		mild := make([]float32, n)
		for i := range mild {
			mild[i] = float32(rng.NormFloat64())
		}
		copyOf := func(v []float32) []float32 { return append([]float32(nil), v...) }
		calls := map[string]func(s *set) []float32{
			"exp":                 func(s *set) []float32 { d := copyOf(x); s.exp(d, d); return d },
			"siluMul":             func(s *set) []float32 { d := make([]float32, n); s.siluMul(d, x, y); return d },
			"softmax":             func(s *set) []float32 { d := copyOf(mild); s.softmax(d); return d },
			"softmax of anything": func(s *set) []float32 { d := copyOf(x); s.softmax(d); return d },
			"rmsNorm":             func(s *set) []float32 { d := make([]float32, n); s.rmsNorm(d, mild, y, 1e-6); return d },
			"scale":               func(s *set) []float32 { d := copyOf(x); s.scale(d, 1.7); return d },
			"addScaledRows": func(s *set) []float32 {
				d := copyOf(x)
				s.addScaledRows(d, append(append(copyOf(y), mild...), y...), n, []float32{-0.3, 2, 1.5})
				return d
			},
			"addScaledRows, one by one": func(s *set) []float32 {
				d, e := copyOf(x), copyOf(x)
				for i, v := range [][]float32{y, mild, y} {
					s.addScaled(e, v, []float32{-0.3, 2, 1.5}[i])
				}
				s.addScaledRows(d, append(append(copyOf(y), mild...), y...), n, []float32{-0.3, 2, 1.5})
				equalBits(t, "addScaledRows", d, e)
				return d
			},
			"addScaled": func(s *set) []float32 { d := copyOf(x); s.addScaled(d, y, -0.3); return d },
			"sum":       func(s *set) []float32 { return []float32{s.sum(mild)} },
		}
		for name, call := range calls {
			want := call(generic)
			eachSet(t, func(t *testing.T, s *set) { equalBits(t, name, call(s), want) })
		}
		dot, sq := generic.dot64(mild, x), generic.sqDiff(mild, x)
		eachSet(t, func(t *testing.T, s *set) {
			if d := s.dot64(mild, x); d != dot && (d == d || dot == dot) {
				t.Fatalf("dot64 %g, want %g", d, dot)
			}
			if d := s.sqDiff(mild, x); d != sq && (d == d || sq == sq) {
				t.Fatalf("sqDiff %g, want %g", d, sq)
			}
		})
	}
}

func TestColumnSums(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for _, kind := range []Kind{F32, BF16, F16} {
		for _, d := range [][2]int{{0, 3}, {3, 0}, {1, 1}, {70, 33}, {5, 9000}, {130, 16}} {
			x := matrix(rng, kind, d[0], d[1], 2)
			abs, sq := make([]float64, d[1]), make([]float64, d[1])
			for i := range x.Rows {
				for j := range x.Cols {
					v := float64(x.at(i, j))
					abs[j] += math.Abs(v)
					sq[j] += v * v
				}
			}
			eachSet(t, func(t *testing.T, s *set) {
				gotAbs, gotSq := make([]float64, d[1]), make([]float64, d[1])
				s.columns(gotAbs, x, false)
				s.columns(gotSq, x, true)
				for j := range abs {
					if gotAbs[j] != abs[j] || gotSq[j] != sq[j] {
						t.Fatalf("%v %v: column %d: %g, %g, want %g, %g", kind, d, j, gotAbs[j], gotSq[j], abs[j], sq[j])
					}
				}
			})
		}
	}
}

func TestWidenAllHalves(t *testing.T) {
	src, dst := make([]uint16, 1<<16), make([]float32, 1<<16)
	for i := range src {
		src[i] = uint16(i)
	}
	for kind, one := range map[Kind]func(uint16) float32{BF16: tensor.BF16ToF32, F16: tensor.F16ToF32} {
		eachSet(t, func(t *testing.T, s *set) {
			s.widen(dst, src, kind)
			for i, v := range dst {
				if want := one(uint16(i)); math.Float32bits(v) != math.Float32bits(want) {
					t.Fatalf("%v %#x: %#x, want %#x", kind, i, math.Float32bits(v), math.Float32bits(want))
				}
			}
		})
	}
}

// Numbers as they lie in a file, at odd addresses too.
func TestBytesAtAnyAlignment(t *testing.T) {
	raw := make([]byte, 2*1000+1)
	for i := range raw {
		raw[i] = byte(i * 167)
	}
	for kind, d := range map[Kind]tensor.DType{BF16: tensor.BF16, F16: tensor.F16} {
		for _, n := range []int{0, 1, 15, 16, 17, 1000} {
			src := raw[1 : 1+2*n]
			got, want := make([]float32, n), make([]float32, n)
			WidenBytes(got, src, kind)
			require.NoError(t, tensor.ToFloat32(want, d, src))
			back, wanted := make([]byte, 2*n+1)[1:], make([]byte, 2*n)
			NarrowBytes(back, want, kind)
			require.NoError(t, tensor.FromFloat32(wanted, d, want))
			require.Equal(t, wanted, back)
			for i := range want {
				require.Equal(t, math.Float32bits(want[i]), math.Float32bits(got[i]))
			}
		}
	}
	require.Panics(t, func() { WidenBytes(nil, nil, F32) })
	require.Panics(t, func() { NarrowBytes(nil, nil, F32) })
}

// TestNarrow walks through all float32 in steps that visit every exponent, every upper mantissa and every rounding case.
func TestNarrow(t *testing.T) {
	const chunk = 1 << 16
	step := uint64(251)
	if os.Getenv("QUANTIZE_LONG") != "" {
		step = 1
	}
	src, dst := make([]float32, chunk), make([]uint16, chunk)
	for at := uint64(0); at < 1<<32; at += chunk * step {
		for i := range src {
			src[i] = math.Float32frombits(uint32(at + uint64(i)*step))
		}
		for _, s := range available() {
			s.narrowF16(dst, src)
			for i, v := range dst {
				if want := tensor.F32ToF16(src[i]); v != want {
					t.Fatalf("%s: F16 of %#x is %#x, want %#x", s.name, math.Float32bits(src[i]), v, want)
				}
			}
			s.narrowBF16(dst, src)
			for i, v := range dst {
				if want := tensor.F32ToBF16(src[i]); v != want {
					t.Fatalf("%s: BF16 of %#x is %#x, want %#x", s.name, math.Float32bits(src[i]), v, want)
				}
			}
		}
	}
}

// TestExpAccuracy compares with the float64 function over the whole range, all floats of it if QUANTIZE_LONG is set.
func TestExpAccuracy(t *testing.T) {
	step := uint32(1009)
	if os.Getenv("QUANTIZE_LONG") != "" {
		step = 1
	}
	x, y := make([]float32, 1<<12), make([]float32, 1<<12)
	worst := 0.0
	for _, sign := range []uint32{0, 1 << 31} {
		for at := uint64(0); at <= 0x42d20000; at += uint64(len(x)) * uint64(step) { // up to 105
			for i := range x {
				x[i] = math.Float32frombits(uint32(at) + uint32(i)*step | sign)
			}
			Exp(y, x)
			for i, v := range y {
				want := math.Exp(float64(x[i]))
				if math.IsInf(float64(v), 1) != (want >= math.MaxFloat32*(1+0x1p-25)) {
					t.Fatalf("e^%g = %g, want %g", x[i], v, want)
				}
				if math.IsInf(float64(v), 1) {
					continue
				}
				_, e := math.Frexp(want)
				ulp := math.Ldexp(1, max(e-24, -149))
				worst = max(worst, math.Abs(float64(v)-want)/ulp)
			}
		}
	}
	t.Logf("largest error %.3f ulp", worst)
	if worst > 1 {
		t.Errorf("largest error %.3f ulp, want at most 1", worst)
	}
}

func TestSoftmaxAndNorm(t *testing.T) {
	inf := float32(math.Inf(-1))
	row := []float32{1, 2, inf, 3, inf}
	Softmax(row)
	want := []float64{math.Exp(-2), math.Exp(-1), 0, 1, 0}
	sum := want[0] + want[1] + 1
	for i, v := range row {
		if math.Abs(float64(v)-want[i]/sum) > 1e-7 {
			t.Errorf("softmax: element %d is %g, want %g", i, v, want[i]/sum)
		}
	}
	x, w, d := []float32{3, -4, 0, 5}, []float32{1, 2, 3, 4}, make([]float32, 4)
	RMSNorm(d, x, w, 0.5)
	for i, v := range d {
		if want := float64(x[i]) / math.Sqrt(50./4+0.5) * float64(w[i]); math.Abs(float64(v)-want) > 1e-6 {
			t.Errorf("norm: element %d is %g, want %g", i, v, want)
		}
	}
}
