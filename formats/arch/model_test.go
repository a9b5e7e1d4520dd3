package arch

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkModel asserts what every resolved model promises to its users.
func checkModel(t testing.TB, m *Model) {
	require.NotEmpty(t, m.Blocks)
	require.Len(t, m.Rope.InvFreq, m.HeadDim/2)
	require.Equal(t, m.HeadDim, m.Rope.Dim)
	for _, f := range m.Rope.InvFreq {
		require.False(t, math.IsNaN(f) || math.IsInf(f, 0) || f < 0, "%v", m.Rope)
	}
	require.Positive(t, m.Rope.AttentionScale)
	require.Zero(t, m.Heads%m.KVHeads)
	for i := range m.Blocks {
		b := &m.Blocks[i]
		require.Equal(t, i, b.Index)
		require.Equal(t, m.Heads*m.HeadDim, b.Q.Out)
		require.Equal(t, m.KVHeads*m.HeadDim, b.K.Out)
		require.Equal(t, b.K.Out, b.V.Out)
		require.Equal(t, b.Q.Out, b.O.In)
		checkInputs(t, b)
		checkPairs(t, b)
	}
}

// checkInputs: every linear is in exactly one group of its own reading, with the group's width.
func checkInputs(t testing.TB, b *Block) {
	seen := map[*Linear]int{}
	for _, g := range b.Inputs() {
		whole := g.Router != nil
		for _, l := range g.Linears {
			require.Equal(t, g.Width, l.In, l.Name)
			if !whole {
				seen[l]++
				require.Equal(t, g.Expert, l.Expert)
			}
		}
		if whole {
			require.Equal(t, g.Width, g.Router.In)
			require.Len(t, g.Linears, 2*len(b.MoE.Experts))
		}
	}
	for _, l := range b.Linears() {
		require.Equal(t, 1, seen[l], l.Name)
	}
	require.Len(t, b.Linears(), len(seen))
}

// checkPairs: all readers of a scaled producer are in its pair, and every reader's channel has its producer.
func checkPairs(t testing.TB, b *Block) {
	covered := map[*Linear]bool{}
	norms := map[string]int{}
	for _, p := range b.AWQPairs() {
		for _, l := range p.Linears {
			require.False(t, covered[l], "%s is scaled twice", l.Name)
			covered[l] = true
			require.Equal(t, p.Width(), l.In)
		}
		if p.Norm != "" {
			require.Nil(t, p.Prev)
			norms[p.Norm] += len(p.Linears)
			continue
		}
		uses := make([]int, p.Prev.Out)
		for k := range p.Width() {
			uses[p.PrevRow(k)]++
		}
		for _, n := range uses {
			require.Equal(t, p.Shared, n)
		}
		require.Equal(t, p.Expert, p.Prev.Expert)
	}
	require.Len(t, covered, len(b.Linears()))
	require.Equal(t, 3, norms[b.AttnNorm])
	if b.MoE != nil {
		require.Equal(t, 2*len(b.MoE.Experts), norms[b.MLPNorm])
	}
}

// TestSharedScales spells out the channel map of grouped-query attention: 6 query heads on 2 value heads of 4.
func TestSharedScales(t *testing.T) {
	s := tiny(familyNamed(t, "llama"))
	m, err := Resolve(s.text(), s.tensors())
	require.NoError(t, err)
	p := m.Blocks[0].AWQPairs()[1]
	require.Equal(t, RoleV, p.Prev.Role)
	require.Equal(t, 3, p.Shared)
	want := []int{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7}
	for k, row := range want {
		require.Equal(t, row, p.PrevRow(k))
	}
}

// TestRandomShapes resolves random legal settings of every family and checks all promises.
func TestRandomShapes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		fams := Families()
		f := fams[rng.IntN(len(fams))]
		kv := 1 + rng.IntN(3)
		heads := kv * (1 + rng.IntN(4))
		dim := 2 * (1 + rng.IntN(8))
		s := tiny(f).with("num_attention_heads", heads, "num_key_value_heads", kv, "head_dim", dim,
			"hidden_size", 1+rng.IntN(50), "intermediate_size", 1+rng.IntN(50), "num_hidden_layers", 1+rng.IntN(5),
			"vocab_size", 1+rng.IntN(99), "tie_word_embeddings", rng.IntN(2) == 0)
		if f.experts != nil {
			s = s.with("num_experts", 2+rng.IntN(6), "decoder_sparse_step", 1+rng.IntN(3))
		}
		if f.Name != "mistral" && f.Name != "qwen2" {
			s = s.with("attention_bias", rng.IntN(2) == 0)
		}
		src := s.tensors()
		m, err := Resolve(s.text(), src)
		require.NoError(t, err, "%s", s.text())
		require.Empty(t, m.Unknown)
		checkModel(t, m)
	}
}
