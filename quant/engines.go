package quant

import (
	"fmt"
	"slices"

	"github.com/llmquant/quantize/formats/packing"
)

// EngineRule is one row of what a serving engine loads. Rows come from running the engines (vLLM 0.32 on the CPU,
// Transformers 5.24) or from their loaders' code; Checked says which.
type EngineRule struct {
	Engine  string
	Version string
	Layout  string // row of the layout table; "" stands for dense safetensors
	Bits    []int  // empty: any
	Groups  []int  // -1: one group per row; empty: any
	Sym     string // "sym", "asym" or "both"
	OutMul  int    // outputs must be a multiple of this
	Checked string // "run": loaded and scored; "loader": read in the loader's code
	Note    string
	GIdx    bool // known to load groups formed in activation order (desc_act with g_idx)
}

var usualGroups = []int{32, 64, 128, -1}

// EngineRules is the table behind `quantize list engines`.
func EngineRules() []EngineRule {
	return []EngineRule{
		{"vllm", "0.32", "", nil, nil, "both", 1, "run", "dense bf16, f16, f32", false},
		{"vllm", "0.32", "awq", []int{4}, []int{32, 64, 128}, "both", 8, "run", "Marlin kernels where outputs are a multiple of 64 and inputs of 128", false},
		{"vllm", "0.32", "gptq", []int{4, 8}, usualGroups, "sym", 32, "run", "zero points are not read; g_idx is not a parameter any more", false},
		{"vllm", "0.32", "gptq_v2", []int{4, 8}, usualGroups, "sym", 32, "run", "", false},
		{"vllm", "0.32", "compressed-tensors", []int{4, 8}, usualGroups, "both", 8, "run", "pack-quantized", false},
		{"sglang", "0.5", "", nil, nil, "both", 1, "loader", "", false},
		{"sglang", "0.5", "awq", []int{4}, []int{32, 64, 128}, "both", 8, "loader", "", false},
		{"sglang", "0.5", "gptq", []int{4, 8}, usualGroups, "sym", 32, "loader", "", false},
		{"sglang", "0.5", "compressed-tensors", []int{4, 8}, usualGroups, "sym", 8, "loader", "", false},
		{"tgi", "3", "", nil, nil, "both", 1, "loader", "", false},
		{"tgi", "3", "awq", []int{4}, usualGroups, "both", 8, "loader", "", false},
		{"tgi", "3", "gptq", []int{4, 8}, usualGroups, "sym", 32, "loader", "", false},
		{"transformers", "5.24", "", nil, nil, "both", 1, "run", "", false},
		{"transformers", "5.24", "awq", []int{4}, usualGroups, "both", 8, "run", "through GPTQModel's kernels", false},
		{"transformers", "5.24", "gptq", []int{2, 3, 4, 8}, usualGroups, "both", 32, "run", "needs optimum and GPTQModel", true},
		{"transformers", "5.24", "gptq_v2", []int{2, 3, 4, 8}, usualGroups, "both", 32, "run", "needs optimum and GPTQModel", true},
		{"transformers", "5.24", "compressed-tensors", []int{3, 4, 8}, usualGroups, "sym", 8, "run", "asymmetric zero points are refused by 5.24", false},
		{"exllamav2", "0.3", "", nil, nil, "both", 1, "loader", "", false},
		{"exllamav2", "0.3", exl2Name, nil, nil, "both", 1, "loader", "attention and MLP of a block whole or not at all", false},
		{"exllamav2", "0.3", "gptq", []int{4}, usualGroups, "both", 32, "loader", "", true},
		{"exllamav2", "0.3", "gptq_v2", []int{4}, usualGroups, "both", 32, "loader", "", true},
	}
}

// Engines says for every engine of the table whether it loads linears of these schemes in this layout, indexed where
// g_idx tells which group a column belongs to.
func Engines(layout string, linears []PlannedTensor, indexed bool) []EngineNote {
	var notes []EngineNote
	rules := EngineRules()
	for i, r := range rules {
		if slices.ContainsFunc(rules[:i], func(o EngineRule) bool { return o.Engine == r.Engine }) {
			continue
		}
		note := EngineNote{Engine: r.Engine + " " + r.Version, Reason: fmt.Sprintf("does not load %s", layout)}
		for _, c := range rules {
			if c.Engine == r.Engine && c.Layout == layout {
				if note.Reason = c.refuses(linears); note.Reason == "" && indexed && !c.GIdx {
					note.Reason = "not known to load groups in activation order (g_idx)"
				}
				note.Loads = note.Reason == ""
				break
			}
		}
		notes = append(notes, note)
	}
	return notes
}

// refuses returns the first reason why the rule's engine does not load the linears, "" when it does.
func (r EngineRule) refuses(linears []PlannedTensor) string {
	for i := range linears {
		t := &linears[i]
		if !t.Quantize {
			continue
		}
		if reason := r.refusesScheme(t.Scheme, t.Linear.Out); reason != "" {
			return fmt.Sprintf("%s: %s", t.Module(), reason)
		}
	}
	return ""
}

func (r EngineRule) refusesScheme(s packing.Scheme, out int) string {
	switch {
	case len(r.Bits) > 0 && !slices.Contains(r.Bits, s.Bits):
		return fmt.Sprintf("%d bits, it takes %v", s.Bits, r.Bits)
	case len(r.Groups) > 0 && !slices.Contains(r.Groups, s.GroupSize):
		return fmt.Sprintf("group size %d, it takes %v", s.GroupSize, r.Groups)
	case r.Sym == "sym" && !s.Sym:
		return "asymmetric, it takes symmetric only"
	case r.Sym == "asym" && s.Sym:
		return "symmetric, it takes asymmetric only"
	case out%r.OutMul != 0:
		return fmt.Sprintf("%d outputs, it takes multiples of %d", out, r.OutMul)
	}
	return ""
}
