package arch

// qwen2 has biases on q, k and v, always, and none on o. Transformers assumes 32 key/value heads when the key is
// absent.
var qwen2 = Family{
	Name:          "qwen2",
	Doc:           "Qwen 1.5 (dense), Qwen2, Qwen2.5, QwQ",
	Architectures: []string{"Qwen2ForCausalLM"},
	GGUF:          GGUF{Arch: "qwen2"},
	names:         huggingFace,
	qkvBias:       biasRule{always: true},
	kvHeads:       32,
	window:        windowFromLayer,
}
