package packing

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// detectEXL2 recognises the layout by its tensors alone, as the loader does: no config has to say so. The shape is the
// stored one: outputs are padded, and Cropped takes the padding off. The groups are read from q_groups.
func detectEXL2(_ *Config, m Module) (f Found, found bool, err error) {
	words, out, _, found, err := m.matrix("q_weight", tensor.I32)
	if !found || err != nil {
		return f, false, err
	}
	invperm, ok := m.Info("q_invperm")
	if !ok || invperm.DType != tensor.I32 || len(invperm.Shape) != 1 || invperm.Shape[0] < 1 || invperm.Shape[0] > exl2MaxIn {
		return f, false, safeio.Corruptf("tensor q_invperm is missing, or no list of at most %d I32", exl2MaxIn)
	}
	if t, ok := m.Info("q_groups"); !ok || t.DType != tensor.I16 || len(t.Shape) != 1 || t.Shape[0] > 2*exl2MaxIn/exl2Unit {
		return f, false, safeio.Corruptf("tensor q_groups is missing, or no list of I16")
	}
	if t, ok := m.Info("q_scale"); !ok || t.DType != tensor.I32 || len(t.Shape) != 2 || t.Shape[1] != int64(out/8) || out%exl2Unit != 0 {
		return f, false, safeio.Corruptf("tensor q_scale is missing, or its columns are not %d / 8", out)
	}
	if m.Read == nil {
		return f, false, safeio.Unsupportedf("the groups cannot be told without q_groups")
	}
	q, err := m.Read("q_groups")
	if err != nil {
		return f, false, err
	}
	groups, err := readEXL2Groups(int16s(q), words, int(invperm.Shape[0]))
	if err != nil {
		return f, false, err
	}
	f.Scheme = Scheme{Grid: "exl2", Mix: EXL2Mix(groups)}
	f.Out, f.In = out, int(invperm.Shape[0])
	return f, true, nil
}

// Cropped is f for a model whose linear has out outputs: layouts that pad outputs store more than it has.
func (f Found) Cropped(out int) (Found, error) {
	if out == f.Out {
		return f, nil
	}
	if f.Scheme.Grid != "exl2" || out < 1 || exl2Pad(out) != f.Out {
		return f, safeio.Corruptf("%d outputs are stored where the model has %d", f.Out, out)
	}
	f.Out = out
	return f, nil
}

// EXL2Meta is what quantization_config records about an EXL2 artifact. Loaders check none of it.
type EXL2Meta struct {
	Bits     float64 // the target, in bits per weight of the decoder's linears
	HeadBits int     // 16: the head is dense
	Rows     int     // calibration windows
	Length   int     // tokens of one
	Dataset  string  // file name of the calibration text
}

func exl2Config(o ConfigOptions) (any, error) {
	if math.IsNaN(o.EXL2.Bits) || math.IsInf(o.EXL2.Bits, 0) {
		return nil, safeio.Unsupportedf("%v bits per weight", o.EXL2.Bits)
	}
	dataset := o.EXL2.Dataset
	if dataset == "" {
		dataset = "(default)" // how the original says that no file was named
	}
	calibration, err := kv("rows", o.EXL2.Rows, "length", o.EXL2.Length, "dataset", dataset)
	if err != nil {
		return nil, err
	}
	bits := strconv.FormatFloat(o.EXL2.Bits, 'f', -1, 64)
	if !strings.Contains(bits, ".") {
		bits += ".0" // always a float, as from Python
	}
	return kv("quant_method", "exl2", "version", exl2Release, "bits", json.Number(bits), "head_bits", o.EXL2.HeadBits, "calibration", calibration)
}
