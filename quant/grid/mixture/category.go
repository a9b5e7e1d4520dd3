package mixture

import "strings"

// category groups tensors that the rules treat alike.
type category uint8

const (
	other category = iota
	head
	embedding
	values // attn_v and the fused forms that contain it
	keys
	queries
	attnOut
	up
	gate
	down
	categories
)

// byExact and byPart map names to categories; the first match wins.
var byExact = [...]struct {
	name string
	cat  category
}{
	{"output.weight", head},
	{"token_embd.weight", embedding},
	{"per_layer_token_embd.weight", embedding},
}

var byPart = [...]struct {
	part string
	cat  category
}{
	{"attn_qkv.weight", values},
	{"attn_kv_b.weight", values},
	{"attn_v.weight", values},
	{"attn_k.weight", keys},
	{"attn_q.weight", queries},
	{"attn_output.weight", attnOut},
	{"ffn_up", up},
	{"ffn_gate", gate},
	{"ffn_down", down},
}

func categorize(name string) category {
	for _, r := range byExact {
		if name == r.name {
			return r.cat
		}
	}
	for _, r := range byPart {
		if strings.Contains(name, r.part) {
			return r.cat
		}
	}
	return other
}

// keptParts are the names of tensors that stay in their source type: small, or too sensitive to be worth a block format.
var keptParts = [...]string{
	"_norm.weight",
	"ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", // routers
	"altup", "laurel", "per_layer_model_proj",
	"ssm_conv1d", "shortconv.conv.weight",
	"indexer.k_proj.weight", "indexer.q_proj.weight",
	"time_mix_first.weight",
	"time_mix_w0.weight", "time_mix_w1.weight", "time_mix_w2.weight",
	"time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight",
	"time_mix_a0.weight", "time_mix_a1.weight", "time_mix_a2.weight",
	"time_mix_g1.weight", "time_mix_g2.weight",
	"time_mix_decay_w1.weight", "time_mix_decay_w2.weight", "time_mix_lerp_fused.weight",
	"attn_rel_b.weight",
	".position_embd", "sam.pos_embd", "sam.neck.", "sam.net_", ".rel_pos", ".patch_embd", ".patch_merger",
	"a.rvq.codebook", "mm.a.code_embd",
}

var keptNames = [...]string{"position_embd.weight", "token_types.weight"}

// Quantizable reports whether a tensor of that name and shape (ggml order) is a matrix that a file type applies to.
// Everything else keeps its type under every file type.
func Quantizable(name string, ne []int64) bool {
	dims := len(ne)
	for dims > 0 && ne[dims-1] == 1 {
		dims--
	}
	if dims < 2 {
		return false
	}
	// A name of five characters passes too: the reference compares unsigned positions that wrap. Never met in practice,
	// kept so that the recorded runs agree.
	if !strings.HasSuffix(name, "weight") && len(name) != 5 {
		return false
	}
	for _, kept := range keptNames {
		if name == kept {
			return false
		}
	}
	for _, part := range keptParts {
		if strings.Contains(name, part) {
			return false
		}
	}
	return true
}
