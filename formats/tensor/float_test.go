package tensor

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"
)

// same compares by bits; any NaN equals any NaN of the same sign.
func same(a, b float32) bool {
	if a != a && b != b {
		return math.Signbit(float64(a)) == math.Signbit(float64(b))
	}
	return math.Float32bits(a) == math.Float32bits(b)
}

// Every half widens as the reference says, and comes back as itself.
func TestF16Widening(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		got, want := F16ToF32(h), float16.Frombits(h).Float32()
		if !same(got, want) {
			t.Fatalf("%04x: %x, the reference gives %x", h, math.Float32bits(got), math.Float32bits(want))
		}
		back := F32ToF16(got)
		if got != got {
			require.Equal(t, h|0x200, back, "a NaN becomes quiet and keeps its payload")
		} else {
			require.Equal(t, h, back)
		}
		b := BF16ToF32(h)
		back = F32ToBF16(b)
		if b != b {
			require.Equal(t, h|0x40, back)
		} else {
			require.Equal(t, h, back)
		}
	}
}

// narrowing is a type with one rounding function, and what it widens to.
type narrowing struct {
	name   string
	narrow func(float32) uint16
	widen  func(uint16) float32
	most   uint16 // largest finite code
}

var narrowings = []narrowing{
	{"F16", F32ToF16, F16ToF32, 0x7bff},
	{"BF16", F32ToBF16, BF16ToF32, 0x7f7f},
	{"F8_E4M3", func(f float32) uint16 { return uint16(F32ToF8E4M3(f)) }, func(h uint16) float32 { return F8E4M3ToF32(uint8(h)) }, 0x7e},
}

// Rounding is monotone and exact on codes, so it is decided by what happens at, just below and just above the middle
// between each two neighbours: ties go to the even code.
func TestNarrowingAtEveryBoundary(t *testing.T) {
	for _, n := range narrowings {
		sign := uint16(0x8000)
		if n.name == "F8_E4M3" {
			sign = 0x80
		}
		for code := uint16(0); code < n.most; code++ {
			a, b := n.widen(code), n.widen(code+1)
			mid := float32((float64(a) + float64(b)) / 2) // exact: float64 has the bits, and so has float32 between 16-bit neighbours
			even := code + code&1
			for _, c := range []struct {
				x    float32
				want uint16
			}{{a, code}, {math.Nextafter32(mid, a), code}, {mid, even}, {math.Nextafter32(mid, b), code + 1}, {b, code + 1}} {
				if got := n.narrow(c.x); got != c.want {
					t.Fatalf("%s: %x between %04x and %04x becomes %04x, not %04x", n.name, math.Float32bits(c.x), code, code+1, got, c.want)
				}
				if got := n.narrow(-c.x); got != c.want|sign {
					t.Fatalf("%s: -%x becomes %04x", n.name, math.Float32bits(c.x), got)
				}
			}
		}
	}
}

func TestNarrowingAgainstReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 2_000_000 {
		x := math.Float32frombits(rng.Uint32())
		got, want := F32ToF16(x), float16.Fromfloat32(x).Bits()
		if got != want && x == x {
			t.Fatalf("%x: %04x, the reference gives %04x", math.Float32bits(x), got, want)
		}
		if x != x && F16ToF32(got) == F16ToF32(got) {
			t.Fatalf("NaN %x became a number", math.Float32bits(x))
		}
	}
}

