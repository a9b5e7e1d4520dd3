package quant

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/gguf"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/quant/grid/ggml"
)

// blockwise reports whether the recipe needs the blocks' own activations: transforms, or error feedback.
func (r *GGUFRecipe) blockwise() bool { return len(r.Transforms) > 0 || r.Rounder != nil }

// recipe is the block pipeline's view of the recipe; the allocation follows the GGUF plan.
func (r *GGUFRecipe) recipe(p *GGUFPlan) *Recipe {
	rounder := r.Rounder
	if rounder == nil {
		rounder = KQuant{}
	}
	return &Recipe{Method: rounder.Name(), Transforms: r.Transforms, Rounder: rounder, Allocation: p, BF16: r.BF16}
}

// Allocate implements Allocation for the linears, the head among them: the types that the mixture chose. What the file
// stores as plain floats is kept.
func (p *GGUFPlan) Allocate(tensors []Desc) ([]Choice, error) {
	choices := make([]Choice, len(tensors))
	for i, t := range tensors {
		at, ok := p.places[t.Info.Name]
		if !ok || t.Linear == nil || t.Role == arch.RoleRouter {
			continue
		}
		out := &p.Header.Tensors[at.tensor]
		if out.Type.DType() != tensor.Invalid {
			continue
		}
		choices[i] = Choice{Quantize: true, Scheme: packing.Scheme{Grid: out.Type.String()}}
	}
	return choices, nil
}

// ggufPlace says which matrix of which GGUF tensor a checkpoint tensor becomes.
type ggufPlace struct {
	tensor int // index into Header.Tensors
	matrix int
}

// findPlaces maps checkpoint tensors to their places in the file.
func (p *GGUFPlan) findPlaces() {
	p.places = map[string]ggufPlace{}
	for i := range p.Header.Tensors {
		m := p.source.maps[p.Header.Tensors[i].Name]
		for matrix, name := range m.Sources {
			p.places[name] = ggufPlace{i, matrix}
		}
	}
}

// ggufBlocks is the artifact of a GGUF file that is filled block by block.
type ggufBlocks struct {
	*ggufJob
	written map[int]bool // tensors that rounders fill
	early   int          // the embedding matrix where it is rounded before the blocks; -1: with the rest
}

// linear puts the rows of a finished weight where the file wants them: rotary rows of q and k interleaved, experts
// stacked.
func (g *ggufBlocks) linear(t *PlannedTensor, q *packing.Linear) error {
	at := g.plan.places[t.Info.Name]
	out := &g.plan.Header.Tensors[at.tensor]
	m := g.plan.source.maps[out.Name]
	if q.Out == 0 {
		return nil
	}
	rowBytes := len(q.Blocks) / q.Out
	ordered := make([]byte, len(q.Blocks))
	base := int64(at.matrix) * out.NE[1]
	for r := range q.Out {
		_, from := m.SourceRow(base + int64(r))
		copy(ordered[r*rowBytes:(r+1)*rowBytes], q.Blocks[from*int64(rowBytes):])
	}
	g.written[at.tensor] = true
	return g.out.Write(out.Name, base*int64(rowBytes), ordered)
}

