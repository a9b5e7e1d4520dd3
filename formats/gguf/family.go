package gguf

import (
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
)

// family is one row of the table of supported architectures: how GGUF and Transformers call it, and where the reference's
// converter treats it in its own way. Another architecture of the same shape is another row.
type family struct {
	arch      string // general.architecture
	modelType string // model_type of config.json
	class     string // architectures of config.json
	permuted  bool   // rows of q and k are stored as interleaved rotary pairs

	headDim     bool // key and value lengths are always written: Transformers' config class has a default for head_dim
	vocabKeys   bool // vocab_size and rope.dimension_count are written
	spacePrefix bool // tokenizer.ggml.add_space_prefix is written
	exceptions  bool // vocabularies of certain sizes get extra tokens; see vocabularyExceptions
	experts     bool // every block is a mixture of experts
	qkvBias     bool // biases of q, k and v are a matter of course, config.json has no key for them
	mlpBias     bool // config.json has a key for biases of the MLP
	window      bool // config.json has a key that switches a sliding window on
}

var families = [...]family{
	{arch: "llama", modelType: "llama", class: "LlamaForCausalLM", permuted: true,
		headDim: true, vocabKeys: true, spacePrefix: true, exceptions: true, mlpBias: true},
	{arch: "qwen2", modelType: "qwen2", class: "Qwen2ForCausalLM", qkvBias: true, window: true},
	{arch: "qwen3", modelType: "qwen3", class: "Qwen3ForCausalLM", headDim: true, window: true},
	{arch: "qwen3moe", modelType: "qwen3_moe", class: "Qwen3MoeForCausalLM", headDim: true, experts: true, window: true},
}

// Architectures lists the values of general.architecture that FromHF and HF support.
func Architectures() []string {
	names := make([]string, len(families))
	for i, f := range families {
		names[i] = f.arch
	}
	return names
}

// familyOf finds the row of an architecture, or refuses it with the list of those that are supported.
func familyOf(arch string) (*family, error) {
	for i := range families {
		if families[i].arch == arch {
			return &families[i], nil
		}
	}
	return nil, safeio.Unsupportedf("GGUF architecture %q is not supported; supported: %s", arch, strings.Join(Architectures(), ", "))
}
