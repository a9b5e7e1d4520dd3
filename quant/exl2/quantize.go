package exl2

import (
	"context"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid"
)

// Report tells how a solve went. Losses are tr((W−Q)·Hλ·(W−Q)ᵀ) in the units of the Hessian given: the mean squared error
// of the outputs, summed over them, when H is an average over tokens.
type Report struct {
	Loss        float64 // of the result
	NearestLoss float64 // of plain rounding with the same groups
	Power       float64 // tr(W·Hλ·Wᵀ): the loss when every weight is zero
	Bits        int64   // stored bits of the whole weight
	Damp        float64
	Dead        int
	Guarded     int    // outputs replaced by plain rounding
	Passes      int    // refinement passes that changed something, the most over all tiles
	Fallback    string // why no Hessian was used; "" otherwise
}

// largest is the widest weight that half floats hold.
const largest = 65504

// Quantize rounds w[out,K] into the given groups of packed rows. The result has the same bytes at any number of threads.
func (p *Prepared) Quantize(ctx context.Context, pool *kernel.Pool, w []float32, out int, groups []packing.EXL2Group) (*packing.Linear, Report, error) {
	rep := Report{Dead: p.Dead, Fallback: p.Fallback}
	s := packing.Scheme{Grid: "exl2", Mix: packing.EXL2Mix(groups)}
	if err := check(w, out, p.k, s); err != nil {
		return nil, rep, err
	}
	rep.Bits = packing.EXL2Bits(groups, out, p.k)
	a := p.arrange(pool, groups)
	rep.Damp = a.damp
	if a.fallback != "" {
		rep.Fallback = a.fallback
	}
	l := p.newLinear(s, out, groups)
	t := a.solve(ctx, pool, Matrix{w, out}, groups, p.opt, l)
	rep.Loss, rep.NearestLoss, rep.Power = t.loss*p.mean, t.nearest*p.mean, t.power*p.mean
	rep.Guarded, rep.Passes = t.guarded, t.passes
	return l, rep, ctx.Err()
}

// solve rounds a matrix and stores the result in l, which may be nil. Losses are in units of the mean diagonal.
func (a *arrangement) solve(ctx context.Context, pool *kernel.Pool, m Matrix, groups []packing.EXL2Group, o Options, l *packing.Linear) (sum tileReport) {
	spans := a.spans(pool, m.W, m.Out, groups, o)
	tiles := make([]tileReport, (m.Out+tileRows-1)/tileRows)
	pool.Run(len(tiles), func(i int) {
		if ctx.Err() != nil {
			return
		}
		t := newTile(a, o, spans, a.load(m.W, m.Out, i))
		tiles[i] = t.solve()
		if l != nil {
			t.store(l, i*tileRows)
		}
	})
	for _, t := range tiles {
		sum.loss += t.loss
		sum.nearest += t.nearest
		sum.power += t.power
		sum.guarded += t.guarded
		sum.passes = max(sum.passes, t.passes)
	}
	if l != nil {
		for i := range spans {
			l.EXL2.Max[spans[i].group] = spans[i].top
		}
	}
	return sum
}

// check refuses what cannot be stored.
func check(w []float32, out, k int, s packing.Scheme) error {
	if out < 1 || len(w) != out*k {
		return safeio.Corruptf("%d weights for %d outputs of %d inputs", len(w), out, k)
	}
	layout, ok := packing.Lookup("exl2")
	if !ok {
		return safeio.Unsupportedf("there is no layout exl2")
	}
	if err := layout.Check(s, out, k); err != nil {
		return err
	}
	for i, v := range w {
		if !(v <= largest && v >= -largest) {
			return safeio.Unsupportedf("weight %v of output %d, input %d is outside of F16, which exl2 computes in", v, i/k, i%k)
		}
	}
	return nil
}

// spans lists the groups in order of visit with their steps, and what refinement needs: their squares of H, factored.
func (a *arrangement) spans(pool *kernel.Pool, w []float32, out int, groups []packing.EXL2Group, o Options) []span {
	ordered := make([]packing.EXL2Group, len(groups))
	for i, g := range a.visit {
		ordered[i] = groups[g]
	}
	spans, pos := make([]span, len(groups)), 0
	for i, st := range a.maxima(pool, w, out, ordered) {
		spans[i] = span{steps: st, group: a.visit[i], pos0: pos, pos1: pos + ordered[i].Rows}
		pos += ordered[i].Rows
	}
	if a.h != nil && o.Passes > 0 {
		pool.Run(len(spans), func(i int) { spans[i].factor(a.h, len(a.cols)) })
	}
	return spans
}

