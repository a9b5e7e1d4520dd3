package forward

import (
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/internal/kernel"
)

// expertScratch is the memory of a mixture.
type expertScratch struct {
	logits  []float32 // [chunk, experts] router output, then probabilities
	chosen  []int32   // [chunk, topK] experts by falling probability
	weights []float32 // [chunk, topK]
	slots   []int32   // [chunk·topK] positions in chosen, ordered by expert, then token
	in, out []float32 // [mlpRows, hidden] rows gathered for one expert, and its output
}

// mixture adds the experts' weighted outputs for normalised inputs xnorm to dst, both [tokens, hidden] of one chunk.
// Each token's experts are added in order of their index.
func (r *Runner) mixture(b *Block, dst, xnorm kernel.Mat, p *pass) error {
	p.show(arch.MLPIn, -1, xnorm, 0, nil)
	m := b.Arch.MoE
	r.route(b, xnorm)
	ends := r.sortByExpert(len(m.Experts))
	lo := 0
	for e, hi := range ends {
		slots := r.experts.slots[lo:hi]
		lo = hi
		if len(slots) == 0 || p.experts != nil && !p.experts(e) {
			continue
		}
		var w MLP
		if p.wants(arch.MLPIn) { // routing alone needs no weights
			var err error
			if w, err = b.Expert(e); err != nil {
				return err
			}
		}
		for i := 0; i < len(slots); i += r.size.mlpRows {
			r.expert(&w, e, slots[i:min(len(slots), i+r.size.mlpRows)], m.TopK, dst, xnorm, p)
		}
	}
	return nil
}

// expert runs one expert on the tokens behind slots and adds its weighted output to their rows of dst.
func (r *Runner) expert(w *MLP, e int, slots []int32, topK int, dst, xnorm kernel.Mat, p *pass) {
	x := buffer(&r.experts.in, len(slots), xnorm.Cols)
	tokens := make([]int32, len(slots))
	forRows(r.pool, len(slots), func(i int) {
		tokens[i] = slots[i] / int32(topK)
		copy(x.Row(i), xnorm.Row(int(tokens[i])))
	})
	p.show(arch.MLPIn, e, x, 0, tokens)
	if !p.wants(arch.MLPIn) {
		return
	}
	a := r.gated(w, x)
	p.show(arch.DownIn, e, a, 0, tokens)
	if !p.wants(arch.DownIn) {
		return
	}
	y := buffer(&r.experts.out, len(slots), dst.Cols)
	r.apply(&w.Down, y, r.input(a), false)
	forRows(r.pool, len(slots), func(i int) { // a token occurs once per expert, so rows do not collide
		kernel.AddScaled(dst.Row(int(tokens[i])), y.Row(i), r.experts.weights[slots[i]])
	})
}

// route fills chosen and weights for every row of xnorm: softmax over the router's logits in float32, the topK
// largest, divided by their sum if the model renormalises.
func (r *Runner) route(b *Block, xnorm kernel.Mat) {
	m, s := b.Arch.MoE, &r.experts
	logits := buffer(&s.logits, xnorm.Rows, len(m.Experts))
	s.chosen = grow(&s.chosen, xnorm.Rows*m.TopK)
	s.weights = grow(&s.weights, xnorm.Rows*m.TopK)
	r.apply(&b.Router, logits, input{x: xnorm}, false) // in float32: a close race between experts is decided here
	forRows(r.pool, xnorm.Rows, func(i int) {
		probs := logits.Row(i)
		kernel.Softmax(probs)
		weights := s.weights[i*m.TopK : (i+1)*m.TopK]
		topK(s.chosen[i*m.TopK:(i+1)*m.TopK], weights, probs)
		if m.NormTopK {
			var sum float32
			for _, w := range weights {
				sum += w
			}
			for j := range weights {
				weights[j] /= sum
			}
		}
	})
}

// topK writes the indices and values of the len(index) largest probabilities, falling, the lower index first among
// equals.
func topK(index []int32, value, probs []float32) {
	n := 0
	for e, p := range probs {
		i := n // where e belongs; entries from there on move back
		for i > 0 && p > value[i-1] {
			i--
		}
		if i == len(index) {
			continue
		}
		n = min(n+1, len(index))
		copy(index[i+1:n], index[i:])
		copy(value[i+1:n], value[i:])
		index[i], value[i] = int32(e), p
	}
}

// sortByExpert orders the slots (token·topK + rank) by expert, tokens in order, and returns where each expert's end.
func (r *Runner) sortByExpert(experts int) []int {
	s := &r.experts
	ends := make([]int, experts)
	for _, e := range s.chosen {
		ends[e]++
	}
	for e := 1; e < experts; e++ {
		ends[e] += ends[e-1]
	}
	s.slots = grow(&s.slots, len(s.chosen))
	for i := len(s.chosen) - 1; i >= 0; i-- { // backwards, so that ends become starts with tokens in order
		e := s.chosen[i]
		ends[e]--
		s.slots[ends[e]] = int32(i)
	}
	copy(ends, ends[1:])
	ends[experts-1] = len(s.chosen)
	return ends
}
