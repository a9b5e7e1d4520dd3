package gguf

import (
	"strconv"
	"strings"

	"github.com/llmquant/quantize/formats/arch"
)

// The names of a decoder's tensors in GGUF. %d-style layer numbers are written by block().
const (
	nameEmbed     = "token_embd.weight"
	nameNorm      = "output_norm.weight"
	nameHead      = "output.weight"
	nameRopeFreqs = "rope_freqs.weight"
	nameAttnNorm  = "attn_norm.weight"
	nameMLPNorm   = "ffn_norm.weight"
	nameQNorm     = "attn_q_norm.weight"
	nameKNorm     = "attn_k_norm.weight"
	nameRouter    = "ffn_gate_inp"
)

// stems maps the role of a linear to its GGUF name; stacked ones get expertSuffix.
var stems = map[arch.Role]string{
	arch.RoleQ: "attn_q", arch.RoleK: "attn_k", arch.RoleV: "attn_v", arch.RoleO: "attn_output",
	arch.RoleGate: "ffn_gate", arch.RoleUp: "ffn_up", arch.RoleDown: "ffn_down", arch.RoleRouter: nameRouter,
}

const expertSuffix = "_exps"

// block names a tensor of block n.
func block(n int, name string) string { return "blk." + strconv.Itoa(n) + "." + name }

// target is where a Hugging Face tensor goes.
type target struct {
	name   string // GGUF name
	heads  int    // of a q or k projection that is permuted
	expert int    // matrix of a stack, -1 for a tensor of its own
	layer  int
	role   arch.Role // of a stacked expert
}

// targets maps every tensor that the model names to its place in the file.
func targets(m *arch.Model) map[string]target {
	t := make(map[string]target)
	whole := func(from, to string) {
		if from != "" {
			t[from] = target{name: to, expert: -1}
		}
	}
	linear := func(b *arch.Block, l *arch.Linear) {
		if l.Name == "" {
			return
		}
		to := target{name: block(b.Index, stems[l.Role]), expert: l.Expert, layer: b.Index, role: l.Role}
		if m.GGUF.PermuteQK {
			to.heads = rotaryHeads(m, l.Role)
		}
		if l.Expert >= 0 {
			to.name += expertSuffix
		}
		weight, bias := to, to
		weight.name += ".weight"
		bias.name += ".bias"
		t[l.Weight()] = weight
		if l.Bias {
			t[l.Name+".bias"] = bias
		}
	}
	whole(m.Embed, nameEmbed)
	whole(m.FinalNorm, nameNorm)
	if m.Head != m.Embed {
		whole(m.Head, nameHead)
	}
	for i := range m.Blocks {
		b := &m.Blocks[i]
		whole(b.AttnNorm, block(b.Index, nameAttnNorm))
		whole(b.MLPNorm, block(b.Index, nameMLPNorm))
		whole(b.QNorm, block(b.Index, nameQNorm))
		whole(b.KNorm, block(b.Index, nameKNorm))
		for _, l := range b.Linears() {
			linear(b, l)
		}
		if b.MoE != nil {
			linear(b, &b.MoE.Router)
		}
	}
	return t
}

// rotaryHeads returns the number of heads in the output of a q or k projection, 0 for the other roles.
func rotaryHeads(m *arch.Model, r arch.Role) int {
	switch r {
	case arch.RoleQ:
		return m.Heads
	case arch.RoleK:
		return m.KVHeads
	}
	return 0
}

// derived are the ends of tensor names that carry nothing: masks and tables that engines compute themselves.
var derived = [...]string{".attention.masked_bias", ".attention.bias", ".rotary_emb.inv_freq"}

// isDerived reports whether a checkpoint's tensor carries nothing that GGUF would keep.
func isDerived(name string) bool {
	for _, end := range derived {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// alwaysF32 reports whether a tensor is stored in float32 whatever type is asked for: vectors, norms, routers, biases.
func alwaysF32(t *Tensor) bool {
	return t.Dims <= 1 || strings.HasSuffix(t.Name, "_norm.weight") || strings.HasSuffix(t.Name, nameRouter+".weight") ||
		!strings.HasSuffix(t.Name, ".weight")
}
