package quant

import (
	"context"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
)

// Transform rewrites the weights of one block without changing what the block computes.
type Transform interface {
	// Name is the word used in recipes and reports ("awq").
	Name() string
	// Needs says what calibration must gather.
	Needs() Need
	// Apply rewrites l.Block in place and keeps l's statistics true for the rewritten weights.
	Apply(ctx context.Context, l *Layer) error
}

// Rounder turns one weight matrix into codes and parameters as they will be stored.
type Rounder interface {
	Name() string
	Needs() Need
	// Round quantizes m.W on the grid of m.Scheme. It must not keep m.W. stats is nil when Needs is 0.
	Round(ctx context.Context, m *Matrix, stats *Stats) (*packing.Linear, error)
}

// Matrix is one weight on its way to a rounder.
type Matrix struct {
	Linear *arch.Linear
	Scheme packing.Scheme
	W      []float32 // [Linear.Out, Linear.In], row-major
	// MinZero is the smallest zero point that the layout can store: GPTQ's first version cannot store 0.
	MinZero int
	// Positive keeps scales of symmetric groups positive, which AWQ's loaders expect; others multiply by any sign.
	Positive bool
	Layer    *Layer // the block it belongs to; nil outside blocks
}

// Recipe is a method: what is rewritten, how it is rounded, which number format each tensor gets.
type Recipe struct {
	Method     string // the preset's name, for reports
	Transforms []Transform
	Rounder    Rounder
	Allocation Allocation
	Layout     string // row of the layout table the artifact is written in ("awq", "gptq", "compressed-tensors", "" = dense)
	// Config completes the layout's description in reports and configs: the settings of the method that others read.
	Config map[string]any
	// BF16 makes calibration multiply activations and weights in bfloat16 instead of float32.
	BF16 bool
	GPTQ packing.GPTQMeta // recorded in GPTQ configs
	EXL2 packing.EXL2Meta // recorded in EXL2 configs
}

// Needs is everything the recipe's parts need.
func (r *Recipe) Needs() Need {
	var n Need
	for _, t := range r.Transforms {
		n |= t.Needs()
	}
	if r.Rounder != nil {
		n |= r.Rounder.Needs()
	}
	return n
}
