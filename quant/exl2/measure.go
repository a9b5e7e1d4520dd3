package exl2

import (
	"context"
	"slices"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
)

// Matrix is the weight of one linear.
type Matrix struct {
	W   []float32 // [Out, K], row-major
	Out int
}

// Measured is a candidate with what it costs and what it brings.
type Measured struct {
	Candidate Candidate `json:"candidate"`
	Bits      int64     `json:"bits"`  // stored bits of the linear
	Error     float64   `json:"error"` // share of the output's power that is lost: tr(ΔHΔᵀ)/tr(WHWᵀ)
}

// How much of a linear a measurement quantizes: with about 27 candidates, every sixth output and one refinement pass
// instead of four cost about as much as quantizing everything three times.
const (
	sampleShare = 6
	sampleLeast = 128
)

// Measure quantizes a part of every matrix, all reading this input, with every candidate. The part is the same for all
// candidates: every sixth output, at least 128 of them. Errors come from the solves' own losses; they are of the part,
// which is unbiased. Result i belongs to ws[i], in the order of cands.
func (p *Prepared) Measure(ctx context.Context, pool *kernel.Pool, ws []Matrix, cands []Candidate) ([][]Measured, error) {
	if len(cands) == 0 {
		return nil, safeio.Unsupportedf("there are no candidates to measure")
	}
	parts, result := make([]Matrix, len(ws)), make([][]Measured, len(ws))
	for i, m := range ws {
		if err := check(m.W, m.Out, p.k, cands[0].Scheme(p.k)); err != nil {
			return nil, err
		}
		parts[i], result[i] = m.sample(p.k), make([]Measured, len(cands))
	}
	for _, j := range p.byArrangement(cands) {
		groups := cands[j].Groups(p.k)
		a := p.arrange(pool, groups)
		o := p.opt
		o.Passes = min(o.Passes, 1)
		for i, m := range parts {
			rep := a.solve(ctx, pool, m, groups, o, nil)
			result[i][j] = Measured{Candidate: cands[j], Bits: cands[j].Bits(ws[i].Out, p.k)}
			if rep.power > 0 {
				result[i][j].Error = rep.loss / rep.power
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// byArrangement orders candidates so that those that visit the columns alike follow one another and share a factor.
func (p *Prepared) byArrangement(cands []Candidate) []int {
	order, cols := make([]int, len(cands)), make([][]int32, len(cands))
	for j, c := range cands {
		order[j] = j
		cols[j], _ = p.order(c.Groups(p.k))
	}
	slices.SortStableFunc(order, func(a, b int) int { return slices.Compare(cols[a], cols[b]) })
	return order
}

// sample picks outputs evenly.
func (m Matrix) sample(k int) Matrix {
	n := max(m.Out/sampleShare, min(sampleLeast, m.Out))
	s := Matrix{W: make([]float32, 0, n*k), Out: n}
	for i := range n {
		row := i * m.Out / n
		s.W = append(s.W, m.W[row*k:(row+1)*k]...)
	}
	return s
}