// factor cuts the span's square out of the Hessian and factors its inverse.
func (s *span) factor(h []float32, k int) {
	n := s.pos1 - s.pos0
	s.h, s.u = make([]float32, n*n), make([]float32, n*n)
	work := make([]float64, n*n)
	for a := range n {
		copy(s.h[a*n:(a+1)*n], h[(s.pos0+a)*k+s.pos0:])
	}
	for a, v := range s.h {
		work[a] = float64(v)
	}
	if kernel.CholeskyUpperInverse(nil, work, n) != nil { // rounding to float32 cost it its definiteness
		s.h, s.u = nil, nil
		return
	}
	for a, v := range work {
		s.u[a] = float32(v)
	}
}

// newLinear allocates the result with the order of its rows.
func (p *Prepared) newLinear(s packing.Scheme, out int, groups []packing.EXL2Group) *packing.Linear {
	e := &packing.EXL2{Groups: groups, Row: make([]int32, p.k), Scale: make([]uint8, len(groups)*out), Max: make([]uint16, len(groups))}
	for row, col := range p.perm {
		e.Row[col] = int32(row)
	}
	return &packing.Linear{Scheme: s, Out: out, In: p.k, Codes: make([]uint8, out*p.k), EXL2: e}
}

// store writes the tile's codes and scales for the outputs from row0 on.
func (t *tile) store(l *packing.Linear, row0 int) {
	for r := range t.rows {
		codes := l.Codes[(row0+r)*l.In : (row0+r+1)*l.In]
		for pos, c := range t.cols {
			codes[c] = t.codes[pos*t.rows+r]
		}
	}
	for i := range t.spans {
		copy(l.EXL2.Scale[t.spans[i].group*l.Out+row0:], t.scales(i))
	}
}

type tileReport struct {
	loss, nearest, power float64
	guarded, passes      int
}

// solve rounds the tile and guards it by plain rounding.
func (t *tile) solve() (rep tileReport) {
	near := t
	if t.u == nil { // nothing to feed back: plain rounding is the best there is
		t.plain()
	} else {
		t.feedback()
		rep.passes = t.refine()
		near = newTile(t.arrangement, t.opt, t.spans, t.target)
		near.plain()
	}
	mine := t.losses(t.q)
	theirs := mine
	if near != t {
		theirs = t.losses(near.q)
	}
	power := t.losses(grid.NewTile(t.rows, t.k))
	for r := range t.rows {
		rep.power += power[r]
		rep.nearest += theirs[r]
		if theirs[r] < mine[r] {
			t.takeRow(near, r)
			mine[r] = theirs[r]
			rep.guarded++
		}
		rep.loss += mine[r]
	}
	return rep
}

// takeRow copies output r of another solution of the same tile.
func (t *tile) takeRow(from *tile, r int) {
	for i := r; i < len(t.codes); i += t.rows {
		t.codes[i], t.q.Data[i] = from.codes[i], from.q.Data[i]
	}
	for i := r; i < len(t.scale); i += t.rows {
		t.scale[i] = from.scale[i]
	}
}

// losses returns the share of every output in the loss when its values are q, in units of the mean diagonal.
func (t *tile) losses(q grid.Tile) []float64 {
	k, loss := t.k, make([]float64, t.rows)
	delta := grid.NewTile(t.rows, k)
	for i, v := range t.target.Data {
		delta.Data[i] = v - q.Data[i]
	}
	hd := delta
	if t.h != nil {
		hd = grid.NewTile(t.rows, k)
		kernel.GemmNN(nil, kernel.MatF32(k, t.rows, hd.Data), kernel.MatF32(k, k, t.h), kernel.MatF32(k, t.rows, delta.Data), false)
	}
	for i, v := range delta.Data {
		loss[i%t.rows] += float64(float64(v) * float64(hd.Data[i]))
	}
	return loss
}
