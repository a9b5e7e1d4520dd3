package packing

import (
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// ctInt8 is compressed-tensors' "int-quantized" layout, the W8A8 format of SmoothQuant artifacts:
//
//	weight I8 [Out, In], weight_scale [Out, 1] (or [1]) in the model's dtype, asymmetric also weight_zero_point I8
//
// Static activation parameters (input_scale, input_zero_point) are facts about the inputs, not about the weight; the
// recipe that measured them writes them.
var ctInt8 = Layout{
	Name:   "compressed-tensors-int8",
	Doc:    "compressed-tensors int-quantized: 8-bit weights for 8-bit activations (W8A8), one scale per channel",
	Check:  ctInt8Check,
	Plan:   ctInt8Plan,
	Pack:   ctInt8Pack,
	Unpack: ctInt8Unpack,
	valid:  ctInt8Valid,
	detect: detectCT("int-quantized", "weight", tensor.I8),
	config: ctConfig("int-quantized"),
	adapt:  adaptCT,
}

func ctInt8Check(s Scheme, out, in int) error { return checkInt(s, out, in, 8) }

func ctInt8Plan(base string, s Scheme, out, in int) []tensor.Info {
	groups := int64(s.Groups(in))
	plan := []tensor.Info{
		{Name: base + ".weight", DType: tensor.I8, Shape: []int64{int64(out), int64(in)}},
		{Name: base + ".weight_scale", DType: s.scaleType(tensor.BF16), Shape: []int64{int64(out), groups}},
	}
	if !s.Sym {
		plan = append(plan, tensor.Info{Name: base + ".weight_zero_point", DType: tensor.I8, Shape: []int64{int64(out), groups}})
	}
	return plan
}

func ctInt8Valid(l *Linear) error {
	if err := ctInt8Check(l.Scheme, l.Out, l.In); err != nil {
		return err
	}
	return ctValidNumbers(l)
}

func ctInt8Pack(l *Linear, dst func(string) []byte) error {
	if err := ctInt8Valid(l); err != nil {
		return err
	}
	d := l.scaleType(tensor.BF16)
	weight, err := sized(dst, "weight", elements(l.Out, l.In), tensor.I8)
	if err != nil {
		return err
	}
	scales, err := sized(dst, "weight_scale", int64(len(l.Scales)), d)
	if err != nil {
		return err
	}
	flipSign(weight, l.Codes)
	if !l.Sym {
		zeros, err := sized(dst, "weight_zero_point", int64(len(l.Scales)), tensor.I8)
		if err != nil {
			return err
		}
		for i := range zeros {
			zeros[i] = l.zeroAt(i) ^ 0x80
		}
	}
	return tensor.FromFloat32(scales, d, l.Scales)
}

func ctInt8Unpack(s Scheme, out, in int, src func(string) []byte) (*Linear, error) {
	if err := ctInt8Check(s, out, in); err != nil {
		return nil, err
	}
	weight, err := sized(src, "weight", elements(out, in), tensor.I8)
	if err != nil {
		return nil, err
	}
	scales, err := ctScales(s, out, in, src)
	if err != nil {
		return nil, err
	}
	groups := s.Groups(in)
	s.ScaleType = s.scaleType(tensor.BF16)
	l := &Linear{Scheme: s, Out: out, In: in, Codes: make([]uint8, out*in), Scales: make([]float32, out*groups)}
	if err := ctReadScales(l.Scales, s.ScaleType, scales); err != nil {
		return nil, err
	}
	flipSign(l.Codes, weight)
	zeros := src("weight_zero_point")
	if s.Sym || zeros == nil {
		return l, nil
	}
	if len(zeros) != len(l.Scales) && len(zeros) != 1 {
		return nil, safeio.Corruptf("tensor weight_zero_point has %d entries for %d scales", len(zeros), len(l.Scales))
	}
	l.Zeros = make([]float32, out*groups)
	for i := range l.Zeros {
		l.Zeros[i] = float32(zeros[i%len(zeros)] ^ 0x80)
	}
	l.dropCentredZeros()
	return l, nil
}

// flipSign converts between two's complement bytes and codes offset by 128.
func flipSign(dst, src []byte) {
	for i, b := range src {
		dst[i] = b ^ 0x80
	}
}
