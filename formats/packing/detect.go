package packing

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// Module is what a checkpoint stores for one linear.
type Module struct {
	Name string                                       // "model.layers.0.self_attn.q_proj"
	Info func(suffix string) (tensor.Info, bool)      // tensor Name+"."+suffix
	Read func(suffix string) (data []byte, err error) // its bytes; asked for small tensors only, may be nil
}

// Found says how a module is stored.
type Found struct {
	Layout  *Layout
	Scheme  Scheme
	Out, In int
}

// Detect finds the layout, scheme and shape of a module. ok is false when none of the layouts of the table fits: the
// module is dense, or quantized in a way that another package reads.
func Detect(c *Config, m Module) (f Found, ok bool, err error) {
	if c == nil {
		c = &Config{} // layouts that need no config are recognised all the same
	}
	for _, l := range Layouts() {
		f, ok, err = l.detect(c, m)
		if err != nil {
			return Found{}, false, &safeio.Error{Op: "detect " + l.Name, Tensor: m.Name, Off: -1, Err: err}
		}
		if !ok {
			continue
		}
		f.Layout = &l
		if err := l.Check(f.Scheme, f.Out, f.In); err != nil {
			return Found{}, false, &safeio.Error{Op: "detect " + l.Name, Tensor: m.Name, Off: -1, Err: err}
		}
		return f, true, nil
	}
	return Found{}, false, nil
}

// Unpack reads a module that Detect found. src returns the bytes of a tensor, nil when it is absent.
func (f Found) Unpack(src func(suffix string) []byte) (*Linear, error) {
	return f.Layout.Unpack(f.Scheme, f.Out, f.In, src)
}

// matrix returns the two dimensions of a tensor of type d; found is false when it is absent or of another type.
func (m Module) matrix(suffix string, types ...tensor.DType) (rows, cols int, d tensor.DType, found bool, err error) {
	t, exists := m.Info(suffix)
	if !exists {
		return 0, 0, tensor.Invalid, false, nil
	}
	if !slices.Contains(types, t.DType) {
		return 0, 0, t.DType, false, nil
	}
	if len(t.Shape) != 2 || t.Shape[0] < 1 || t.Shape[1] < 1 || t.Shape[0] > maxDim || t.Shape[1] > maxDim {
		return 0, 0, t.DType, false, safeio.Corruptf("tensor %s has shape %v where a matrix is expected", suffix, t.Shape)
	}
	return int(t.Shape[0]), int(t.Shape[1]), t.DType, true, nil
}

// floatTypes are the types that scales come in.
var floatTypes = []tensor.DType{tensor.F16, tensor.BF16, tensor.F32}

// scales returns the dimensions and type of the scales, which every layout here has.
func (m Module) scales(suffix string) (rows, cols int, d tensor.DType, err error) {
	rows, cols, d, found, err := m.matrix(suffix, floatTypes...)
	if err == nil && !found {
		err = safeio.Corruptf("tensor %s is missing or not F16, BF16 or F32", suffix)
	}
	return rows, cols, d, err
}

// groupSize derives the columns per group from the number of groups that is stored. The config's number is preferred
// where it says the same, because it can tell a whole row (-1) from a group as long as the row.
func groupSize(stated, in, groups int) (int, error) {
	switch {
	case stated == -1 && groups == 1:
		return -1, nil
	case stated > 0 && (in+stated-1)/stated == groups:
		return stated, nil
	case in%groups == 0:
		return in / groups, nil
	}
	return 0, safeio.Corruptf("%d columns in %d groups (the config says %d columns per group)", in, groups, stated)
}

// detectAWQ recognises one of AutoAWQ's versions. K and N follow from qweight: whichever side is packed eight to a
// word.
func detectAWQ(version string, word tensor.DType, shape func(rows, cols int) (out, in int)) func(*Config, Module) (Found, bool, error) {
	return func(c *Config, m Module) (f Found, found bool, err error) {
		if !c.isAWQ(version) {
			return f, false, nil
		}
		rows, cols, _, found, err := m.matrix("qweight", word)
		if !found || err != nil {
			return f, false, err
		}
		f.Out, f.In = shape(rows, cols)
		sRows, _, d, err := m.scales("scales")
		if err != nil {
			return f, false, err
		}
		stated, groups := c.GroupSize, sRows
		if version != "gemm" { // the stored number of groups is padded
			if stated == 0 {
				return f, false, safeio.Corruptf("the config does not state a group size, and %s pads the scales", version)
			}
			groups = Scheme{GroupSize: stated}.Groups(f.In)
		}
		size, err := groupSize(stated, f.In, groups)
		f.Scheme = Scheme{Grid: "int", Bits: 4, GroupSize: size, Sym: c.Sym, ScaleType: d}
		return f, err == nil, err
	}
}

func (c *Config) isAWQ(version string) bool {
	if c.Method == "auto-round" {
		return version == "gemm" && strings.Contains(c.Version, "awq")
	}
	stated := strings.ReplaceAll(c.Version, "-", "_")
	if stated == "" || stated == "awq" {
		stated = "gemm"
	}
	return c.Method == "awq" && stated == version
}

