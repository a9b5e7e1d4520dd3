package quant

import (
	"context"

	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// NewConvert changes the layout of a checkpoint without another rounding. layout "" decodes quantized linears. d is the
// element type of dense tensors, Invalid keeps what the source has (float32 for what was decoded, which loses nothing).
// dense is what formats.Dense returned, and what Run must be given.
func NewConvert(dense formats.Checkpoint, layout string, d tensor.DType) Recipe {
	r := Recipe{Method: "convert", Layout: layout, Allocation: Keep{DType: d}}
	if layout != "" {
		c := stored{source: dense, layout: layout, dtype: d}
		r.Rounder, r.Allocation = c, c
	}
	return r
}

// stored is the rounder and the allocation of a conversion: every linear keeps the codes it has.
type stored struct {
	source formats.Checkpoint
	layout string
	dtype  tensor.DType
}

// Name implements Rounder.
func (s stored) Name() string { return "stored codes" }

// Needs implements Rounder.
func (s stored) Needs() Need { return 0 }

// Allocate implements Allocation: linears that the source stores in a quantized form stay so.
func (s stored) Allocate(tensors []Desc) ([]Choice, error) {
	choices, err := Keep{DType: s.dtype}.Allocate(tensors)
	if err != nil {
		return nil, err
	}
	n := 0
	for i, t := range tensors {
		if _, ok := formats.Stored(s.source, t.Module()); !ok || t.Linear == nil {
			continue
		}
		// What a layout makes of the codes (symmetric or not, type of the scales) shows only in the codes, and a refusal
		// should come before anything is written.
		l, err := s.convert(t.Module())
		if err != nil {
			return nil, &safeio.Error{Op: "convert", Tensor: t.Info.Name, Off: -1, Err: err}
		}
		choices[i] = Choice{Quantize: true, Scheme: l.Scheme}
		n++
	}
	if n == 0 {
		return nil, safeio.Unsupportedf("nothing in the source is quantized: `quantize MODEL --method …` does that, convert only changes layouts")
	}
	return choices, nil
}

// Round implements Rounder.
func (s stored) Round(_ context.Context, m *Matrix, _ *Stats) (*packing.Linear, error) {
	return s.convert(m.Linear.Name)
}

func (s stored) convert(module string) (*packing.Linear, error) {
	l, err := formats.Unpacked(s.source, module)
	if err != nil {
		return nil, err
	}
	to, ok := packing.Lookup(s.layout)
	if !ok {
		return nil, safeio.Unsupportedf("there is no layout %q", s.layout)
	}
	return packing.Convert(l, to)
}
