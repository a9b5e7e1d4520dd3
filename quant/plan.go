package quant

import (
	"fmt"
	"strings"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/container"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// Plan is the whole output before any arithmetic: every tensor's number format and bytes, every file's offsets.
type Plan struct {
	Model   *arch.Model
	Layout  *packing.Layout // nil when everything stays dense
	Tensors []PlannedTensor // in output order, which is the source's storage order
	Out     *container.Plan
	Notes   []Event // shapes that fell back, tensors unknown to the family
	Engines []EngineNote
	Memory  int64 // estimated peak of resident bytes
	Scratch int64 // bytes on disk beside the artifact while the run lasts
	// StatesOnDisk says that the hidden states do not fit into the memory that the run may use. It changes no result byte.
	StatesOnDisk bool
	// Replay is the part of Memory that spares computing activations twice. It changes no result byte.
	Replay int64
	Work   float64 // estimated floating point operations, 0 when only bytes are moved
	Disk   int64   // bytes the artifact occupies
	Source int64   // bytes of the source's tensors
	index  []byte  // content of the shard index, nil for one file
}

// PlannedTensor is one tensor of the source and what replaces it.
type PlannedTensor struct {
	Desc
	Choice
	Stored []tensor.Info // the tensors written in its place
}

// Bytes is what the tensor occupies in the artifact.
func (p *PlannedTensor) Bytes() int64 {
	var sum int64
	for _, t := range p.Stored {
		n, _ := t.Bytes()
		sum += n
	}
	return sum
}

// Grid is the short name of the tensor's number format for tables: "int4 g128 asym", "bf16".
func (p *PlannedTensor) Grid() string {
	if !p.Quantize {
		d := p.DType
		if d == tensor.Invalid {
			d = p.Info.DType
		}
		return strings.ToLower(d.String())
	}
	return SchemeName(p.Scheme)
}

// SchemeName spells a scheme as tables and logs do.
func SchemeName(s packing.Scheme) string {
	if s.Mix != "" {
		return s.Grid + " " + s.Mix
	}
	if s.Grid != "int" {
		return s.Grid
	}
	group, sym := fmt.Sprintf("g%d", s.GroupSize), "asym"
	if s.GroupSize <= 0 {
		group = "per-row"
	}
	if s.Sym {
		sym = "sym"
	}
	return fmt.Sprintf("int%d %s %s", s.Bits, group, sym)
}

// planTensors chooses every tensor's format, applies the layout's shape rules and lists what will be stored.
func planTensors(m *arch.Model, src tensor.Source, config []byte, r *Recipe, strict bool) (*Plan, error) {
	p := &Plan{Model: m}
	if r.Layout != "" {
		layout, ok := packing.Lookup(r.Layout)
		if !ok || layout.Pack == nil {
			return nil, safeio.Unsupportedf("layout %q cannot be written", r.Layout)
		}
		p.Layout = layout
	}
	descs := Describe(m, src)
	if head, ok := tiedHead(m, src); ok && p.isEXL2() {
		descs = append(descs, head)
	}
	choices, err := r.Allocation.Allocate(descs)
	if err != nil {
		return nil, err
	}
	for i, d := range descs {
		if _, stored := src.Lookup(d.Info.Name); stored || choices[i].Quantize { // a tied head that stays dense is the embedding
			p.Tensors = append(p.Tensors, PlannedTensor{Desc: d, Choice: choices[i]})
		}
	}
	scale := p.scaleType()
	for i := range p.Tensors {
		if t := &p.Tensors[i]; t.Quantize && t.Scheme.Grid == "int" && t.Scheme.ScaleType == tensor.Invalid {
			t.Scheme.ScaleType = scale
		}
	}
	if err := p.checkShapes(strict); err != nil {
		return nil, err
	}
	if p.isEXL2() {
		if err := p.settleEXL2(config); err != nil {
			return nil, err
		}
	}
	for _, name := range m.Unknown {
		p.Notes = append(p.Notes, Event{Kind: EventFinding, Layer: -1, Tensor: name, Message: "unknown to the family, copied unchanged"})
	}
	for i := range p.Tensors {
		p.store(&p.Tensors[i])
	}
	if p.isEXL2() {
		p.padBiases()
	}
	return p, nil
}

// checkShapes keeps every linear that the layout cannot hold, together with the linears that engines fuse with it,
// and notes all of them; under strict it is an error that names all of them.
func (p *Plan) checkShapes(strict bool) error {
	broken := map[string]string{} // fuse key -> reason
	var names []string
	for i := range p.Tensors {
		t := &p.Tensors[i]
		if !t.Quantize {
			continue
		}
		if err := p.check(t); err != nil {
			broken[p.fuseKey(t)] = fmt.Sprintf("%s: %v", t.Module(), err)
			names = append(names, broken[p.fuseKey(t)])
		}
	}
	if len(broken) == 0 {
		return nil
	}
	if strict {
		return safeio.Unsupportedf("%d linears cannot be quantized with these settings:\n  %s", len(names), strings.Join(names, "\n  "))
	}
	for i := range p.Tensors {
		t := &p.Tensors[i]
		reason, bad := broken[p.fuseKey(t)]
		if !t.Quantize || !bad {
			continue
		}
		t.Choice = Choice{Reason: "kept: " + reason}
		p.Notes = append(p.Notes, Event{Kind: EventFallback, Layer: t.Layer, Tensor: t.Info.Name, Message: t.Reason})
	}
	return nil
}

// check asks the layout whether it can hold the tensor.
func (p *Plan) check(t *PlannedTensor) error {
	if p.Layout == nil {
		return fmt.Errorf("a dense artifact holds no quantized tensors")
	}
	return p.Layout.Check(t.Scheme, t.Linear.Out, t.Linear.In)
}

// fuseKey names the group of linears that t has to be quantized or kept with.
func (p *Plan) fuseKey(t *PlannedTensor) string {
	if p.isEXL2() {
		return mixedKey(t.Desc)
	}
	if group, ok := fusedWith[t.Role]; ok {
		return fmt.Sprintf("%d/%d/%s", t.Layer, t.Expert, group)
	}
	return t.Info.Name
}

// store lists the tensors that will stand for t.
func (p *Plan) store(t *PlannedTensor) {
	if t.Quantize {
		t.Stored = p.Layout.Plan(t.Module(), t.Scheme, t.Linear.Out, t.Linear.In)
		return
	}
	info := t.Info
	if t.DType != tensor.Invalid {
		info.DType = t.DType
	}
	t.Stored = []tensor.Info{info}
}

// stored lists every output tensor in order.
func (p *Plan) stored() []tensor.Info {
	var all []tensor.Info
	for i := range p.Tensors {
		all = append(all, p.Tensors[i].Stored...)
	}
	return all
}

// Lookup finds the planned tensor with this source name.
func (p *Plan) lookup() map[string]*PlannedTensor {
	byName := make(map[string]*PlannedTensor, len(p.Tensors))
	for i := range p.Tensors {
		byName[p.Tensors[i].Info.Name] = &p.Tensors[i]
	}
	return byName
}
