package ggml

import (
	"bytes"
	"errors"
	"math"
	"testing"
)

// FuzzDecode decodes and validates arbitrary bytes as every type; blocks that pass Validate decode to numbers, and
// scalar types survive unpacking and packing.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{})
	seed := make([]byte, 292)
	for i := range seed {
		seed[i] = byte(i * 7)
	}
	f.Add(seed)
	for i := range seed {
		seed[i] = 0xff
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, ty := range Types() {
			blocks := len(data) / ty.Bytes
			src := data[:blocks*ty.Bytes]
			x := make([]float32, blocks*ty.Elems)
			ty.DecodeRow(x, src)
			if ty.Validate(src) != nil || ty.Name == "F64" {
				continue
			}
			if i := firstNonFinite(x); i >= 0 && ty.Name != "Q8_K" && ty.Name != "MXFP4" {
				// fp16 scale × 8-bit scale × value stays far below the float32 maximum; the two have wider scales
				t.Fatalf("%s: weight %d decodes to %v", ty.Name, i, x[i])
			}
			s, ok := ty.Scalar()
			if !ok {
				continue
			}
			var p Params
			codes := make([]uint8, s.Span)
			y := make([]float32, s.Span)
			for b := range blocks {
				s.Unpack(&p, codes, src[b*ty.Bytes:(b+1)*ty.Bytes])
				s.Decode(y, &p, codes)
				for i, v := range y {
					if math.Float32bits(v) != math.Float32bits(x[b*ty.Elems+i]) {
						t.Fatalf("%s: block %d weight %d: %v and %v", ty.Name, b, i, v, x[b*ty.Elems+i])
					}
				}
			}
		}
	})
}

// FuzzEncode encodes arbitrary weights: an error or blocks that pass Validate and decode to finite numbers.
func FuzzEncode(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8}, uint8(0))
	f.Add([]byte{0, 0, 0x80, 0x3f, 0, 0, 0x80, 0xbf, 0xff, 0xff, 0x7f, 0x7f}, uint8(1))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0x80, 0, 1, 2, 3, 0x20}, uint8(2))
	f.Fuzz(func(t *testing.T, data []byte, mode uint8) {
		x := make([]float32, superBlock)
		im := make([]float32, superBlock)
		if len(data) < 4 {
			return
		}
		for i := range x {
			var b [4]byte
			for j := range b {
				b[j] = data[(4*i+j)%len(data)]
			}
			decodeF32(x[i:i+1], b[:])
			im[i] = float32(data[i%len(data)])
		}
		if mode&1 != 0 { // one pattern, magnitudes that real weights have
			for i := range x {
				x[i] = math.Float32frombits(math.Float32bits(x[i])&0x87ffffff | 0x38000000)
			}
		}
		for _, ty := range Types() {
			if !ty.CanEncode() {
				continue
			}
			size, _ := ty.RowBytes(superBlock)
			dst := make([]byte, size)
			weights := im // up to 255
			if mode&2 != 0 && !ty.NeedsImatrix {
				weights = nil
			}
			err := ty.EncodeRows(dst, x, 1, superBlock, weights)
			portable := make([]byte, size)
			if again := ty.encodeWith(nil, portable, x, 1, superBlock, weights); (err == nil) != (again == nil) || !bytes.Equal(dst, portable) {
				t.Fatalf("%s: kernels (%v) write %x, portable code (%v) %x", ty.Name, err, dst, again, portable)
			}
			if err != nil {
				var bad *NonFiniteError
				var over *OverflowError
				if !errors.As(err, &bad) && !errors.As(err, &over) {
					t.Fatalf("%s: %v", ty.Name, err)
				}
				continue
			}
			if err := ty.Validate(dst); err != nil {
				t.Fatalf("%s: %v", ty.Name, err)
			}
			y := make([]float32, superBlock)
			ty.DecodeRow(y, dst)
			if i := firstNonFinite(y); i >= 0 {
				t.Fatalf("%s: weight %d decodes to %v", ty.Name, i, y[i])
			}
		}
	})
}
