package gguf

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// HF returns the model in Hugging Face form: config.json in Transformers' spelling, and the tensors in Hugging Face
// names and row order, experts one by one. Plain float tensors keep their type, block formats read as float32.
//
// Errors: safeio.ErrUnsupported for an architecture, rope scaling or tensor that has no counterpart here.
func (f *File) HF() (config []byte, src tensor.Source, err error) {
	p, v, err := f.hf()
	if err != nil {
		return nil, nil, err
	}
	text, err := f.config(p)
	if err != nil {
		return nil, nil, f.wrap(err)
	}
	return text, v, nil
}

// hf builds the view and the numbers behind it, without config.json.
func (f *File) hf() (*params, *view, error) {
	p, err := f.readParams()
	if err != nil {
		return nil, nil, f.wrap(err)
	}
	places, err := f.hfPlaces(p)
	if err != nil {
		return nil, nil, err
	}
	v, err := newView(f, places)
	return p, v, err
}

// wrap names the file in an error about its metadata.
func (f *File) wrap(err error) error {
	return &safeio.Error{Op: "read", Path: f.path, Off: -1, Err: err}
}

// config.json is rebuilt from the hyperparameters and from the tensors themselves: biases, a separate head and the size of the
// vocabulary are facts of the file, whatever its metadata say. Numbers are spelled as their author wrote them before
// they were rounded to float32. Keys that only training reads are left out.

// object builds a JSON object with keys in the order they were added.
type object struct {
	members []safeio.Member
	err     error
}

// add appends a member; the first failure sticks and value reports it.
func (o *object) add(key string, v any) {
	if o.err != nil {
		return
	}
	value, isValue := v.(safeio.Value)
	if !isValue {
		if value, o.err = safeio.EncodeJSON(v); o.err != nil {
			return
		}
	}
	o.members = append(o.members, safeio.Member{Key: key, Value: value})
}

// value returns the finished object.
func (o *object) value() (safeio.Value, error) {
	if o.err != nil {
		return safeio.Value{}, o.err
	}
	return safeio.NewObject(o.members...)
}

// bytes returns the document as Transformers writes it.
func (o *object) bytes() ([]byte, error) {
	v, err := o.value()
	if err != nil {
		return nil, err
	}
	return v.Indent(), nil
}

// number spells a float32 of the metadata as its author probably did: the shortest digits that give it back, always
// recognisable as a floating-point number.
func number(x float64) safeio.Value {
	s := strconv.FormatFloat(x, 'g', -1, 32)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	v, err := safeio.ParseJSON([]byte(s))
	if err != nil {
		return safeio.Value{}
	}
	return v
}

// config reconstructs config.json. Keys that GGUF does not record and that do not change the model are left out.
func (f *File) config(p *params) ([]byte, error) {
	o := &object{}
	o.add("architectures", []string{p.class})
	o.add("model_type", p.modelType)
	if !p.qkvBias {
		o.add("attention_bias", p.attnBiases)
	}
	for _, typ := range []string{"bos", "eos", "pad"} {
		var id any // null: Transformers' config classes have defaults of their own
		if n, err := f.KV.Int("tokenizer.ggml."+specialKeys[typ]+"_token_id", 0, math.MaxInt32); err == nil {
			id = n
		}
		o.add(typ+"_token_id", id)
	}
	o.add("hidden_act", "silu")
	o.add("hidden_size", p.hidden)
	if p.dimStated {
		o.add("head_dim", p.dim)
	}
	o.add("intermediate_size", p.inner)
	o.add("max_position_embeddings", p.context)
	if p.mlpBias {
		o.add("mlp_bias", p.mlpBiases)
	}
	o.add("num_attention_heads", p.heads)
	o.add("num_hidden_layers", p.blocks)
	o.add("num_key_value_heads", p.kvHeads)
	if p.experts {
		o.add("num_experts", p.count)
		o.add("num_experts_per_tok", p.used)
		o.add("moe_intermediate_size", p.expertInner)
		o.add("norm_topk_prob", true) // llama.cpp always normalises for this architecture
		o.add("decoder_sparse_step", 1)
		o.add("mlp_only_layers", []int{})
	}
	o.add("rms_norm_eps", number(p.eps))
	scaling, err := f.ropeScaling(p)
	if err != nil {
		return nil, err
	}
	o.add("rope_scaling", scaling)
	o.add("rope_theta", number(p.theta))
	if p.window {
		o.add("use_sliding_window", false)
	}
	o.add("tie_word_embeddings", p.tied)
	o.add("torch_dtype", f.torchDType())
	o.add("vocab_size", p.vocab)
	return o.bytes()
}

