package arch

// Role says what a tensor is for. Policies ("keep routers") are written in roles, not names.
type Role string

// The roles of the tensors of a decoder.
const (
	RoleEmbed   Role = "embedding"
	RoleNorm    Role = "norm"
	RoleHead    Role = "lm_head"
	RoleQ       Role = "q_proj"
	RoleK       Role = "k_proj"
	RoleV       Role = "v_proj"
	RoleO       Role = "o_proj"
	RoleGate    Role = "gate_proj"
	RoleUp      Role = "up_proj"
	RoleDown    Role = "down_proj"
	RoleRouter  Role = "router"
	RoleBias    Role = "bias"
	RoleUnknown Role = "other" // present in the checkpoint, unknown to the family: copied, reported
)

// Model is a validated description of a decoder-only transformer. Every number is in range, every tensor named
// here exists with the shape stated here.
type Model struct {
	Family       string // row of the family table: "llama", "qwen2", …
	Architecture string // as in config.json: "LlamaForCausalLM"
	GGUF         GGUF   // how llama.cpp names and orders this family
	DType        string // "bfloat16" as config.json states it, "" when it does not
	Activation   string // of the gated MLP: "silu"
	Hidden       int
	Vocab        int // rows of the embedding
	MaxPos       int // context length
	Heads        int
	KVHeads      int
	HeadDim      int
	Eps          float64
	Rope         Rope
	Tied         bool   // the head is the embedding
	Embed        string // full tensor names
	FinalNorm    string
	Head         string // "lm_head.weight", or the embedding's name when Tied and no head is stored
	Blocks       []Block
	Unknown      []string // tensors of the checkpoint that no part of the model names, in storage order
}

// Rope describes the rotary embedding (half-split pairs i, i+HeadDim/2).
type Rope struct {
	Type               string    // "default", "linear", "llama3", "yarn", "dynamic" (InvFreq holds up to Model.MaxPos)
	Dim                int       // rotated dimensions of a head
	InvFreq            []float64 // [Dim/2], scaling applied; float32 values, as every engine computes them
	AttentionScale     float64   // factor on cos and sin (yarn), 1 otherwise
	Theta              float64   // the config's own numbers, kept for GGUF metadata
	Factor             float64
	LowFreqFactor      float64
	HighFreqFactor     float64
	OriginalMaxPos     int
	BetaFast, BetaSlow float64
	NoTruncate         bool // yarn: the ramp's ends are not rounded to whole dimensions
}

// Linear is one weight matrix of a block.
type Linear struct {
	Name    string // module name without ".weight": "model.layers.0.self_attn.q_proj"
	Role    Role
	Out, In int
	Bias    bool // Name+".bias" exists
	Expert  int  // expert index, -1 outside experts
}

// Weight returns the tensor name of the weight.
func (l *Linear) Weight() string { return l.Name + ".weight" }

// Block is one decoder layer: x += Attn(norm(x)); x += MLP(norm(x)).
type Block struct {
	Index          int
	Prefix         string // "model.layers.0"
	HeadDim        int    // channels of one head: Q.Out/HeadDim query heads, K.Out/HeadDim key and value heads
	AttnNorm       string // full tensor names
	MLPNorm        string
	QNorm, KNorm   string // per-head RMS norm of q and k before rotation, "" when absent
	Q, K, V, O     Linear
	Gate, Up, Down Linear // dense MLP: down(silu(gate(x))·up(x)); zero when MoE
	MoE            *MoE
	SlidingWindow  int // keys a query may see, itself included; 0: all
}

// MoE is a mixture-of-experts MLP: softmax over router logits in float32, the TopK largest, optionally renormalised.
type MoE struct {
	Router   Linear // role router, [experts, hidden]
	TopK     int
	NormTopK bool
	Experts  []Expert
}

// Expert is one expert's MLP.
type Expert struct{ Gate, Up, Down Linear }

// Linears lists the block's quantizable matrices in forward order: q, k, v, o, then gate, up, down, expert by expert.
// The router is not among them.
func (b *Block) Linears() []*Linear {
	ls := []*Linear{&b.Q, &b.K, &b.V, &b.O}
	if b.MoE == nil {
		return append(ls, &b.Gate, &b.Up, &b.Down)
	}
	for i := range b.MoE.Experts {
		e := &b.MoE.Experts[i]
		ls = append(ls, &e.Gate, &e.Up, &e.Down)
	}
	return ls
}
