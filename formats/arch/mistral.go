package arch

// mistral is Llama without biases and, in its first version, with a sliding window in every layer. Transformers
// assumes a window of 4096 and 8 key/value heads when the config lacks the keys; null means none and all heads.
var mistral = Family{
	Name:          "mistral",
	Doc:           "Mistral 7B, Nemo, Small, Devstral (text)",
	Architectures: []string{"MistralForCausalLM"},
	GGUF:          GGUF{Arch: "llama", PermuteQK: true},
	names:         huggingFace,
	kvHeads:       8,
	window:        windowEverywhere,
}
