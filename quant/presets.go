package quant

import (
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/quant/gptq"
)

// AWQ is activation-aware quantization with the usual settings: asymmetric groups, AWQ's gemm layout.
func AWQ(bits, groupSize int) Recipe {
	return NewAWQ(packing.Scheme{Grid: "int", Bits: bits, GroupSize: groupSize}, "awq", AWQOptions{})
}

// NewAWQ is activation-aware scaling followed by searched rounding and descent, in a layout of choice.
func NewAWQ(s packing.Scheme, layout string, o AWQOptions) Recipe {
	return Recipe{Method: "awq", Transforms: []Transform{AWQScaling{o}}, Rounder: Nearest{Search: true, Passes: o.passes()},
		Allocation: Uniform{s}, Layout: layout, Config: map[string]any{"grid": o.grid(), "value_output": !o.NoValueO, "surrogate": o.Surrogate, "passes": o.passes()}}
}

// RTN is plain rounding: no calibration.
func RTN(bits, groupSize int) Recipe {
	return NewRTN(packing.Scheme{Grid: "int", Bits: bits, GroupSize: groupSize}, "awq")
}

// NewRTN is plain rounding in a layout of choice.
func NewRTN(s packing.Scheme, layout string) Recipe {
	return Recipe{Method: "rtn", Rounder: Nearest{}, Allocation: Uniform{s}, Layout: layout}
}

// NewGPTQ is error feedback through the Hessian with refinement, in a layout of choice, after any transforms.
func NewGPTQ(s packing.Scheme, layout string, o gptq.Options, transforms ...Transform) Recipe {
	return Recipe{Method: "gptq", Transforms: transforms, Rounder: GPTQ{Options: o, Search: true}, Allocation: Uniform{s}, Layout: layout,
		Config: map[string]any{"damp": o.Damp, "passes": o.Passes, "order": int(o.Order)},
		GPTQ:   packing.GPTQMeta{Damp: o.Damp, TrueSequential: true, StaticGroups: o.Order == gptq.ActOrder, DescAct: o.Order == gptq.Indexed}}
}

// NewCopy copies a checkpoint: re-sharded, verified, with a report.
func NewCopy() Recipe { return Recipe{Method: "none", Allocation: Keep{}} }
