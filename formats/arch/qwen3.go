package arch

// qwen3 normalises each head of q and k before the rotation and has head_dim 128 unless the config says otherwise.
var qwen3 = Family{
	Name:          "qwen3",
	Doc:           "Qwen3 (dense)",
	Architectures: []string{"Qwen3ForCausalLM"},
	GGUF:          GGUF{Arch: "qwen3"},
	names:         huggingFace,
	qkvBias:       biasRule{key: "attention_bias"},
	oBias:         biasRule{key: "attention_bias"},
	qkNorm:        true,
	kvHeads:       32,
	headDim:       128,
	window:        windowFromLayer,
}
