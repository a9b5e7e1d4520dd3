package arch

// Scope says on which module's output the effect of scaling a pair is judged.
type Scope uint8

// The scopes, in AutoAWQ's terms: self_attn, mlp (dense or mixture), or the one linear itself.
const (
	ScopeAttn Scope = iota
	ScopeMLP
	ScopeLinear
)

func (s Scope) String() string {
	return [...]string{"attn", "mlp", "linear"}[s]
}

// Pair is one place where a per-channel scale s can be folded without changing the function: columns of every reader
// are multiplied by s, the producer's channels divided by it. (AWQ, SmoothQuant; table in the AWQ papers' code.)
type Pair struct {
	Norm string  // the producer is this RMS norm's weight …
	Prev *Linear // … or the rows (and bias) of this linear
	// Linears read the scaled channels and are quantized. Router reads them too: it must be multiplied by s as well,
	// or the experts' choice changes. nil if there is none.
	Linears []*Linear
	Router  *Linear
	Scope   Scope
	Input   InputKind // the activations that the pair's statistics come from
	Expert  int       // -1 outside experts
	// Shared > 1: a v→o pair under grouped-query attention. Each v channel feeds Shared query heads, so only scales
	// that are equal over those heads are legal. AutoAWQ has no such pair; take it or leave it.
	Shared  int
	headDim int
}

// PrevRow maps channel k of the readers' input to the channel of the producer that feeds it.
func (p *Pair) PrevRow(k int) int {
	if p.Shared <= 1 {
		return k
	}
	head, d := k/p.headDim, k%p.headDim
	return head/p.Shared*p.headDim + d
}

// Width returns the number of channels of the readers' input, the length of a scale vector.
func (p *Pair) Width() int { return p.Linears[0].In }

// AWQPairs lists the pairs in forward order: norm → q k v; v → o; norm → gate up (or every expert's, and the router);
// up → down (per expert). v → o is plain when v has as many rows as o has columns, otherwise Shared.
func (b *Block) AWQPairs() []Pair {
	pairs := []Pair{
		{Norm: b.AttnNorm, Linears: []*Linear{&b.Q, &b.K, &b.V}, Scope: ScopeAttn, Input: AttnIn, Expert: -1, Shared: 1},
		{Prev: &b.V, Linears: []*Linear{&b.O}, Scope: ScopeLinear, Input: OIn, Expert: -1, Shared: b.O.In / b.V.Out, headDim: b.HeadDim},
	}
	if b.MoE == nil {
		return append(pairs,
			Pair{Norm: b.MLPNorm, Linears: []*Linear{&b.Gate, &b.Up}, Scope: ScopeMLP, Input: MLPIn, Expert: -1, Shared: 1},
			Pair{Prev: &b.Up, Linears: []*Linear{&b.Down}, Scope: ScopeLinear, Input: DownIn, Expert: -1, Shared: 1})
	}
	pairs = append(pairs, Pair{Norm: b.MLPNorm, Linears: b.MoE.gateUp(), Router: &b.MoE.Router, Scope: ScopeMLP, Input: MLPIn, Expert: -1, Shared: 1})
	for i := range b.MoE.Experts {
		e := &b.MoE.Experts[i]
		pairs = append(pairs, Pair{Prev: &e.Up, Linears: []*Linear{&e.Down}, Scope: ScopeLinear, Input: DownIn, Expert: i, Shared: 1})
	}
	return pairs
}