// detectGPTQ recognises the two checkpoint formats. The bit width follows from qzeros, which holds one field per
// output.
func detectGPTQ(format string) func(*Config, Module) (Found, bool, error) {
	return func(c *Config, m Module) (f Found, found bool, err error) {
		if is, err := c.isGPTQ(format); !is || err != nil {
			return f, false, err
		}
		words, out, _, found, err := m.matrix("qweight", tensor.I32)
		if !found || err != nil {
			return f, false, err
		}
		groups, zeroWords, _, found, err := m.matrix("qzeros", tensor.I32)
		if !found || err != nil {
			return f, false, firstError(err, safeio.Corruptf("tensor qzeros is missing"))
		}
		_, _, d, err := m.scales("scales")
		if err != nil {
			return f, false, err
		}
		sym, stated, _, err := c.forModule(m.Name)
		if err != nil {
			return f, false, err
		}
		bits := zeroWords * 32 / out
		if bits < 1 || bits > 8 || streamWords(out, bits) != zeroWords || words*32%bits != 0 {
			return f, false, safeio.Corruptf("%d words of zero points for %d outputs are no bit width", zeroWords, out)
		}
		f.Out, f.In = out, words*32/bits
		size, err := groupSize(stated, f.In, groups)
		f.Scheme = Scheme{Grid: "int", Bits: bits, GroupSize: size, Sym: sym, ScaleType: d}
		return f, err == nil, err
	}
}

// isGPTQ reports whether the config announces this checkpoint format. AutoRound writes the v1 form under its own
// method name.
func (c *Config) isGPTQ(format string) (bool, error) {
	stated := c.Version
	switch {
	case c.Method == "auto-round" && strings.Contains(stated, "gptq"):
		stated = "gptq"
	case c.Method != "gptq":
		return false, nil
	case stated == "":
		stated = "gptq" // AutoGPTQ before the key existed
	}
	if stated != "gptq" && stated != "gptq_v2" {
		return false, safeio.Unsupportedf("checkpoint_format %q (gptq and gptq_v2 are read)", stated)
	}
	return stated == format, nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// detectCT recognises a layout of compressed-tensors by the format of the module's group.
func detectCT(format, weight string, word tensor.DType) func(*Config, Module) (Found, bool, error) {
	return func(c *Config, m Module) (f Found, found bool, err error) {
		if c.Method != "compressed-tensors" {
			return f, false, nil
		}
		rows, cols, _, found, err := m.matrix(weight, word)
		if !found || err != nil {
			return f, false, err
		}
		g, ok := c.group(m.Name)
		if !ok || g.format != format {
			return f, false, nil
		}
		if f.Scheme, err = ctScheme(g); err != nil {
			return f, false, err
		}
		t, exists := m.Info("weight_scale")
		if !exists || len(t.Shape) > 2 {
			return f, false, safeio.Corruptf("tensor weight_scale is missing or no matrix")
		}
		f.Scheme.ScaleType = t.DType
		f.Out, f.In = rows, cols
		if weight == "weight_packed" {
			f.In, err = ctColumns(m, f.Scheme, t, cols)
		}
		return f, err == nil, err
	}
}

// ctScheme reads the weight arguments of a group.
func ctScheme(g ctGroup) (Scheme, error) {
	s := Scheme{Grid: "int"}
	kind, err := safeio.Or(g.weights, "type", "int", safeio.Value.Str)
	if err != nil {
		return s, err
	}
	if kind != "int" {
		return s, safeio.Unsupportedf("%s weights in format %s", kind, g.format)
	}
	if s.Bits, err = smallInt(g.weights, "num_bits"); err != nil {
		return s, err
	}
	if s.Sym, err = safeio.Or(g.weights, "symmetric", true, safeio.Value.Bool); err != nil {
		return s, err
	}
	if s.GroupSize, err = smallInt(g.weights, "group_size"); err != nil {
		return s, err
	}
	if s.GroupSize == 0 { // channel and tensor strategies state null
		s.GroupSize = -1
	}
	return s, nil
}

// ctColumns finds the number of columns behind the padding of the packed rows.
func ctColumns(m Module, s Scheme, scale tensor.Info, words int) (int, error) {
	if m.Read != nil {
		if t, ok := m.Info("weight_shape"); ok && t.DType == tensor.I64 && t.SameShape(2) {
			b, err := m.Read("weight_shape")
			if err != nil || len(b) != 16 {
				return 0, firstError(err, safeio.Corruptf("tensor weight_shape has %d bytes", len(b)))
			}
			in := binary.LittleEndian.Uint64(b[8:])
			if in < 1 || in > maxDim {
				return 0, safeio.Corruptf("weight_shape says %d columns", in)
			}
			return int(in), nil
		}
	}
	if s.GroupSize > 0 && len(scale.Shape) == 2 && scale.Shape[1] > 0 && scale.Shape[1] <= maxDim {
		return int(scale.Shape[1]) * s.GroupSize, nil
	}
	if s.Bits < 1 || s.Bits > 8 || words*32%s.Bits != 0 {
		return 0, safeio.Corruptf("the number of columns cannot be told without weight_shape")
	}
	return words * 32 / s.Bits, nil
}
