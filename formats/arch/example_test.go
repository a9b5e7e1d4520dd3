package arch_test

import (
	"fmt"

	"github.com/llmquant/quantize/formats/arch"
)

// What a config alone says about a model: which linears share an input, and where a scale can be folded.
func Example() {
	config := `{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 128,
		"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100,
		"max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": true}`
	model, tensors, err := arch.Implied([]byte(config))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(model.Architecture, "with", len(tensors), "tensors")
	block := &model.Blocks[0]
	for _, in := range block.Inputs() {
		fmt.Print(in.Kind, " ", in.Width, ":")
		for _, l := range in.Linears {
			fmt.Print(" ", l.Role)
		}
		fmt.Println()
	}
	for _, p := range block.AWQPairs() {
		from := p.Norm
		if p.Prev != nil {
			from = p.Prev.Name
		}
		fmt.Println(from, "feeds", len(p.Linears), "linears, judged on", p.Scope, "shared by", p.Shared)
	}
	// Output:
	// Qwen3ForCausalLM with 24 tensors
	// attn_in 64: q_proj k_proj v_proj
	// o_in 64: o_proj
	// mlp_in 64: gate_proj up_proj
	// down_in 128: down_proj
	// model.layers.0.input_layernorm.weight feeds 3 linears, judged on attn shared by 1
	// model.layers.0.self_attn.v_proj feeds 1 linears, judged on linear shared by 2
	// model.layers.0.post_attention_layernorm.weight feeds 2 linears, judged on mlp shared by 1
	// model.layers.0.mlp.up_proj feeds 1 linears, judged on linear shared by 1
}