func TestNarrowingExtremes(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		x       float32
		f16     uint16
		bf16    uint16
		f8      uint8
		f8minus uint8
	}{
		{0, 0, 0, 0, 0x80},
		{inf, 0x7c00, 0x7f80, 0x7e, 0xfe},
		{65504, 0x7bff, 0x4780, 0x7e, 0xfe},
		{65519.996, 0x7bff, 0x4780, 0x7e, 0xfe},
		{65520, 0x7c00, 0x4780, 0x7e, 0xfe},
		{math.MaxFloat32, 0x7c00, 0x7f80, 0x7e, 0xfe},
		{math.SmallestNonzeroFloat32, 0, 0, 0, 0x80},
		{448, 0x5f00, 0x43e0, 0x7e, 0xfe}, {449, 0x5f04, 0x43e0, 0x7e, 0xfe}, {464, 0x5f40, 0x43e8, 0x7e, 0xfe},
		{1, 0x3c00, 0x3f80, 0x38, 0xb8}, {17, 0x4c40, 0x4188, 0x58, 0xd8}, {19, 0x4cc0, 0x4198, 0x5a, 0xda},
		{0x1p-10, 0x1400, 0x3a80, 0, 0x80}, {3 * 0x1p-10, 0x1a00, 0x3b40, 2, 0x82},
	} {
		require.Equal(t, c.f16, F32ToF16(c.x), "%v", c.x)
		require.Equal(t, c.bf16, F32ToBF16(c.x), "%v", c.x)
		require.Equal(t, c.f8, F32ToF8E4M3(c.x), "%v", c.x)
		require.Equal(t, c.f8minus, F32ToF8E4M3(-c.x), "%v", -c.x)
	}
	require.Equal(t, uint8(0x7f), F32ToF8E4M3(nan)&0x7f)
	require.True(t, F8E4M3ToF32(0x7f) != F8E4M3ToF32(0x7f))
	require.True(t, F8E4M3ToF32(0xff) != F8E4M3ToF32(0xff))
	for payload := uint32(1); payload < 1<<23; payload <<= 1 { // no NaN may round to infinity
		x := math.Float32frombits(0x7f800000 | payload)
		require.NotEqual(t, uint16(0x7c00), F32ToF16(x))
		require.NotEqual(t, uint16(0x7f80), F32ToBF16(x))
	}
}

// Every byte of the 8-bit types against the definition in big rationals: sign, exponent with bias, mantissa.
func TestF8Exhaustively(t *testing.T) {
	for i := range 256 {
		b := uint8(i)
		for _, f := range []struct {
			name      string
			got       float32
			man, bias int
			special   bool // infinities and NaN as IEEE; otherwise one NaN per sign
		}{{"E4M3", F8E4M3ToF32(b), 3, 7, false}, {"E5M2", F8E5M2ToF32(b), 2, 15, true}} {
			exp, man := int(b&0x7f)>>f.man, int64(b)&(1<<f.man-1)
			top := 1<<(7-f.man) - 1
			switch {
			case f.special && exp == top && man == 0:
				require.True(t, math.IsInf(float64(f.got), 1-2*int(b>>7)), "%s %02x", f.name, b)
				continue
			case f.special && exp == top, !f.special && b&0x7f == 0x7f:
				require.True(t, f.got != f.got, "%s %02x", f.name, b)
				continue
			}
			if exp == 0 {
				exp = 1
			} else {
				man |= 1 << f.man
			}
			exact := new(big.Rat).SetInt64(man)
			scale := new(big.Rat).SetFloat64(math.Ldexp(1, exp-f.bias-f.man))
			want, isExact := exact.Mul(exact, scale).Float32()
			require.True(t, isExact)
			if b&0x80 != 0 {
				want = -want
				if man == 0 {
					want = float32(math.Copysign(0, -1))
				}
			}
			require.Equal(t, math.Float32bits(want), math.Float32bits(f.got), "%s %02x", f.name, b)
			if f.name == "E4M3" {
				require.Equal(t, b, F32ToF8E4M3(f.got))
			}
		}
		if e := F8E8M0ToF32(b); b == 255 {
			require.True(t, e != e)
		} else {
			require.Equal(t, math.Ldexp(1, int(b)-127), float64(e))
		}
	}
}

