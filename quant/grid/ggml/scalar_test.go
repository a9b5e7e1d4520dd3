package ggml

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// eachScalar runs f for every type that has a scalar view.
func eachScalar(t *testing.T, f func(t *testing.T, ty *Type, s *Scalar)) {
	for _, ty := range Types() {
		if s, ok := ty.Scalar(); ok {
			t.Run(ty.Name, func(t *testing.T) { f(t, ty, s) })
		}
	}
}

// TestScalarPack packs random parameters and codes, reads them back and compares both decoders.
func TestScalarPack(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	eachScalar(t, func(t *testing.T, ty *Type, s *Scalar) {
		for range 50 {
			p := Params{D: s.RoundD(float32(r.ExpFloat64()))}
			if s.HasMin {
				p.DMin = s.RoundD(float32(r.ExpFloat64()))
			}
			for j := range s.SubBlocks() {
				p.Scale[j] = s.ScaleMin + int16(r.IntN(int(s.ScaleMax-s.ScaleMin)+1))
				if s.HasMin {
					p.Min[j] = int16(r.IntN(int(s.MinMax) + 1))
					if s.MinMax == 1 {
						p.Min[j] = 1
					}
				}
			}
			codes := make([]uint8, s.Span)
			for i := range codes {
				codes[i] = uint8(r.IntN(len(s.Levels)))
			}
			b := make([]byte, ty.Bytes)
			for i := range b {
				b[i] = 0xa5 // Pack must write every byte
			}
			s.Pack(b, &p, codes)
			require.NoError(t, ty.Validate(b))

			var back Params
			read := make([]uint8, s.Span)
			s.Unpack(&back, read, b)
			if !s.HasMin {
				back.Min = p.Min
			}
			require.Equal(t, p, back)
			require.Equal(t, codes, read)

			want, got := make([]float32, s.Span), make([]float32, s.Span)
			ty.DecodeRow(want, b)
			s.Decode(got, &p, codes)
			require.Equal(t, want, got)
		}
	})
}

// TestScalarFit puts Fit, Codes and Pack together: for super-blocks with minima or signed scales that is the encoder.
func TestScalarFit(t *testing.T) {
	const blocks = 21
	eachScalar(t, func(t *testing.T, ty *Type, s *Scalar) {
		x, im := gaussian(8, blocks*s.Span)
		im = im[:s.Span]
		for _, weights := range [][]float32{nil, im} {
			p := make([]Params, blocks)
			s.Fit(p, x, weights)
			got := make([]byte, blocks*ty.Bytes)
			codes := make([]uint8, s.Span)
			for b := range p {
				s.Codes(codes, &p[b], x[b*s.Span:(b+1)*s.Span])
				s.Pack(got[b*ty.Bytes:(b+1)*ty.Bytes], &p[b], codes)
			}
			want := encode(t, ty, x, blocks, s.Span, weights)
			switch ty.Name {
			case "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "MXFP4", "NVFP4":
				require.Equal(t, want, got)
			default: // these encoders round with the scale before it is stored: equally good, not equal
				sum := func(b []byte) (e float64) {
					y := make([]float32, len(x))
					ty.DecodeRow(y, b)
					for i := range x {
						e += float64((x[i] - y[i]) * (x[i] - y[i]))
					}
					return e
				}
				require.Less(t, sum(got), 1.1*sum(want))
			}
		}
	})
}

// TestFitSub checks that the first level of a fit is exposed: its scale over D is near an integer sub-scale.
func TestFitSub(t *testing.T) {
	eachScalar(t, func(t *testing.T, ty *Type, s *Scalar) {
		x, w := gaussian(9, s.Span)
		n := s.SubBlocks()
		scale, minimum := make([]float32, n), make([]float32, n)
		s.FitSub(scale, minimum, x, w)
		for j := range n {
			require.NotZero(t, scale[j])
			if !s.HasMin {
				require.Zero(t, minimum[j])
			} else {
				require.GreaterOrEqual(t, minimum[j], float32(0))
			}
		}
	})
}
