package quant

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/container"
	"github.com/llmquant/quantize/formats/gguf"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/quant/grid/mixture"
)

// GGUFRecipe says what a GGUF file is made of.
type GGUFRecipe struct {
	Mixture         mixture.Options // file type and overrides; Copy only changes containers
	Plain           bool            // the file type is F32, F16 or BF16 and the source a checkpoint: a conversion
	Imatrix         *gguf.Imatrix   // importance of columns; nil for none
	ImatrixPath     string          // as recorded in the file
	AllowRequantize bool
	KeepSplit       bool
	// Transforms rewrite the blocks first, and Rounder replaces the reference searches (nil: KQuant). With either the file
	// is filled block by block with statistics of Options.Calib, and Imatrix serves what lies outside the blocks.
	Transforms []Transform
	Rounder    Rounder
	BF16       bool // as in Recipe
}

// GGUFPlan is the complete output of RunGGUF before any arithmetic.
type GGUFPlan struct {
	Out     *container.Plan
	Header  *gguf.Header
	Choices []mixture.Choice // parallel to Header.Tensors
	Notes   []Event
	Source  int64 // bytes of the source's tensors
	Disk    int64
	Memory  int64
	Work    float64 // estimated floating point operations of the block pipeline
	// Scratch and StatesOnDisk are those of Plan.
	Scratch      int64
	StatesOnDisk bool

	source *ggufSource
	blocks *Plan                // with transforms or error feedback: the view of the block pipeline
	places map[string]ggufPlace // checkpoint tensors in the file
}

// PlanGGUF chooses the type of every tensor and lays the file out. o.Out names the file.
func PlanGGUF(ctx context.Context, src formats.Checkpoint, r GGUFRecipe, o Options) (*GGUFPlan, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	meta := src.Meta()
	if meta.Quant != nil && meta.Kind != "gguf" {
		return nil, &safeio.Error{Op: "quantize", Path: meta.Path, Off: -1, Hint: "start from the original checkpoint",
			Err: safeio.Unsupportedf("the checkpoint is already quantized (%s)", meta.Quant.Method)}
	}
	plain := gguf.AutoType(src)
	if r.Plain {
		plain = r.Mixture.File.Base
	}
	s, err := openGGUFSource(src, plain)
	if err != nil {
		return nil, err
	}
	if s.file != nil && !r.AllowRequantize && !r.Mixture.Copy {
		if err := s.refuseRequantize(meta.Path); err != nil {
			return nil, err
		}
	}
	p := &GGUFPlan{source: s, Header: s.header}
	for _, t := range s.header.Tensors {
		p.Source += t.Bytes
	}
	if !r.Plain || s.file != nil {
		if err := p.choose(r, o.Strict); err != nil {
			return nil, safeio.WithPath(err, meta.Path)
		}
	} else {
		p.Choices = make([]mixture.Choice, len(p.Header.Tensors))
		for i, t := range p.Header.Tensors {
			p.Choices[i] = mixture.Choice{Type: t.Type, Wanted: t.Type, Reason: mixture.Base}
		}
	}
	p.Out, err = gguf.Plan(p.Header, gguf.PlanOptions{Name: filepath.Base(o.Out), MaxBytes: o.MaxShard, KeepSplit: r.KeepSplit})
	if err != nil {
		return nil, err
	}
	for _, f := range p.Out.Files {
		p.Disk += f.Size
	}
	p.Memory = p.memory(o)
	if r.blockwise() {
		if err := p.planBlocks(src, &r, &o); err != nil {
			return nil, safeio.WithPath(err, meta.Path)
		}
	}
	return p, checkMemory(p.Memory, r.blockwise(), &o)
}

