package gguf

import (
	"github.com/llmquant/quantize/formats/safeio"
)

// The hyperparameters are written from the resolved model, whose numbers are checked against the tensors, except for the
// few that no tensor shows and config.json alone knows.

// plainFileType is general.file_type of a conversion to a plain type.
var plainFileType = map[Type]uint32{F32: 0, F16: 1, BF16: 32}

// key prefixes a name with the architecture, as all hyperparameters are.
func (w *writer) key(name string) string { return w.model.GGUF.Arch + "." + name }

// count writes a whole number; the converter uses u32 for all of them.
func (w *writer) count(name string, n int) { w.kv.Set(w.key(name), Uint32(uint32(n))) }

// real writes a floating-point number; the converter rounds all of them to f32.
func (w *writer) real(name string, x float64) { w.kv.Set(w.key(name), Float32(float32(x))) }

// hyperparameters writes the {arch}.* keys and the file type, in the reference's order.
func (w *writer) hyperparameters() error {
	f, m := w.family, w.model
	feedForward, err := safeio.At(w.config, "intermediate_size", safeio.Value.Int)
	if err == nil && (feedForward < 1 || feedForward > mostCount) {
		err = safeio.Corruptf("intermediate_size is %d", feedForward)
	}
	if err != nil {
		return &safeio.Error{Op: "convert: config.json", Off: -1, Err: err}
	}
	w.count("block_count", len(m.Blocks))
	w.count("context_length", m.MaxPos)
	w.count("embedding_length", m.Hidden)
	w.count("feed_forward_length", int(feedForward))
	w.count("attention.head_count", m.Heads)
	w.count("attention.head_count_kv", m.KVHeads)
	if err := w.ropeScaling(); err != nil {
		return err
	}
	w.real("rope.freq_base", m.Rope.Theta)
	w.real("attention.layer_norm_rms_epsilon", m.Eps)
	moe := w.experts()
	if f.headDim || w.config.Get("head_dim").Exists() {
		w.count("attention.key_length", m.HeadDim)
		w.count("attention.value_length", m.HeadDim)
	}
	w.kv.Set("general.file_type", Uint32(plainFileType[w.o.Type]))
	if f.vocabKeys {
		w.count("vocab_size", m.Vocab)
		w.count("rope.dimension_count", m.HeadDim)
	}
	if moe > 0 {
		w.count("expert_feed_forward_length", moe)
	}
	w.kv.Set("general.quantization_version", Uint32(quantizeVersion))
	return nil
}

// experts writes the counts of a mixture of experts and returns the inner size of one, 0 for a dense model.
func (w *writer) experts() (inner int) {
	for i := range w.model.Blocks {
		if moe := w.model.Blocks[i].MoE; moe != nil {
			w.count("expert_count", len(moe.Experts))
			w.count("expert_used_count", moe.TopK)
			return moe.Experts[0].Gate.Out
		}
	}
	return 0
}

// yarnKeys are optional numbers of a yarn configuration, by config key and GGUF key.
var yarnKeys = [...]struct{ from, to string }{
	{"extrapolation_factor", "rope.scaling.yarn_ext_factor"},
	{"attention_factor", "rope.scaling.yarn_attn_factor"},
	{"beta_fast", "rope.scaling.yarn_beta_fast"},
	{"beta_slow", "rope.scaling.yarn_beta_slow"},
}

// ropeScaling writes what stands in metadata; llama3 scaling is a tensor, the others need nothing.
func (w *writer) ropeScaling() error {
	r := &w.model.Rope
	switch r.Type {
	case "linear":
		w.kv.Set(w.key("rope.scaling.type"), String("linear"))
		w.real("rope.scaling.factor", r.Factor)
	case "yarn":
		w.kv.Set(w.key("rope.scaling.type"), String("yarn"))
		w.real("rope.scaling.factor", r.Factor)
		w.count("rope.scaling.original_context_length", r.OriginalMaxPos)
		params := w.ropeParameters()
		for _, k := range yarnKeys {
			v := params.Get(k.from)
			if k.from == "attention_factor" && !v.Exists() {
				v = params.Get("attn_factor")
			}
			if !v.Exists() {
				continue
			}
			x, err := v.Float()
			if err != nil {
				return &safeio.Error{Op: "convert: config.json: " + k.from, Off: -1, Err: err}
			}
			w.real(k.to, x)
		}
	}
	return nil
}

// ropeParameters returns the object of config.json that describes the rotary embedding.
func (w *writer) ropeParameters() safeio.Value {
	if v := w.config.Get("rope_parameters"); v.Len() > 0 {
		return v
	}
	return w.config.Get("rope_scaling")
}
