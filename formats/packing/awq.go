package packing

import (
	"encoding/binary"

	"github.com/llmquant/quantize/formats/tensor"
)

// awqOrder says which of eight neighbouring output columns sits in field i of a word (AutoAWQ's "gemm" version).
var awqOrder = [8]int{0, 2, 4, 6, 1, 3, 5, 7}

// awq is AutoAWQ's "gemm" layout, the one that vLLM, SGLang, TGI, LMDeploy and Transformers load:
//
//	qweight I32 [In, Out/8], qzeros I32 [Groups, Out/8], scales F16 [Groups, Out]
//
// Packed along the outputs, eight per word in awqOrder; the zero point is stored as it is.
var awq = Layout{
	Name:   "awq",
	Doc:    "AutoAWQ gemm: 4-bit groups with zero points, F16 scales, packed along the outputs",
	Check:  awqCheck,
	Plan:   awqPlan,
	Pack:   awqPack,
	Unpack: awqUnpack,
	valid:  awqValid,
	detect: detectAWQ("gemm", tensor.I32, func(rows, cols int) (out, in int) { return 8 * cols, rows }),
	config: awqConfig,
	adapt:  adaptAWQ,
}

func awqCheck(s Scheme, out, in int) error {
	if err := checkInt(s, out, in, 4); err != nil {
		return err
	}
	return checkMultiple("output columns", out, 8)
}

func awqPlan(base string, s Scheme, out, in int) []tensor.Info {
	groups := s.Groups(in)
	return []tensor.Info{
		{Name: base + ".qweight", DType: tensor.I32, Shape: []int64{int64(in), int64(out / 8)}},
		{Name: base + ".qzeros", DType: tensor.I32, Shape: []int64{int64(groups), int64(out / 8)}},
		{Name: base + ".scales", DType: s.scaleType(tensor.F16), Shape: []int64{int64(groups), int64(out)}},
	}
}

func awqValid(l *Linear) error {
	if err := awqCheck(l.Scheme, l.Out, l.In); err != nil {
		return err
	}
	if err := checkHalf(l); err != nil {
		return err
	}
	return l.needNaturalOrder()
}

func awqPack(l *Linear, dst func(string) []byte) error {
	if err := awqValid(l); err != nil {
		return err
	}
	groups := l.Groups(l.In)
	qweight, qzeros, scales, err := awqTensors(l.Scheme, l.Out, l.In, dst)
	if err != nil {
		return err
	}
	awqPutWords(qweight, l.Out, l.In, func(n, k int) uint8 { return l.Codes[n*l.In+k] })
	awqPutWords(qzeros, l.Out, groups, func(n, j int) uint8 { return l.zeroAt(n*groups + j) })
	return putScales(scales, tensor.F16, l.Scales, l.Out, groups)
}

func awqUnpack(s Scheme, out, in int, src func(string) []byte) (*Linear, error) {
	if err := awqCheck(s, out, in); err != nil {
		return nil, err
	}
	qweight, qzeros, scales, err := awqTensors(s, out, in, src)
	if err != nil {
		return nil, err
	}
	groups := s.Groups(in)
	s.ScaleType = s.scaleType(tensor.F16)
	l := &Linear{Scheme: s, Out: out, In: in, Codes: make([]uint8, out*in), Zeros: make([]float32, out*groups)}
	if l.Scales, err = getScales(scales, s.ScaleType, out, groups); err != nil {
		return nil, err
	}
	awqGetWords(qweight, out, in, func(n, k int, q uint8) { l.Codes[n*in+k] = q })
	awqGetWords(qzeros, out, groups, func(n, j int, z uint8) { l.Zeros[n*groups+j] = float32(z) })
	// The stored zero points decide, whatever the config says: AutoRound writes zero_point false with eights here.
	l.dropCentredZeros()
	return l, nil
}

func awqTensors(s Scheme, out, in int, get func(string) []byte) (qweight, qzeros, scales []byte, err error) {
	groups := s.Groups(in)
	if qweight, err = sized(get, "qweight", elements(in, out/8), tensor.I32); err != nil {
		return nil, nil, nil, err
	}
	if qzeros, err = sized(get, "qzeros", elements(groups, out/8), tensor.I32); err != nil {
		return nil, nil, nil, err
	}
	scales, err = sized(get, "scales", elements(groups, out), s.scaleType(tensor.F16))
	return qweight, qzeros, scales, err
}

// awqPutWords writes a transposed matrix of nibbles [cols, out/8] whose entry (n, k) is code(n, k).
func awqPutWords(dst []byte, out, cols int, code func(n, k int) uint8) {
	words := out / 8
	for k0 := 0; k0 < cols; k0 += codeTile {
		k1 := min(k0+codeTile, cols)
		for c := range words {
			for k := k0; k < k1; k++ {
				var w uint32
				for field, j := range awqOrder {
					w |= uint32(code(8*c+j, k)) << (4 * field)
				}
				binary.LittleEndian.PutUint32(dst[4*(k*words+c):], w)
			}
		}
	}
}

// awqGetWords reads what awqPutWords writes.
func awqGetWords(src []byte, out, cols int, set func(n, k int, code uint8)) {
	words := out / 8
	for k0 := 0; k0 < cols; k0 += codeTile {
		k1 := min(k0+codeTile, cols)
		for c := range words {
			for k := k0; k < k1; k++ {
				w := binary.LittleEndian.Uint32(src[4*(k*words+c):])
				for field, j := range awqOrder {
					set(8*c+j, k, uint8(w>>(4*field))&15)
				}
			}
		}
	}
}
