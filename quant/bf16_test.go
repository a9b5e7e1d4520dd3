package quant

import (
	"testing"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/internal/testmodel"
	"github.com/llmquant/quantize/quant/gptq"
	"github.com/stretchr/testify/require"
)

// Calibration in bfloat16 gives other bytes, says so, and costs next to nothing: the errors at the outputs of the layers
// stay within some per cent of what float32 gives.
func TestCalibrationInBF16(t *testing.T) {
	wide := packing.Scheme{Grid: "int", Bits: 4, GroupSize: 32, Sym: true}
	narrow := NewGPTQ(wide, "gptq", gptq.Normal())
	narrow.Rounder = GPTQ{Options: gptq.Normal(), Search: true, Narrow: true}
	for name, r := range map[string]Recipe{
		"awq": NewAWQ(int4, "awq", AWQOptions{}), "gptq": NewGPTQ(wide, "gptq", gptq.Normal()), "narrow": narrow,
		"plain narrow": {Method: "gptq", Rounder: GPTQ{Options: gptq.Plain(), Search: true, NoShift: true, Narrow: true}, Allocation: Uniform{wide}, Layout: "gptq"},
		"plain":        {Method: "gptq", Rounder: GPTQ{Options: gptq.Plain(), Search: true, NoShift: true}, Allocation: Uniform{wide}, Layout: "gptq"},
	} {
		for model, c := range map[string]testmodel.Config{"llama": testmodel.Llama(), "qwen3moe": testmodel.Qwen3MoE()} {
			dir := writeModel(t, c)
			full, a := runTiny(t, dir, r, options(t))
			require.NotContains(t, full.Recipe.Settings, calibDType)
			r.BF16 = true
			half, b := runTiny(t, dir, r, options(t))
			r.BF16 = false
			require.Equal(t, "bf16", half.Recipe.Settings[calibDType])
			require.NotEqual(t, treeHash(t, a), treeHash(t, b), "%s %s", name, model)
			for i := range full.Tensors {
				if want := full.Tensors[i].OutError; want > 0 {
					require.InEpsilon(t, want, half.Tensors[i].OutError, 0.1, "%s %s %s", name, model, full.Tensors[i].Name)
				}
			}
		}
	}
}