// choose takes llama-quantize's decisions, the user's overrides first, and reports what did not fit.
func (p *GGUFPlan) choose(r GGUFRecipe, strict bool) error {
	ro := gguf.RequantizeOptions{FileType: r.Mixture.File.ID, KeepType: r.Mixture.Copy, KeepSplit: r.KeepSplit}
	if r.Imatrix != nil {
		facts := r.Imatrix.Facts(r.ImatrixPath)
		ro.Imatrix = &facts
	}
	a, err := mixture.ArchOf(&p.Header.KV)
	if err != nil {
		return err
	}
	p.Header = gguf.Requantize(p.Header, ro)
	tensors := make([]mixture.Tensor, len(p.Header.Tensors))
	for i, t := range p.Header.Tensors {
		tensors[i] = mixture.Tensor{Name: t.Name, NE: t.NE[:], Type: t.Type}
	}
	opts := r.Mixture
	opts.Imatrix = r.Imatrix != nil || r.blockwise()
	if p.Choices, err = mixture.Choose(a, tensors, opts); err != nil {
		return err
	}
	for i := range p.Choices {
		if err := p.settle(i, r, strict); err != nil {
			return err
		}
	}
	if r.Imatrix != nil {
		p.coverage(r.Imatrix)
	}
	return nil
}

// settle applies the choice for one tensor and notes fallbacks.
func (p *GGUFPlan) settle(i int, r GGUFRecipe, strict bool) error {
	t, c := &p.Header.Tensors[i], p.Choices[i]
	if c.Type != c.Wanted {
		wanted, _ := t.WithType(c.Wanted)
		got, _ := t.WithType(c.Type)
		text := fmt.Sprintf("rows of %d do not fit %s: %s instead, %d bytes", t.NE[0], c.Wanted, c.Type, got.Bytes)
		if wanted.Bytes > 0 {
			text += fmt.Sprintf(" (%d more)", got.Bytes-wanted.Bytes)
		}
		if strict {
			return &safeio.Error{Op: "choose type", Tensor: t.Name, Off: -1, Err: safeio.Unsupportedf("%s (--strict allows no fallback)", text)}
		}
		p.Notes = append(p.Notes, Event{Kind: EventFallback, Layer: -1, Tensor: t.Name, Message: text})
	}
	if mixture.NeedsImatrix(t.Name, c.Type, r.Mixture.File) && r.Imatrix == nil && !r.blockwise() && c.Reason != mixture.Kept {
		return &safeio.Error{Op: "choose type", Tensor: t.Name, Off: -1, Hint: "give --calib TEXT or --imatrix FILE",
			Err: safeio.Unsupportedf("%s at so few bits is useless without an importance matrix", c.Type)}
	}
	out, ok := t.WithType(c.Type)
	if !ok {
		return &safeio.Error{Op: "choose type", Tensor: t.Name, Off: -1, Err: safeio.Unsupportedf("rows of %d are no whole number of %s blocks", t.NE[0], c.Type)}
	}
	*t = out
	return nil
}

// coverage notes tensors without importance and entries without a tensor.
func (p *GGUFPlan) coverage(m *gguf.Imatrix) {
	var names []string
	for i, t := range p.Header.Tensors {
		if p.Choices[i].Reason != mixture.Kept && t.Type.DType() == tensor.Invalid {
			names = append(names, t.Name)
		}
	}
	missing, extra := m.Coverage(names)
	for _, n := range missing {
		p.Notes = append(p.Notes, Event{Kind: EventFinding, Layer: -1, Tensor: n, Message: "the importance matrix has no entry for it"})
	}
	if len(extra) > 0 {
		p.Notes = append(p.Notes, Event{Kind: EventFinding, Layer: -1, Count: int64(len(extra)),
			Message: fmt.Sprintf("%d entries of the importance matrix belong to no quantized tensor (%s first)", len(extra), extra[0])})
	}
}

// memory is what a run takes: a few chunks of rows, whatever the size of the model.
func (p *GGUFPlan) memory(o Options) int64 {
	const base = 24 << 20
	var widest int64
	for i := range p.Header.Tensors {
		widest = max(widest, p.Header.Tensors[i].NE[0]*4)
	}
	return base + 3*widest*chunkRows(widest/4, poolThreads(o.Threads))
}

// chunkRows is how many rows of cols numbers are in work at a time: about ggufChunk bytes of float32, and enough for every
// thread to have some tiles. Rows are independent, so it is no part of the result.
func chunkRows(cols int64, threads int) int64 {
	return max(ggufChunk/(4*max(cols, 1)), int64(threads)*2*tileRows(cols))
}

const ggufChunk = 8 << 20
