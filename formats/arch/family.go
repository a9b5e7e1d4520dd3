package arch

import (
	"slices"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
)

// Family is one row of the table of supported architectures. All of them are pre-norm decoders with rotary
// embeddings, grouped-query attention and a gated MLP; a row states what differs.
type Family struct {
	Name          string   // also config.json's model_type
	Doc           string   // one line for `quantize list`
	Architectures []string // class names in config.json's "architectures"
	GGUF          GGUF

	names   names
	qkvBias biasRule
	oBias   biasRule
	mlpBias biasRule
	qkNorm  bool // RMS norm over each head of q and k before the rotation
	// kvHeads is num_key_value_heads of a config that lacks the key; 0: as many as query heads.
	kvHeads int
	// headDim is head_dim of a config that lacks the key; 0: hidden_size / num_attention_heads.
	headDim int
	window  func(c *config, layers int) windowRule
	experts func(c *config) *expertRule // nil: every layer is dense
}

// GGUF says how llama.cpp stores the family.
type GGUF struct {
	Arch      string // general.architecture
	PermuteQK bool   // rows of q and k are stored with rotary pairs interleaved
}

// biasRule says whether linears have a bias: always, never, or by a boolean key of config.json (absent: false).
type biasRule struct {
	always bool
	key    string
}

func (r biasRule) resolve(c *config) bool { return r.always || r.key != "" && c.boolean(r.key, false) }

// names are the tensor names of a family. %d stands for the layer or the expert.
type names struct {
	embed, norm, head string
	block             string // prefix of everything below
	attnNorm, mlpNorm string
	qNorm, kNorm      string
	q, k, v, o        string // linears, without ".weight"
	gate, up, down    string // of the dense MLP
	router            string
	expert            string // prefix of one expert's linears
	eGate, eUp, eDown string
}

// huggingFace is the naming that all families of the table share.
var huggingFace = names{
	embed: "model.embed_tokens.weight", norm: "model.norm.weight", head: "lm_head.weight",
	block:    "model.layers.%d",
	attnNorm: "input_layernorm.weight", mlpNorm: "post_attention_layernorm.weight",
	qNorm: "self_attn.q_norm.weight", kNorm: "self_attn.k_norm.weight",
	q: "self_attn.q_proj", k: "self_attn.k_proj", v: "self_attn.v_proj", o: "self_attn.o_proj",
	gate: "mlp.gate_proj", up: "mlp.up_proj", down: "mlp.down_proj",
	router: "mlp.gate", expert: "mlp.experts.%d", eGate: "gate_proj", eUp: "up_proj", eDown: "down_proj",
}

// families is the table, in the order in which help texts list it. Only Families and lookup read it.
var families = [...]*Family{&llama, &mistral, &qwen2, &qwen3, &qwen3MoE}

// Families returns the rows of the table.
func Families() []Family {
	all := make([]Family, len(families))
	for i, f := range families {
		all[i] = *f
		all[i].Architectures = slices.Clone(f.Architectures)
	}
	return all
}

// Supported lists the class names that Resolve accepts.
func Supported() []string {
	var all []string
	for _, f := range families {
		all = append(all, f.Architectures...)
	}
	return all
}

// lookup finds the family of a config by its class name, or by model_type when no class is named. The two must agree:
// engines differ in which of them they believe.
func lookup(c *config) (f *Family, architecture string, err error) {
	classes := c.strings("architectures")
	modelType := c.text("model_type", "")
	if c.err != nil {
		return nil, "", c.err
	}
	if len(classes) > 1 {
		return nil, "", safeio.Unsupportedf("names %d architectures (%s), one is expected", len(classes), quoted(classes))
	}
	for _, f := range families {
		if len(classes) == 0 && modelType == f.Name {
			return f, f.Architectures[0], nil
		}
		if len(classes) == 1 && slices.Contains(f.Architectures, classes[0]) {
			if modelType != "" && modelType != f.Name {
				return nil, "", safeio.Unsupportedf("architecture %q with model_type %q: %q is expected, and engines differ in which they follow",
					clip(classes[0]), clip(modelType), f.Name)
			}
			return f, classes[0], nil
		}
	}
	what := quoted(classes)
	if len(classes) == 0 {
		what = quoted([]string{modelType})
	}
	return nil, "", safeio.Unsupportedf("architecture %s is not supported; supported: %s", what, strings.Join(Supported(), ", "))
}

func quoted(names []string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = `"` + clip(n) + `"`
	}
	return strings.Join(q, ", ")
}

// clip shortens file content that goes into a message.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
