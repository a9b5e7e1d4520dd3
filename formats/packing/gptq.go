package packing

import (
	"encoding/binary"
	"fmt"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// gptq and gptqV2 are the two spellings of AutoGPTQ's layout:
//
//	qweight I32 [In·bits/32, Out] stream along the inputs, qzeros I32 [Groups, Out·bits/32] stream along the outputs,
//	scales F16 [Groups, Out], g_idx I32 [In]
//
// They differ in one number: checkpoint_format "gptq" stores zero points minus one, "gptq_v2" stores them as they are.
var (
	gptq   = gptqLayout("gptq", "AutoGPTQ: 2, 3, 4 or 8 bits, zero points stored minus one; symmetric 4 and 8 bits load everywhere", 1)
	gptqV2 = gptqLayout("gptq_v2", "GPTQModel's gptq_v2: as gptq, zero points stored as they are", 0)
)

func gptqLayout(name, doc string, bias uint8) Layout {
	return Layout{
		Name:  name,
		Doc:   doc,
		Check: gptqCheck,
		Plan:  gptqPlan,
		Pack:  func(l *Linear, dst func(string) []byte) error { return gptqPack(l, bias, dst) },
		Unpack: func(s Scheme, out, in int, src func(string) []byte) (*Linear, error) {
			return gptqUnpack(s, out, in, bias, src)
		},
		detect:     detectGPTQ(name),
		config:     gptqConfig(name),
		sideConfig: "quantize_config.json",
		valid:      func(l *Linear) error { return gptqValid(l, bias) },
		adapt:      adaptGPTQ(bias),
	}
}

// gptqCheck asks for multiples of 32 on both sides: the original kernels and AutoGPTQ's shape formula do.
func gptqCheck(s Scheme, out, in int) error {
	if err := checkInt(s, out, in, 2, 3, 4, 8); err != nil {
		return err
	}
	if err := checkMultiple("output columns", out, 32); err != nil {
		return err
	}
	return checkMultiple("input columns", in, 32)
}

func gptqPlan(base string, s Scheme, out, in int) []tensor.Info {
	groups := s.Groups(in)
	return []tensor.Info{
		{Name: base + ".g_idx", DType: tensor.I32, Shape: []int64{int64(in)}},
		{Name: base + ".qweight", DType: tensor.I32, Shape: []int64{int64(streamWords(in, s.Bits)), int64(out)}},
		{Name: base + ".qzeros", DType: tensor.I32, Shape: []int64{int64(groups), int64(streamWords(out, s.Bits))}},
		{Name: base + ".scales", DType: s.scaleType(tensor.F16), Shape: []int64{int64(groups), int64(out)}},
	}
}

func gptqValid(l *Linear, bias uint8) error {
	if err := gptqCheck(l.Scheme, l.Out, l.In); err != nil {
		return err
	}
	if err := checkHalf(l); err != nil {
		return err
	}
	return gptqCheckZeros(l, bias, l.Groups(l.In))
}

func gptqPack(l *Linear, bias uint8, dst func(string) []byte) error {
	if err := gptqValid(l, bias); err != nil {
		return err
	}
	groups := l.Groups(l.In)
	t, err := gptqTensors(l.Scheme, l.Out, l.In, dst)
	if err != nil {
		return err
	}
	gIdx, err := sized(dst, "g_idx", int64(l.In), tensor.I32)
	if err != nil {
		return err
	}
	for n := range l.Out {
		row := l.Codes[n*l.In : (n+1)*l.In]
		putStream(strided{t.qweight, n, l.Out}, l.In, l.Bits, func(k int) uint8 { return row[k] })
	}
	zeroWords := streamWords(l.Out, l.Bits)
	for j := range groups {
		putStream(strided{t.qzeros, j * zeroWords, 1}, l.Out, l.Bits, func(n int) uint8 { return l.zeroAt(n*groups+j) - bias })
	}
	for k := range l.In {
		binary.LittleEndian.PutUint32(gIdx[4*k:], uint32(l.group(k)))
	}
	return putScales(t.scales, tensor.F16, l.Scales, l.Out, groups)
}

// gptqCheckZeros refuses what readers of the layout would not understand.
func gptqCheckZeros(l *Linear, bias uint8, groups int) error {
	for i := range l.Zeros {
		z := l.zeroAt(i)
		if z < bias {
			return safeio.Unsupportedf("zero point 0 of row %d, group %d cannot be stored minus one; write gptq_v2", i/groups, i%groups)
		}
		if l.Sym && z != 1<<(l.Bits-1) {
			return safeio.Corruptf("zero point %d of row %d, group %d in a symmetric weight", z, i/groups, i%groups)
		}
	}
	return nil
}

// group returns the group of column k.
func (l *Linear) group(k int) int {
	if l.GIdx != nil {
		return int(l.GIdx[k])
	}
	if l.GroupSize <= 0 {
		return 0
	}
	return k / l.GroupSize
}

func gptqUnpack(s Scheme, out, in int, bias uint8, src func(string) []byte) (*Linear, error) {
	if err := gptqCheck(s, out, in); err != nil {
		return nil, err
	}
	t, err := gptqTensors(s, out, in, src)
	if err != nil {
		return nil, err
	}
	groups := s.Groups(in)
	s.ScaleType = s.scaleType(tensor.F16)
	l := &Linear{Scheme: s, Out: out, In: in, Codes: make([]uint8, out*in)}
	if l.Scales, err = getScales(t.scales, s.ScaleType, out, groups); err != nil {
		return nil, err
	}
	if l.GIdx, err = readGIdx(src, "g_idx", in, groups); err != nil {
		return nil, err
	}
	l.dropPlainGIdx()
	for n := range out {
		row := l.Codes[n*in : (n+1)*in]
		getStream(strided{t.qweight, n, out}, in, s.Bits, func(k int, q uint8) { row[k] = q })
	}
	l.Zeros = make([]float32, out*groups)
	mask, zeroWords := uint8(1<<s.Bits-1), streamWords(out, s.Bits)
	for j := range groups {
		// All ones minus one is a writer's zero point 0: the sum is taken modulo the field.
		getStream(strided{t.qzeros, j * zeroWords, 1}, out, s.Bits, func(n int, z uint8) { l.Zeros[n*groups+j] = float32((z + bias) & mask) })
	}
	if s.Sym {
		l.trustSymmetry(bias)
	}
	l.dropCentredZeros()
	return l, nil
}

// trustSymmetry replaces the zero points of a checkpoint that calls itself symmetric by the centre, as servers do
// (they never read them), and notes it when the fields say neither the centre nor the centre of the other version:
// published files exist that say "gptq" and store eights (vLLM issue 38966).
func (l *Linear) trustSymmetry(bias uint8) {
	mid := float32(int(1) << (l.Bits - 1))
	other := mid + 1 - 2*float32(1-bias) // the centre as the other checkpoint_format would have stored it
	strange, swapped := 0, 0
	for _, z := range l.Zeros {
		switch z {
		case mid:
		case other:
			swapped++
		default:
			strange++
		}
	}
	if swapped > 0 {
		l.Notes = append(l.Notes, "zero points are stored as the other checkpoint_format would; the config says symmetric, so they are taken as centred")
	}
	if strange > 0 {
		l.Notes = append(l.Notes, fmt.Sprintf("%d of %d zero points are not centred although the config says symmetric; ignored as servers do", strange, len(l.Zeros)))
	}
	l.Zeros = nil
}

type gptqStored struct{ qweight, qzeros, scales []byte }

func gptqTensors(s Scheme, out, in int, get func(string) []byte) (t gptqStored, err error) {
	groups := s.Groups(in)
	if t.qweight, err = sized(get, "qweight", elements(streamWords(in, s.Bits), out), tensor.I32); err != nil {
		return t, err
	}
	if t.qzeros, err = sized(get, "qzeros", elements(groups, streamWords(out, s.Bits)), tensor.I32); err != nil {
		return t, err
	}
	t.scales, err = sized(get, "scales", elements(groups, out), s.scaleType(tensor.F16))
	return t, err
}

// readGIdx reads an optional group index; nil when the artifact has none.
func readGIdx(src func(string) []byte, suffix string, in, groups int) ([]int32, error) {
	if src(suffix) == nil {
		return nil, nil
	}
	b, err := sized(src, suffix, int64(in), tensor.I32)
	if err != nil {
		return nil, err
	}
	idx := make([]int32, in)
	for k := range idx {
		idx[k] = int32(binary.LittleEndian.Uint32(b[4*k:]))
	}
	return idx, checkGIdx(idx, groups)
}
