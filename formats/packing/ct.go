package packing

import (
	"encoding/binary"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// compressedTensors is compressed-tensors' "pack-quantized" layout of weight-only integers:
//
//	weight_packed I32 [Out, ⌈In·bits/32⌉] stream along the inputs, weight_scale [Out, Groups] in the model's dtype,
//	weight_shape I64 [2], and when asymmetric weight_zero_point I32 [⌈Out·bits/32⌉, Groups], a stream along the *rows*
//
// The library thinks in signed codes q − 2^(bits-1); the stored fields are the unsigned ones, so nothing is added here.
var compressedTensors = Layout{
	Name:   "compressed-tensors",
	Doc:    "compressed-tensors pack-quantized: 2, 3, 4 or 8 bits, symmetric or not, groups or channels",
	Check:  ctCheck,
	Plan:   ctPlan,
	Pack:   ctPack,
	Unpack: ctUnpack,
	valid:  ctValid,
	detect: detectCT("pack-quantized", "weight_packed", tensor.I32),
	config: ctConfig("pack-quantized"),
	adapt:  adaptCT,
}

func ctCheck(s Scheme, out, in int) error { return checkInt(s, out, in, 2, 3, 4, 8) }

func ctPlan(base string, s Scheme, out, in int) []tensor.Info {
	groups := int64(s.Groups(in))
	plan := []tensor.Info{
		{Name: base + ".weight_packed", DType: tensor.I32, Shape: []int64{int64(out), int64(streamWords(in, s.Bits))}},
		{Name: base + ".weight_scale", DType: s.scaleType(tensor.BF16), Shape: []int64{int64(out), groups}},
		{Name: base + ".weight_shape", DType: tensor.I64, Shape: []int64{2}},
	}
	if !s.Sym {
		plan = append(plan, tensor.Info{
			Name: base + ".weight_zero_point", DType: tensor.I32, Shape: []int64{int64(streamWords(out, s.Bits)), groups},
		})
	}
	return plan
}

func ctValid(l *Linear) error {
	if err := ctCheck(l.Scheme, l.Out, l.In); err != nil {
		return err
	}
	return ctValidNumbers(l)
}

func ctPack(l *Linear, dst func(string) []byte) error {
	if err := ctValid(l); err != nil {
		return err
	}
	d := l.scaleType(tensor.BF16)
	packed, scales, err := ctTensors(l.Scheme, l.Out, l.In, dst)
	if err != nil {
		return err
	}
	shape, err := sized(dst, "weight_shape", 2, tensor.I64)
	if err != nil {
		return err
	}
	words := streamWords(l.In, l.Bits)
	for n := range l.Out {
		row := l.Codes[n*l.In : (n+1)*l.In]
		putStream(strided{packed, n * words, 1}, l.In, l.Bits, func(k int) uint8 { return row[k] })
	}
	binary.LittleEndian.PutUint64(shape, uint64(l.Out))
	binary.LittleEndian.PutUint64(shape[8:], uint64(l.In))
	if !l.Sym {
		if err := ctPackZeros(l, dst); err != nil {
			return err
		}
	}
	return tensor.FromFloat32(scales, d, l.Scales)
}

// ctValidNumbers is what both integer layouts ask of the numbers.
func ctValidNumbers(l *Linear) error {
	if err := checkLinear(l, l.scaleType(tensor.BF16)); err != nil {
		return err
	}
	if err := l.needNaturalOrder(); err != nil {
		return err
	}
	return l.needCentredIfSym()
}

func ctPackZeros(l *Linear, dst func(string) []byte) error {
	groups := l.Groups(l.In)
	zeros, err := sized(dst, "weight_zero_point", elements(streamWords(l.Out, l.Bits), groups), tensor.I32)
	if err != nil {
		return err
	}
	for j := range groups {
		putStream(strided{zeros, j, groups}, l.Out, l.Bits, func(n int) uint8 { return l.zeroAt(n*groups + j) })
	}
	return nil
}

// needCentredIfSym refuses a zero point that the symmetric form has no place for.
func (l *Linear) needCentredIfSym() error {
	if !l.Sym {
		return nil
	}
	for i := range l.Zeros {
		if z := l.zeroAt(i); z != 1<<(l.Bits-1) {
			return safeio.Corruptf("zero point %d at entry %d of a symmetric weight", z, i)
		}
	}
	return nil
}

func ctUnpack(s Scheme, out, in int, src func(string) []byte) (*Linear, error) {
	if err := ctCheck(s, out, in); err != nil {
		return nil, err
	}
	if shape := src("weight_shape"); len(shape) == 16 {
		n, k := binary.LittleEndian.Uint64(shape), binary.LittleEndian.Uint64(shape[8:])
		if n != uint64(out) || k != uint64(in) {
			return nil, safeio.Corruptf("weight_shape says %d × %d, the tensors %d × %d", n, k, out, in)
		}
	}
	packed, scales, err := ctTensors(s, out, in, src)
	if err != nil {
		return nil, err
	}
	groups, words := s.Groups(in), streamWords(in, s.Bits)
	s.ScaleType = s.scaleType(tensor.BF16)
	l := &Linear{Scheme: s, Out: out, In: in, Codes: make([]uint8, out*in), Scales: make([]float32, out*groups)}
	if err := ctReadScales(l.Scales, s.ScaleType, scales); err != nil {
		return nil, err
	}
	if l.GIdx, err = readGIdx(src, "weight_g_idx", in, groups); err != nil {
		return nil, err
	}
	l.dropPlainGIdx()
	for n := range out {
		row := l.Codes[n*in : (n+1)*in]
		getStream(strided{packed, n * words, 1}, in, s.Bits, func(k int, q uint8) { row[k] = q })
	}
	if s.Sym {
		return l, nil
	}
	zeros, err := sized(src, "weight_zero_point", elements(streamWords(out, s.Bits), groups), tensor.I32)
	if err != nil {
		return nil, err
	}
	l.Zeros = make([]float32, out*groups)
	for j := range groups {
		getStream(strided{zeros, j, groups}, out, s.Bits, func(n int, z uint8) { l.Zeros[n*groups+j] = float32(z) })
	}
	l.dropCentredZeros()
	return l, nil
}

func ctTensors(s Scheme, out, in int, get func(string) []byte) (packed, scales []byte, err error) {
	if packed, err = sized(get, "weight_packed", elements(out, streamWords(in, s.Bits)), tensor.I32); err != nil {
		return nil, nil, err
	}
	scales, err = ctScales(s, out, in, get)
	return packed, scales, err
}

// ctScales returns the bytes of weight_scale: one value per row and group, or a single one for the whole tensor.
func ctScales(s Scheme, out, in int, get func(string) []byte) ([]byte, error) {
	d := s.scaleType(tensor.BF16)
	if b := get("weight_scale"); s.GroupSize < 0 && int64(len(b)) == d.Size() {
		return b, nil
	}
	return sized(get, "weight_scale", elements(out, s.Groups(in)), d)
}

// ctReadScales widens the scales, spreading a tensor-wide one over the rows.
func ctReadScales(dst []float32, d tensor.DType, src []byte) error {
	if int64(len(src)) == d.Size() {
		if err := tensor.ToFloat32(dst[:1], d, src); err != nil {
			return err
		}
		for i := range dst {
			dst[i] = dst[0]
		}
		return nil
	}
	return tensor.ToFloat32(dst, d, src)
}
