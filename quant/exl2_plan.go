package quant

import (
	"context"
	"fmt"
	"strings"

	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// What ExLlamaV2's loader expects of a directory, beyond the linears' own layout (exllamav2: attn.py, mlp.py, moe_mlp.py,
// linear.py, ext_qmatrix.cpp):
//
//   - The four projections of an attention module are quantized or dense together, and so are all matrices of an MLP, in a
//     mixture of experts those of all experts.
//   - Everything dense is turned into F16 when it is loaded. Biases of quantized linears are not: they have to be F16, and
//     as long as the padded output.
//   - lm_head is looked for under its own name first, then as the embedding where config.json ties the two. So a tied
//     model has its head quantized beside the dense embedding.
//   - config.json names one architecture.

// isEXL2 reports whether the artifact follows ExLlamaV2's layout.
func (p *Plan) isEXL2() bool { return p.Layout != nil && p.Layout.Name == exl2Name }

// mixedWith names the module whose linears ExLlamaV2 wants quantized together.
var mixedWith = map[arch.Role]string{
	arch.RoleQ: "attention", arch.RoleK: "attention", arch.RoleV: "attention", arch.RoleO: "attention",
	arch.RoleGate: "MLP", arch.RoleUp: "MLP", arch.RoleDown: "MLP",
}

// mixedKey names the group of linears that t has to be quantized or kept with.
func mixedKey(d Desc) string {
	if group, ok := mixedWith[d.Role]; ok && d.Layer >= 0 {
		return fmt.Sprintf("the %s of layer %d", group, d.Layer)
	}
	return d.Info.Name
}

// tiedHead describes the matrix that ExLlamaV2 wants beside a tied embedding: the same values under the head's name.
func tiedHead(m *arch.Model, src tensor.Source) (d Desc, ok bool) {
	info, found := src.Lookup(m.Embed)
	if m.Head != m.Embed || !found {
		return d, false
	}
	info.Name = headName + ".weight"
	return Desc{Info: info, Role: arch.RoleHead, Layer: -1, Expert: -1,
		Linear: &arch.Linear{Name: headName, Role: arch.RoleHead, Out: m.Vocab, In: m.Hidden, Expert: -1}}, true
}

// settleEXL2 turns what stays dense into F16, and checks what ExLlamaV2 wants together.
func (p *Plan) settleEXL2(config []byte) error {
	if err := oneArchitecture(config); err != nil {
		return err
	}
	if err := p.checkMixed(); err != nil {
		return err
	}
	quantized := 0
	for i := range p.Tensors {
		t := &p.Tensors[i]
		switch {
		case t.Quantize:
			quantized++
		case t.Role != arch.RoleUnknown && t.Info.DType.IsFloat():
			t.DType = tensor.F16
		}
	}
	if quantized == 0 {
		return noneStorable()
	}
	return nil
}

// checkMixed refuses modules of which a part is quantized.
func (p *Plan) checkMixed() error {
	kept, mixed := map[string][]string{}, map[string]string{} // by group: the modules that stay dense; one that does not
	for i := range p.Tensors {
		t := &p.Tensors[i]
		switch key := mixedKey(t.Desc); {
		case mixedWith[t.Role] == "":
		case t.Quantize:
			mixed[key] = t.Module()
		default:
			kept[key] = append(kept[key], t.Module())
		}
	}
	for i := range p.Tensors { // in order of the tensors, so that the message is always the same
		key := mixedKey(p.Tensors[i].Desc)
		if one, ok := mixed[key]; ok && len(kept[key]) > 0 {
			return safeio.Unsupportedf("ExLlamaV2 wants %s quantized or dense as a whole: %s would be dense, %s quantized", key, listed(kept[key]), one)
		}
	}
	return nil
}

// listed joins names, the first few of many.
func listed(names []string) string {
	const most = 4
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// oneArchitecture checks the config's list of architectures.
func oneArchitecture(config []byte) error {
	v, err := safeio.ParseJSON(config)
	if err != nil {
		return err
	}
	if n := v.Get("architectures").Len(); n != 1 {
		return safeio.Unsupportedf("config.json names %d architectures, ExLlamaV2 wants one", n)
	}
	return nil
}

// padBiases makes the biases of quantized linears as long as the stored output.
func (p *Plan) padBiases() {
	byName := p.lookup()
	for i := range p.Tensors {
		t := &p.Tensors[i]
		module, isBias := strings.CutSuffix(t.Info.Name, ".bias")
		lin := byName[module+".weight"]
		if t.Role != arch.RoleBias || !isBias || lin == nil || !lin.Quantize || len(t.Stored) != 1 {
			continue
		}
		t.Stored[0].Shape = []int64{int64(packing.EXL2Outputs(lin.Linear.Out))}
	}
}

// checkHalf reads what an EXL2 directory will hold dense and refuses values beyond F16, before hours are spent on the
// rest. The linears that are quantized are checked when their turn comes.
func checkHalf(ctx context.Context, src formats.Checkpoint, m *arch.Model) error {
	for _, d := range Describe(m, src) {
		if d.Linear != nil && d.Role != arch.RoleRouter || d.Role == arch.RoleUnknown || !d.Info.DType.IsFloat() || d.Info.DType == tensor.F16 {
			continue
		}
		var bad, lost census
		total, _ := d.Info.Bytes()
		size := d.Info.DType.Size()
		step := int64(copyChunk) / size * size
		for off := int64(0); off < total; off += step {
			if err := ctx.Err(); err != nil {
				return err
			}
			buf := make([]byte, min(step, total-off))
			if err := src.ReadTensor(d.Info.Name, buf, off); err != nil {
				return err
			}
			bad.look(d.Info.DType, buf, off/size, true) // what is not finite is judged when it is written
			half, err := converted(buf, d.Info.DType, tensor.F16)
			if err != nil {
				return err
			}
			lost.look(tensor.F16, half, off/size, false)
		}
		if err := beyondHalf(lost, d.Info.Name, d.Info.Shape); err != nil {
			return safeio.WithPath(err, src.Meta().Path)
		}
	}
	return nil
}

// beyondHalf is the error for values that F16 cannot hold, nil when there are none.
func beyondHalf(lost census, name string, shape []int64) error {
	if lost.count == 0 {
		return nil
	}
	return &safeio.Error{Op: "convert", Tensor: name, Off: -1, Hint: "ExLlamaV2 computes in f16, so it cannot serve this model; choose another format",
		Err: safeio.Unsupportedf("%d values are beyond the range of f16, the first at %s", lost.count, lost.place(shape))}
}