// The conversions of whole tensors are the scalar ones, element by element.
func TestTensorConversions(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	src := make([]float32, 1001)
	for i := range src {
		src[i] = float32(rng.NormFloat64() * math.Exp(8*rng.NormFloat64()))
	}
	for _, d := range []DType{F64, F32, F16, BF16, F8E4M3} {
		data := make([]byte, int64(len(src))*d.Size())
		require.NoError(t, FromFloat32(data, d, src))
		back := make([]float32, len(src))
		require.NoError(t, ToFloat32(back, d, data))
		for i, x := range src {
			var want float32
			switch d {
			case F64, F32:
				want = x
			case F16:
				want = F16ToF32(F32ToF16(x))
			case BF16:
				want = BF16ToF32(F32ToBF16(x))
			case F8E4M3:
				want = F8E4M3ToF32(F32ToF8E4M3(x))
			}
			require.Equal(t, math.Float32bits(want), math.Float32bits(back[i]), "%s %v", d, x)
		}
		require.Error(t, FromFloat32(data[1:], d, src))
		require.Error(t, ToFloat32(back[1:], d, data))
	}
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	got := make([]float32, 256)
	for d, widen := range map[DType]func(uint8) float32{F8E5M2: F8E5M2ToF32, F8E8M0: F8E8M0ToF32, F8E4M3: F8E4M3ToF32} {
		require.NoError(t, ToFloat32(got, d, all))
		for i := range got {
			require.True(t, same(widen(uint8(i)), got[i]))
		}
	}
	require.Error(t, FromFloat32(make([]byte, 1), I8, []float32{1}))
	require.Error(t, FromFloat32(make([]byte, 1), F8E5M2, []float32{1}))
	require.Error(t, ToFloat32(make([]float32, 1), I32, make([]byte, 4)))
}

// FuzzNarrowing compares with exact rational arithmetic: no code is nearer to x than the one chosen.
func FuzzNarrowing(f *testing.F) {
	for _, x := range []float32{0, 1, -1.5, 65519, 448, 0x1p-24, 0x1p-149, 3.4e38} {
		f.Add(binary.LittleEndian.AppendUint32(nil, math.Float32bits(x)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 4 {
			return
		}
		x := math.Float32frombits(binary.LittleEndian.Uint32(data))
		if x != x || math.IsInf(float64(x), 0) {
			return
		}
		for _, n := range narrowings {
			code := n.narrow(x)
			got := n.widen(code)
			if math.IsInf(float64(got), 0) || got != got || code&^0x8080 >= n.most {
				continue // overflow is tested above
			}
			best := gap(x, got)
			for _, other := range []uint16{code - 1, code + 1} {
				y := n.widen(other)
				if y != y || math.IsInf(float64(y), 0) {
					continue
				}
				if c := gap(x, y).Cmp(best); c < 0 || c == 0 && code&1 == 1 && y != got {
					t.Fatalf("%s: %v became %v although %v is as near", n.name, x, got, y)
				}
			}
		}
	})
}

func gap(a, b float32) *big.Rat {
	d := new(big.Rat).Sub(new(big.Rat).SetFloat64(float64(a)), new(big.Rat).SetFloat64(float64(b)))
	return d.Abs(d)
}

// Rows of halves read as their elements do, every one of them.
func TestWidenRows(t *testing.T) {
	raw := make([]byte, 2<<16)
	for i := range 1 << 16 {
		binary.LittleEndian.PutUint16(raw[2*i:], uint16(i))
	}
	got := make([]float32, 1<<16)
	for d, widen := range map[DType]func(uint16) float32{F16: F16ToF32, BF16: BF16ToF32} {
		for _, n := range []int{1 << 16, 7, 3, 0} {
			require.NoError(t, ToFloat32(got[:n], d, raw[:2*n]))
			for i, v := range got[:n] {
				require.Equal(t, math.Float32bits(widen(uint16(i))), math.Float32bits(v), "%s %#x", d, i)
			}
		}
	}
}

// Rows narrow to halves as single values do, whatever their exponent.
func TestNarrowRows(t *testing.T) {
	var src []float32
	for bits := uint64(0); bits < 1<<32; bits += 9973 {
		src = append(src, math.Float32frombits(uint32(bits)))
	}
	for _, edge := range []uint32{0x387fffff, 0x38800000, 0x477fefff, 0x477ff000, 0x7f800000, 0x33000000, 0x33000001} {
		for _, d := range []uint32{0, 1, 1 << 31} {
			src = append(src, math.Float32frombits(edge+d))
		}
	}
	out := make([]byte, 2*len(src))
	require.NoError(t, FromFloat32(out, F16, src))
	for i, v := range src {
		require.Equal(t, F32ToF16(v), binary.LittleEndian.Uint16(out[2*i:]), "%v", v)
	}
}
