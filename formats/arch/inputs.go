package arch

// InputKind is one of the places in a block where activations enter linears.
type InputKind uint8

// The inputs of a block in forward order. An MLP input is shared by gate, up and (in a mixture) the router and every
// expert; a down input exists once per expert.
const (
	AttnIn InputKind = iota // normalised residual stream, [tokens, hidden]
	OIn                     // concatenated heads, [tokens, heads·head_dim]
	MLPIn                   // normalised residual stream, [tokens, hidden]
	DownIn                  // activation(gate)·up, [tokens, intermediate]
)

var inputNames = [...]string{AttnIn: "attn_in", OIn: "o_in", MLPIn: "mlp_in", DownIn: "down_in"}

func (k InputKind) String() string {
	if int(k) < len(inputNames) {
		return inputNames[k]
	}
	return "?"
}

// Input is a group of linears that read the same activations, so that one Hessian or importance vector serves all.
type Input struct {
	Kind   InputKind
	Expert int // -1 outside experts
	Width  int // channels
	// Linears are the quantizable readers. In a mixture of experts, an expert's gate and up see only the tokens that
	// are routed to it: they form a group of kind MLPIn with their Expert.
	Linears []*Linear
	Router  *Linear // reads the same activations (all tokens) but is not quantized; nil if there is none
}

// Inputs lists the groups in forward order: q k v; o; gate up; down. In a mixture the group of the whole MLP comes
// first (every expert's gate and up, with the router), then per expert its own gate and up and its down.
func (b *Block) Inputs() []Input {
	groups := []Input{
		{Kind: AttnIn, Expert: -1, Width: b.Q.In, Linears: []*Linear{&b.Q, &b.K, &b.V}},
		{Kind: OIn, Expert: -1, Width: b.O.In, Linears: []*Linear{&b.O}},
	}
	if b.MoE == nil {
		return append(groups,
			Input{Kind: MLPIn, Expert: -1, Width: b.Gate.In, Linears: []*Linear{&b.Gate, &b.Up}},
			Input{Kind: DownIn, Expert: -1, Width: b.Down.In, Linears: []*Linear{&b.Down}})
	}
	groups = append(groups, Input{Kind: MLPIn, Expert: -1, Width: b.MoE.Router.In, Linears: b.MoE.gateUp(), Router: &b.MoE.Router})
	for i := range b.MoE.Experts {
		e := &b.MoE.Experts[i]
		groups = append(groups,
			Input{Kind: MLPIn, Expert: i, Width: e.Gate.In, Linears: []*Linear{&e.Gate, &e.Up}},
			Input{Kind: DownIn, Expert: i, Width: e.Down.In, Linears: []*Linear{&e.Down}})
	}
	return groups
}

func (m *MoE) gateUp() []*Linear {
	all := make([]*Linear, 0, 2*len(m.Experts))
	for i := range m.Experts {
		all = append(all, &m.Experts[i].Gate, &m.Experts[i].Up)
	}
	return all
}
