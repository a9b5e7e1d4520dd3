package quant

import (
	"strings"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/tensor"
)

// Describe lists every tensor of the source with its role in the model, in storage order.
func Describe(m *arch.Model, src tensor.Source) []Desc {
	known := roles(m)
	infos := src.Tensors()
	descs := make([]Desc, len(infos))
	for i, info := range infos {
		d, ok := known[info.Name]
		if !ok {
			d = Desc{Role: arch.RoleUnknown, Layer: -1, Expert: -1}
		}
		d.Info = info
		descs[i] = d
	}
	return descs
}

// roles maps tensor names to what the model uses them for.
func roles(m *arch.Model) map[string]Desc {
	known := map[string]Desc{}
	add := func(name string, role arch.Role, layer int) {
		if name != "" {
			known[name] = Desc{Role: role, Layer: layer, Expert: -1}
		}
	}
	if m.Head != m.Embed {
		add(m.Head, arch.RoleHead, -1)
		known[m.Head] = Desc{Role: arch.RoleHead, Layer: -1, Expert: -1, Linear: &arch.Linear{
			Name: strings.TrimSuffix(m.Head, ".weight"), Role: arch.RoleHead, Out: m.Vocab, In: m.Hidden, Expert: -1}}
	}
	add(m.Embed, arch.RoleEmbed, -1)
	add(m.FinalNorm, arch.RoleNorm, -1)
	for i := range m.Blocks {
		b := &m.Blocks[i]
		for _, norm := range []string{b.AttnNorm, b.MLPNorm, b.QNorm, b.KNorm} {
			add(norm, arch.RoleNorm, b.Index)
		}
		linears := b.Linears()
		if b.MoE != nil {
			linears = append(linears, &b.MoE.Router)
		}
		for _, l := range linears {
			known[l.Weight()] = Desc{Role: l.Role, Layer: b.Index, Expert: l.Expert, Linear: l}
			if l.Bias {
				add(l.Name+".bias", arch.RoleBias, b.Index)
			}
		}
	}
	return known
}

// fusedWith names the group of linears that serving engines merge into one matrix: its members share one scheme or
// are all kept.
var fusedWith = map[arch.Role]string{
	arch.RoleQ: "qkv", arch.RoleK: "qkv", arch.RoleV: "qkv",
	arch.RoleGate: "gate_up", arch.RoleUp: "gate_up",
}
