package packing

import (
	"encoding/binary"
	"math"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// awqGemv is AutoAWQ's "gemv" layout, read only:
//
//	qweight I32 [Out, In/8] and qzeros I32 [Out, zw] in natural field order, scales F16 [Out, 8·zw]
//
// The groups are padded to whole words, and to more for small groups (gemvWords).
var awqGemv = Layout{
	Name:   "awq_gemv",
	Doc:    "AutoAWQ gemv (legacy, read only): 4 bits packed along the inputs",
	Check:  gemvCheck,
	Plan:   gemvPlan,
	Unpack: gemvUnpack,
	detect: detectAWQ("gemv", tensor.I32, func(rows, cols int) (out, in int) { return rows, 8 * cols }),
}

// gemvWords returns zw, the words per row that hold the zero points of all groups.
func gemvWords(s Scheme, in int) int {
	multiple := 1
	switch s.GroupSize {
	case 64:
		multiple = 2
	case 32:
		multiple = 4
	}
	words := (s.Groups(in) + 7) / 8
	return (words + multiple - 1) / multiple * multiple
}

func gemvCheck(s Scheme, out, in int) error {
	if err := checkInt(s, out, in, 4); err != nil {
		return err
	}
	return checkMultiple("input columns", in, 8)
}

func gemvPlan(base string, s Scheme, out, in int) []tensor.Info {
	zw := int64(gemvWords(s, in))
	return []tensor.Info{
		{Name: base + ".qweight", DType: tensor.I32, Shape: []int64{int64(out), int64(in / 8)}},
		{Name: base + ".qzeros", DType: tensor.I32, Shape: []int64{int64(out), zw}},
		{Name: base + ".scales", DType: s.scaleType(tensor.F16), Shape: []int64{int64(out), 8 * zw}},
	}
}

func gemvUnpack(s Scheme, out, in int, src func(string) []byte) (*Linear, error) {
	if err := gemvCheck(s, out, in); err != nil {
		return nil, err
	}
	s.ScaleType = s.scaleType(tensor.F16)
	groups, zw := s.Groups(in), gemvWords(s, in)
	qweight, err := sized(src, "qweight", elements(out, in/8), tensor.I32)
	if err != nil {
		return nil, err
	}
	qzeros, err := sized(src, "qzeros", elements(out, zw), tensor.I32)
	if err != nil {
		return nil, err
	}
	scales, err := sized(src, "scales", elements(out, 8*zw), s.ScaleType)
	if err != nil {
		return nil, err
	}
	l := newLinear(s, out, in)
	padded := make([]float32, 8*zw)
	for n := range out {
		codes, zeros := l.Codes[n*in:(n+1)*in], l.Zeros[n*groups:(n+1)*groups]
		getStream(strided{qweight, n * in / 8, 1}, in, 4, func(k int, q uint8) { codes[k] = q })
		getStream(strided{qzeros, n * zw, 1}, groups, 4, func(j int, z uint8) { zeros[j] = float32(z) })
		row := scales[n*8*zw*int(s.ScaleType.Size()):][:8*zw*int(s.ScaleType.Size())]
		if err := tensor.ToFloat32(padded, s.ScaleType, row); err != nil {
			return nil, err
		}
		copy(l.Scales[n*groups:], padded[:groups])
	}
	l.dropCentredZeros()
	return l, nil
}

// newLinear allocates an integer weight with zero points.
func newLinear(s Scheme, out, in int) *Linear {
	groups := s.Groups(in)
	return &Linear{
		Scheme: s, Out: out, In: in,
		Codes:  make([]uint8, out*in),
		Scales: make([]float32, out*groups),
		Zeros:  make([]float32, out*groups),
	}
}

// awqGemvFast is AutoAWQ's "gemv_fast" layout (llm-awq's second kernel), read only:
//
//	qweight I16 [Out/4, In], scales and qzeros F16 [8·zw, Out], where qzeros holds −scale·zero
//
// llm-awq calls the last one scaled_zeros.
var awqGemvFast = Layout{
	Name:   "awq_gemv_fast",
	Doc:    "AutoAWQ gemv_fast and llm-awq v2 (legacy, read only): 4 bits interleaved for one GPU kernel",
	Check:  gemvFastCheck,
	Plan:   gemvFastPlan,
	Unpack: gemvFastUnpack,
	detect: detectAWQ("gemv_fast", tensor.I16, func(rows, cols int) (out, in int) { return 4 * rows, cols }),
}

func gemvFastCheck(s Scheme, out, in int) error {
	if err := checkInt(s, out, in, 4); err != nil {
		return err
	}
	if err := checkMultiple("output columns", out, 4); err != nil {
		return err
	}
	return checkMultiple("input columns", in, 64)
}

func gemvFastPlan(base string, s Scheme, out, in int) []tensor.Info {
	zw, d := int64(gemvWords(s, in)), s.scaleType(tensor.F16)
	return []tensor.Info{
		{Name: base + ".qweight", DType: tensor.I16, Shape: []int64{int64(out / 4), int64(in)}},
		{Name: base + ".qzeros", DType: d, Shape: []int64{8 * zw, int64(out)}},
		{Name: base + ".scales", DType: d, Shape: []int64{8 * zw, int64(out)}},
	}
}

func gemvFastUnpack(s Scheme, out, in int, src func(string) []byte) (*Linear, error) {
	if err := gemvFastCheck(s, out, in); err != nil {
		return nil, err
	}
	s.ScaleType = s.scaleType(tensor.F16)
	groups, padded := s.Groups(in), 8*gemvWords(s, in)
	qweight, err := sized(src, "qweight", elements(out/4, in), tensor.I16)
	if err != nil {
		return nil, err
	}
	scales, err := sized(src, "scales", elements(padded, out), s.ScaleType)
	if err != nil {
		return nil, err
	}
	name := "qzeros"
	if src(name) == nil {
		name = "scaled_zeros"
	}
	zeros, err := sized(src, name, elements(padded, out), s.ScaleType)
	if err != nil {
		return nil, err
	}
	l := newLinear(s, out, in)
	gemvFastCodes(l, qweight)
	row := int(s.ScaleType.Size()) * out // the padding behind the real groups is cut off
	if l.Scales, err = getScales(scales[:groups*row], s.ScaleType, out, groups); err != nil {
		return nil, err
	}
	if l.Zeros, err = getScales(zeros[:groups*row], s.ScaleType, out, groups); err != nil {
		return nil, err
	}
	if err := gemvFastZeros(l, groups); err != nil {
		return nil, err
	}
	l.dropCentredZeros()
	return l, nil
}

// gemvFastCodes undoes the kernel's interleaving: in the row of four outputs from 4·nb, word 64·kb + 16·r + 8·h + c
// holds in nibble j the code of output 4·nb + r, column 64·kb + 32·h + 8·j + c.
func gemvFastCodes(l *Linear, qweight []byte) {
	for nb := range l.Out / 4 {
		for i := range l.In {
			w := binary.LittleEndian.Uint16(qweight[2*(nb*l.In+i):])
			kb, r, h, c := i/64, i%64/16, i%16/8, i%8
			at := (4*nb+r)*l.In + 64*kb + 32*h + c
			for j := range 4 {
				l.Codes[at+8*j] = uint8(w>>(4*j)) & 15
			}
		}
	}
}

// gemvFastZeros turns −s·z, rounded to the stored type, back into the integer z. The rounding moves it by at most
// 2^-8 of 15 (BF16), so an answer that is not near an integer means the tensor is something else.
func gemvFastZeros(l *Linear, groups int) error {
	for i, scaled := range l.Zeros {
		z := -scaled / l.Scales[i]
		whole := float32(math.RoundToEven(float64(z)))
		if !(whole >= 0 && whole <= 15) || math.Abs(float64(z-whole)) > 0.1 {
			return safeio.Corruptf("zero point of row %d, group %d decodes to %v, not to 0 … 15", i/groups, i%groups, z)
		}
		l.Zeros[i] = whole + 0 // no minus zero
	}
	return nil
}
