package arch

// llama covers Llama 1 to 3.x and the many models published under its class (Yi, TinyLlama, SmolLM, DeepSeek-R1
// distillations, …). Attention and MLP biases exist when the config says so.
var llama = Family{
	Name:          "llama",
	Doc:           "Llama 1, 2, 3.x and models of the same shape",
	Architectures: []string{"LlamaForCausalLM", "LLaMAForCausalLM"},
	GGUF:          GGUF{Arch: "llama", PermuteQK: true},
	names:         huggingFace,
	qkvBias:       biasRule{key: "attention_bias"},
	oBias:         biasRule{key: "attention_bias"},
	mlpBias:       biasRule{key: "mlp_bias"},
	window:        noWindow,
}