// kept encodes the other tensors of the block from its weights as they are after the transforms.
func (g *ggufBlocks) kept(ctx context.Context, l *Layer) ([]TensorReport, error) {
	was := g.plan.source.src
	g.plan.source.src = layerSource{l: l, base: was}
	defer func() { g.plan.source.src = was }()
	var rows []TensorReport
	for _, i := range g.layerTensors(l.Index) {
		if g.written[i] {
			continue
		}
		row, err := g.tensor(ctx, i)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// layerTensors lists the file's tensors of a layer; -1: those outside the blocks.
func (g *ggufBlocks) layerTensors(layer int) (list []int) {
	for i := range g.plan.Header.Tensors {
		n, ok := gguf.BlockNumber(g.plan.Header.Tensors[i].Name)
		if !ok {
			n = -1
		}
		if n == layer && i != g.early {
			list = append(list, i)
		}
	}
	return list
}

func (g *ggufBlocks) names(layer int) (names []string) {
	for _, i := range g.layerTensors(layer) {
		names = append(names, g.plan.Header.Tensors[i].Name)
	}
	return names
}

// layerSource shows the tensors of a block as a transform left them, in float32.
type layerSource struct {
	l    *Layer
	base tensor.Source
}

func (s layerSource) Tensors() []tensor.Info { return s.base.Tensors() }

func (s layerSource) Lookup(name string) (tensor.Info, bool) {
	info, ok := s.base.Lookup(name)
	if ok && s.l.changed[name] {
		info.DType = tensor.F32
	}
	return info, ok
}

func (s layerSource) ReadTensor(name string, dst []byte, off int64) error {
	if !s.l.changed[name] {
		return s.base.ReadTensor(name, dst, off)
	}
	values := s.l.values(name)
	if off < 0 || off%4 != 0 || len(dst)%4 != 0 || off+int64(len(dst)) > 4*int64(len(values)) {
		return safeio.Corruptf("bytes %d … %d of %s are not whole numbers of it", off, off+int64(len(dst)), name)
	}
	for i, v := range values[off/4:][:len(dst)/4] {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
	}
	return nil
}

// runBlocks fills the file block by block: statistics, transforms, rounding. Everything outside the blocks follows.
func (g *ggufJob) runBlocks(ctx context.Context) error {
	sink := &ggufBlocks{ggufJob: g, written: map[int]bool{}}
	sink.early = sink.earlyEmbedding()
	g.sink = sink
	if err := sink.roundEmbedding(ctx); err != nil {
		return err
	}
	if err := g.blocks(ctx); err != nil {
		return err
	}
	if g.out.Done(outsideUnit) {
		return nil
	}
	var rows []TensorReport
	if g.headCalibrated() {
		l, row, err := g.roundHead(ctx, g.stream)
		if err != nil {
			return err
		}
		rows = append(rows, row)
		more, err := sink.kept(ctx, l)
		if err != nil {
			return err
		}
		return g.finish(outsideUnit, -1, append(rows, more...))
	}
	for _, i := range sink.layerTensors(-1) {
		row, err := g.tensor(ctx, i)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	return g.finish(outsideUnit, -1, rows)
}

// planBlocks completes a GGUF plan for the block pipeline.
func (p *GGUFPlan) planBlocks(src formats.Checkpoint, r *GGUFRecipe, o *Options) error {
	if p.source.model == nil {
		return safeio.Unsupportedf("transforms and error feedback start from a Hugging Face checkpoint, not from a GGUF file: convert it first")
	}
	p.findPlaces()
	if err := checkCalibration(o, p.source.model); err != nil {
		return err
	}
	for i := range p.Header.Tensors {
		t := &p.Header.Tensors[i]
		if grid, ok := ggml.ByID(uint32(t.Type)); ok && t.Type.DType() == tensor.Invalid && !grid.CanEncode() {
			return &safeio.Error{Op: "plan", Tensor: t.Name, Off: -1, Err: safeio.Unsupportedf("%s cannot be written", t.Type)}
		}
	}
	recipe := r.recipe(p)
	descs := Describe(p.source.model, src)
	choices, err := p.Allocate(descs)
	if err != nil {
		return err
	}
	p.blocks = &Plan{Model: p.source.model}
	for i, d := range descs {
		t := PlannedTensor{Desc: d, Choice: choices[i], Stored: []tensor.Info{d.Info}}
		if !t.Quantize {
			t.DType = tensor.F32 // norms are stored so; nothing has to be snapped to 16 bits
		}
		p.blocks.Tensors = append(p.blocks.Tensors, t)
	}
	p.blocks.fit(recipe, o, p.Memory)
	p.Memory, p.Scratch, p.StatesOnDisk = p.blocks.Memory, p.blocks.Scratch, p.blocks.StatesOnDisk
	p.Work = workEstimate(p.blocks, recipe, o)
	return nil
}
