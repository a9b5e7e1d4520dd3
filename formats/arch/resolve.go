package arch

import (
	"fmt"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// Resolve builds the model that a config.json describes and checks it against the tensors of src, which must offer
// every linear as a dense "P.weight" (formats.Dense does that for a quantized checkpoint). No tensor data is read.
//
// Errors: safeio.ErrUnsupported for an architecture, rope type, activation or weight type that is not implemented,
// naming it and what is; safeio.ErrCorrupt for numbers out of range and for missing or misshapen tensors.
func Resolve(text []byte, src tensor.Source) (*Model, error) {
	tensors := src.Tensors()
	r := resolver{find: src.Lookup, named: make(map[string]bool, len(tensors))}
	if err := r.resolve(text); err != nil {
		return nil, err
	}
	for _, info := range tensors {
		if !r.named[info.Name] {
			r.model.Unknown = append(r.model.Unknown, info.Name)
		}
	}
	return r.model, nil
}

// Implied builds the model that a config.json describes without a checkpoint, and lists the tensors that such a
// checkpoint holds, in the config's element type (BF16 if it names none). It serves estimates for models nobody has
// downloaded.
func Implied(text []byte) (*Model, []tensor.Info, error) {
	r := resolver{named: map[string]bool{}}
	if err := r.resolve(text); err != nil {
		return nil, nil, err
	}
	return r.model, r.implied, nil
}

// maxImplied bounds what Implied lists for a config of a few bytes; the largest published models have 70,000 tensors.
const maxImplied = 1 << 18

func (r *resolver) resolve(text []byte) error {
	c, err := parseConfig(text)
	if err != nil {
		return configError(err)
	}
	family, architecture, err := lookup(c)
	if err != nil {
		return configError(err)
	}
	r.c, r.family = c, family
	r.model = &Model{Family: family.Name, Architecture: architecture, GGUF: family.GGUF}
	r.readConfig()
	if c.err != nil {
		return configError(c.err)
	}
	// Blocks are added one by one as their tensors prove to exist: a layer count alone allocates nothing.
	r.outer()
	for layer := 0; layer < r.layers && r.err == nil; layer++ {
		r.block(layer)
	}
	if r.err == nil {
		r.model.Rope.fill()
	}
	return r.err
}

func configError(err error) error {
	return &safeio.Error{Op: "resolve model: config.json", Off: -1, Err: err}
}

// resolver carries the numbers that only building needs, and the first error.
type resolver struct {
	c      *config
	family *Family
	find   func(name string) (tensor.Info, bool) // the checkpoint; nil: whatever the model needs exists
	model  *Model
	named  map[string]bool // tensors that the model uses
	err    error

	implied []tensor.Info // without a checkpoint: the tensors in order of need

	layers       int
	intermediate int
	window       windowRule
	experts      *expertRule // nil: dense
	qkvBias      bool
	oBias        bool
	mlpBias      bool
	tied         bool // tie_word_embeddings says so
	untied       bool // tie_word_embeddings says no
}

// readConfig reads every number, in the order in which a reader of config.json would look for a mistake.
func (r *resolver) readConfig() {
	c, m, f := r.c, r.model, r.family
	m.DType = c.text("dtype", c.text("torch_dtype", ""))
	m.Hidden = c.required("hidden_size", 1, maxCount)
	m.Vocab = c.required("vocab_size", 1, maxCount)
	m.Heads = c.required("num_attention_heads", 1, maxCount)
	r.layers = c.required("num_hidden_layers", 1, maxCount)
	r.intermediate = c.required("intermediate_size", 1, maxCount)
	m.MaxPos = c.required("max_position_embeddings", 1, maxPositions)
	m.Eps = c.real("rms_norm_eps", 1e-6, 1e-30, 1)
	r.readHeads()
	r.readActivation()
	m.Rope = resolveRope(c, m.HeadDim, m.MaxPos)
	r.window = f.window(c, r.layers)
	if f.experts != nil {
		r.experts = f.experts(c)
		if r.experts.count > 0 && r.experts.topK > r.experts.count {
			c.fail(safeio.Corruptf("%d experts per token of %d", r.experts.topK, r.experts.count))
		}
	}
	r.qkvBias, r.oBias, r.mlpBias = f.qkvBias.resolve(c), f.oBias.resolve(c), f.mlpBias.resolve(c)
	r.tied = c.boolean("tie_word_embeddings", false)
	r.untied = !c.boolean("tie_word_embeddings", true)
}

func (r *resolver) readHeads() {
	c, m, f := r.c, r.model, r.family
	m.KVHeads = m.Heads
	if f.kvHeads > 0 {
		m.KVHeads = f.kvHeads
	}
	if n := c.nullable("num_key_value_heads", m.KVHeads, 1, maxCount); n > 0 {
		m.KVHeads = n
	} else { // null means as many as query heads, in every family
		m.KVHeads = m.Heads
	}
	if m.Heads%m.KVHeads != 0 {
		c.fail(safeio.Corruptf("%d attention heads are no multiple of %d key/value heads", m.Heads, m.KVHeads))
	}
	m.HeadDim = c.integer("head_dim", f.headDim, 1, maxCount)
	if m.HeadDim == 0 {
		if m.Hidden%m.Heads != 0 {
			c.fail(safeio.Corruptf("hidden_size %d is no multiple of %d attention heads", m.Hidden, m.Heads))
		}
		m.HeadDim = m.Hidden / m.Heads
	}
	if m.HeadDim%2 != 0 || m.HeadDim == 0 {
		c.fail(safeio.Corruptf("head_dim %d is odd, rotary embeddings need pairs", m.HeadDim))
	}
	if int64(m.Heads)*int64(m.HeadDim) > maxCount {
		c.fail(safeio.Corruptf("%d heads of %d channels", m.Heads, m.HeadDim))
	}
}

// activations maps hidden_act to the name on Model. Swish is SiLU.
var activations = map[string]string{"silu": "silu", "swish": "silu"}

func (r *resolver) readActivation() {
	name := r.c.text("hidden_act", "silu")
	r.model.Activation = activations[name]
	if r.model.Activation == "" {
		r.c.fail(safeio.Unsupportedf("hidden_act %q is not supported; supported: silu", clip(name)))
	}
}

// outer resolves embedding, final norm and head.
func (r *resolver) outer() {
	m, n := r.model, &r.family.names
	m.Embed = r.tensor(n.embed, m.Vocab, m.Hidden)
	m.FinalNorm = r.tensor(n.norm, m.Hidden)
	// A stored head is used even if the config ties it: Transformers 5 does so when the two differ. Without a stored
	// head, only an explicit "false" contradicts tying.
	if r.untied || r.stored(n.head) {
		m.Head = r.tensor(n.head, m.Vocab, m.Hidden)
		m.Tied = r.tied
		return
	}
	m.Tied, m.Head = true, m.Embed
}

func (r *resolver) stored(name string) bool {
	if r.find == nil {
		return !r.tied
	}
	_, ok := r.find(name)
	return ok
}

func (r *resolver) block(layer int) {
	m, n := r.model, &r.family.names
	prefix := fmt.Sprintf(n.block, layer)
	sub := func(name string) string { return prefix + "." + name }
	b := Block{Index: layer, Prefix: prefix, HeadDim: m.HeadDim, SlidingWindow: r.window.at(layer)}
	b.AttnNorm = r.tensor(sub(n.attnNorm), m.Hidden)
	b.MLPNorm = r.tensor(sub(n.mlpNorm), m.Hidden)
	if r.family.qkNorm {
		b.QNorm = r.tensor(sub(n.qNorm), m.HeadDim)
		b.KNorm = r.tensor(sub(n.kNorm), m.HeadDim)
	}
	q, kv := m.Heads*m.HeadDim, m.KVHeads*m.HeadDim
	b.Q = r.linear(sub(n.q), RoleQ, q, m.Hidden, r.qkvBias, -1)
	b.K = r.linear(sub(n.k), RoleK, kv, m.Hidden, r.qkvBias, -1)
	b.V = r.linear(sub(n.v), RoleV, kv, m.Hidden, r.qkvBias, -1)
	b.O = r.linear(sub(n.o), RoleO, m.Hidden, q, r.oBias, -1)
	if r.experts.sparse(layer) {
		b.MoE = r.moe(sub)
	} else {
		b.Gate = r.linear(sub(n.gate), RoleGate, r.intermediate, m.Hidden, r.mlpBias, -1)
		b.Up = r.linear(sub(n.up), RoleUp, r.intermediate, m.Hidden, r.mlpBias, -1)
		b.Down = r.linear(sub(n.down), RoleDown, m.Hidden, r.intermediate, r.mlpBias, -1)
	}
	m.Blocks = append(m.Blocks, b)
}

func (r *resolver) moe(sub func(string) string) *MoE {
	m, n, x := r.model, &r.family.names, r.experts
	moe := &MoE{TopK: x.topK, NormTopK: x.normTopK}
	moe.Router = r.linear(sub(n.router), RoleRouter, x.count, m.Hidden, false, -1)
	for i := 0; i < x.count && r.err == nil; i++ {
		p := sub(fmt.Sprintf(n.expert, i)) + "."
		moe.Experts = append(moe.Experts, Expert{
			Gate: r.linear(p+n.eGate, RoleGate, x.intermediate, m.Hidden, false, i),
			Up:   r.linear(p+n.eUp, RoleUp, x.intermediate, m.Hidden, false, i),
			Down: r.linear(p+n.eDown, RoleDown, m.Hidden, x.intermediate, false, i),
		})
	}
	return moe
}

func (r *resolver) linear(name string, role Role, out, in int, bias bool, expert int) Linear {
	l := Linear{Name: name, Role: role, Out: out, In: in, Bias: bias, Expert: expert}
	r.tensor(l.Weight(), out, in)
	if bias {
		r.tensor(name+".bias", out)
	}
	return l
}

// tensor checks that name exists with these dimensions and an element type that arithmetic can read.
func (r *resolver) tensor(name string, dims ...int) string {
	if r.err != nil {
		return name
	}
	want := make([]int64, len(dims))
	for i, d := range dims {
		want[i] = int64(d)
	}
	r.named[name] = true
	if r.find == nil {
		r.imply(name, want)
		return name
	}
	info, ok := r.find(name)
	switch {
	case !ok:
		r.fail(name, safeio.Corruptf("the checkpoint lacks it, config.json implies shape %v", want))
	case !info.SameShape(want...):
		r.fail(name, safeio.Corruptf("shape %v, config.json implies %v", info.Shape, want))
	case !plainFloat(info.DType):
		r.fail(name, safeio.Unsupportedf("element type %s; a dense model has F64, F32, F16 or BF16", info.DType))
	}
	return name
}

func (r *resolver) imply(name string, shape []int64) {
	if len(r.implied) == maxImplied {
		r.fail(name, safeio.Limitf("config.json implies more than %d tensors", maxImplied))
		return
	}
	types := map[string]tensor.DType{"float32": tensor.F32, "float16": tensor.F16, "bfloat16": tensor.BF16}
	d, ok := types[r.model.DType]
	if !ok {
		d = tensor.BF16
	}
	r.implied = append(r.implied, tensor.Info{Name: name, DType: d, Shape: shape})
}

func plainFloat(d tensor.DType) bool {
	return d == tensor.F64 || d == tensor.F32 || d == tensor.F16 || d == tensor.BF16
}

func (r *resolver) fail(name string, err error) {
	r.err = &safeio.Error{Op: "resolve model", Tensor: name, Off: -1, Err: err}
}