// torchDType names the type of the matrices; block formats read as float32.
func (f *File) torchDType() string {
	if t, ok := f.Lookup(nameEmbed); ok {
		switch f.mainType(t) {
		case BF16:
			return "bfloat16"
		case F16:
			return "float16"
		}
	}
	return "float32"
}

// mainType returns the type of the first block's projections, which say more than the embedding's.
func (f *File) mainType(embed *Tensor) Type {
	if t, ok := f.Lookup(block(0, stems[arch.RoleQ]+".weight")); ok {
		return t.Type
	}
	return embed.Type
}

// ropeScaling reconstructs rope_scaling; null without scaling.
func (f *File) ropeScaling(p *params) (safeio.Value, error) {
	o := &object{}
	t, factors := f.Lookup(nameRopeFreqs)
	switch {
	case factors:
		found, err := f.llama3(p, t)
		if err != nil {
			return safeio.Value{}, err
		}
		o.add("rope_type", "llama3")
		o.add("factor", number(found.Factor))
		o.add("low_freq_factor", number(found.LowFreqFactor))
		o.add("high_freq_factor", number(found.HighFreqFactor))
		o.add("original_max_position_embeddings", found.OriginalMaxPos)
	case p.ropeType == "":
		return safeio.ParseJSON([]byte("null"))
	default:
		o.add("rope_type", p.ropeType)
		o.add("factor", number(p.factor))
		if p.ropeType == "yarn" {
			if p.original > 0 {
				o.add("original_max_position_embeddings", p.original)
			}
			for _, k := range yarnKeys {
				if x, err := f.KV.Float(p.arch + "." + k.to); err == nil {
					o.add(k.from, number(x))
				}
			}
		}
	}
	return o.value()
}

// llama3 finds the scaling whose frequency factors the file stores. Only the numbers of published models are tried: low
// 1, high 4, an original context that is a power of two, and the factor that the slowest dimension shows.
func (f *File) llama3(p *params, t *Tensor) (*arch.Rope, error) {
	stored := make([]byte, t.Bytes)
	if t.Type != F32 || t.Elements() != int64(p.dim/2) || p.dim < 2 {
		return nil, safeio.Corruptf("%s has %d elements of type %s for heads of %d channels", nameRopeFreqs, t.Elements(), t.Type, p.dim)
	}
	if err := f.ReadAt(t, stored, 0); err != nil {
		return nil, err
	}
	factors := make([]float64, t.Elements())
	for i := range factors {
		factors[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(stored[4*i:])))
	}
	m := &arch.Model{Rope: arch.Rope{Type: "llama3", Dim: p.dim, Theta: p.theta,
		LowFreqFactor: 1, HighFreqFactor: 4, Factor: factors[len(factors)-1]}}
	for m.Rope.OriginalMaxPos = 1 << 10; m.Rope.OriginalMaxPos <= 1<<20; m.Rope.OriginalMaxPos *= 2 {
		if closeTo(ropeFactors(m), factors) {
			return &m.Rope, nil
		}
	}
	return nil, safeio.Unsupportedf("the frequency factors in %s fit no known rope scaling", nameRopeFreqs)
}

// closeTo compares frequency factors. Other tools compute the powers with other last bits, hence the tolerance; two
// scalings of published models differ by far more.
func closeTo(a []float32, b []float64) bool {
	for i := range a {
		if !(math.Abs(float64(a[i])-b[i]) <= 1e-4*math.Abs(b[i])) {
			return false
		}
	}
	return true
}
