package arch

// qwen3MoE is qwen3 with a mixture of experts in the layers that decoder_sparse_step selects and mlp_only_layers does
// not exclude; the others keep a dense MLP.
var qwen3MoE = Family{
	Name:          "qwen3_moe",
	Doc:           "Qwen3 mixture of experts",
	Architectures: []string{"Qwen3MoeForCausalLM"},
	GGUF:          GGUF{Arch: "qwen3moe"},
	names:         huggingFace,
	qkvBias:       biasRule{key: "attention_bias"},
	oBias:         biasRule{key: "attention_bias"},
	qkNorm:        true,
	kvHeads:       4,
	window:        windowIfEnabled,
	experts:       qwen3Experts,
}

// qwen3Experts reads the mixture. Transformers 4 calls the count num_experts, Transformers 5 num_local_experts. The
// defaults are those of Qwen3MoeConfig.
func qwen3Experts(c *config) *expertRule {
	return &expertRule{
		count:        c.alias("num_experts", "num_local_experts", 0, maxCount),
		topK:         c.integer("num_experts_per_tok", 8, 1, maxCount),
		intermediate: c.integer("moe_intermediate_size", 768, 1, maxCount),
		normTopK:     c.boolean("norm_topk_prob", false),
		step:         c.integer("decoder_sparse_step", 1, 1, maxCount),
		dense:        c.integers("mlp_only_layers", 0, maxCount),
	}
}
