package gguf

import (
	"strconv"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// outer maps tensors outside the blocks to Hugging Face names.
var outer = map[string]string{
	nameEmbed: "model.embed_tokens.weight", nameNorm: "model.norm.weight", nameHead: "lm_head.weight",
}

// inner maps the module of a block's tensor to its Hugging Face name below model.layers.N. Stacks have a %: the expert.
var inner = map[string]string{
	"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
	"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
	"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
	"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate",
	"ffn_gate_exps": "mlp.experts.%.gate_proj", "ffn_up_exps": "mlp.experts.%.up_proj", "ffn_down_exps": "mlp.experts.%.down_proj",
}

// place is where one Hugging Face tensor lies in the file.
type place struct {
	info   tensor.Info
	t      *Tensor
	matrix int64 // of a stack, 0 otherwise
	heads  int   // rows are stored as interleaved rotary pairs of so many heads; 0: as they are
	narrow bool  // float32 data that are shown as info.DType, exactly
}

// hfPlaces lists the tensors of a file in Hugging Face names, in file order. Tensors that engines derive are left out.
func (f *File) hfPlaces(p *params) ([]place, error) {
	var all []place
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if t.Name == nameRopeFreqs || strings.HasSuffix(t.Name, ".attn_rot_embd") {
			continue
		}
		found, err := p.locate(t)
		if err != nil {
			return nil, &safeio.Error{Op: "read", Path: f.path, Tensor: t.Name, Off: -1, Err: err}
		}
		if all = append(all, found...); len(all) > mostPlaces {
			return nil, &safeio.Error{Op: "read", Path: f.path, Off: -1, Err: safeio.Limitf("more than %d tensors", mostPlaces)}
		}
	}
	return all, nil
}

// locate returns the Hugging Face tensors that one GGUF tensor holds.
func (p *params) locate(t *Tensor) ([]place, error) {
	name, n, ok := p.hfName(t.Name)
	if !ok {
		return nil, safeio.Unsupportedf("the %s family has no tensor of this kind", p.arch)
	}
	dtype := tensor.F32
	if d := t.Type.DType(); d != tensor.Invalid {
		if !d.IsFloat() {
			return nil, safeio.Unsupportedf("weights of type %s", t.Type)
		}
		dtype = d
	}
	heads := 0
	if p.permuted {
		heads = map[string]int{"self_attn.q_proj": p.heads, "self_attn.k_proj": p.kvHeads}[module(name)]
		if heads > 0 && (t.NE[max(t.Dims-1, 0)]/int64(heads))%2 != 0 {
			return nil, safeio.Corruptf("%d rows do not divide into the rotary pairs of %d heads", t.NE[max(t.Dims-1, 0)], heads)
		}
	}
	if !n {
		return []place{{info: tensor.Info{Name: name, DType: dtype, Shape: t.Shape()}, t: t, heads: heads}}, nil
	}
	// An empty stack could claim any number of experts without a byte of data.
	if t.Dims != 3 || t.NE[2] != int64(p.count) || t.NE[2] > mostPlaces || t.Bytes == 0 {
		return nil, safeio.Corruptf("sizes %v for a stack of %d experts", t.NE[:t.Dims], p.count)
	}
	all := make([]place, t.NE[2])
	for e := range all {
		all[e] = place{info: tensor.Info{Name: strings.Replace(name, "%", strconv.Itoa(e), 1), DType: dtype, Shape: t.Shape()[1:]}, t: t, matrix: int64(e)}
	}
	return all, nil
}

// module returns "self_attn.q_proj" of "model.layers.0.self_attn.q_proj.weight".
func module(name string) string {
	parts := strings.SplitN(name, ".", 4)
	if len(parts) < 4 {
		return ""
	}
	rest := parts[3]
	return rest[:max(strings.LastIndexByte(rest, '.'), 0)]
}

// hfName translates a name; stack is set when it stands for one tensor per expert, with % for the number.
func (p *params) hfName(name string) (hf string, stack, ok bool) {
	if hf, ok := outer[name]; ok {
		return hf, false, true
	}
	n, ok := BlockNumber(name)
	if !ok || n >= p.blocks {
		return "", false, false
	}
	rest := strings.TrimPrefix(name, block(n, ""))
	dot := strings.IndexByte(rest, '.')
	if dot < 0 || rest[dot:] != ".weight" && rest[dot:] != ".bias" {
		return "", false, false
	}
	mod, ok := inner[rest[:dot]]
	if !ok {
		return "", false, false
	}
	return "model.layers." + strconv.Itoa(n) + "." + mod + rest[dot:], strings.Contains(mod, "%"), true
}
