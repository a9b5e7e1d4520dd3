package gptq

import (
	"context"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid"
)

// PrepareDescent is Prepare for Descend alone, which needs no factor: the damped Hessian and nothing else. Of st, H or
// H32 is used.
func PrepareDescent(pool *kernel.Pool, st *Stats, g grid.Grid, o Options) (*Prepared, error) {
	if err := st.check(); err != nil {
		return nil, err
	}
	p := &Prepared{k: st.K, stats: &Stats{K: st.K, H: st.H, H32: st.H32}, opt: o, Damp: o.Damp}
	p.Fallback = p.diagonal(pool)
	p.layout = newLayout(p.k, g.Span(), g.Sub(), Natural, p.diag)
	if p.Fallback != "" {
		return p, nil
	}
	p.h = p.stats.h().scaled(pool, nil, p.k, p.mean, moments{}, 0)
	p.stats = &Stats{K: st.K}
	for i, d := range p.diag {
		p.h[i*(p.k+1)] = float32(d + p.Damp)
	}
	return p, nil
}

// Descend lowers L for a weight w[out, K] that is rounded to l on the grid already, in place: coordinate descent over the
// codes and refits of the parameters, as after feedback, but from wherever l stands. L never rises. It does nothing where
// there is a Fallback.
func (p *Prepared) Descend(ctx context.Context, pool *kernel.Pool, l *packing.Linear, w []float32, g *grid.Int) error {
	switch {
	case l.Out < 1 || l.In != p.k || len(w) != l.Out*p.k:
		return safeio.Corruptf("%d weights for %d outputs of %d inputs", len(w), l.Out, p.k)
	case !p.Serves(g):
		return safeio.Unsupportedf("prepared for groups of %d, not for %s", p.layout.size, g.Name())
	case p.Fallback != "":
		return nil
	}
	if err := grid.CheckFinite(w, p.k); err != nil {
		return err
	}
	rows := grid.TileRows(l.Out, pool.Threads())
	pool.Run((l.Out+rows-1)/rows, func(i int) {
		if ctx.Err() == nil {
			p.descendTile(l, w, g, i*rows, min(rows, l.Out-i*rows))
		}
	})
	return ctx.Err()
}

func (p *Prepared) descendTile(l *packing.Linear, w []float32, g *grid.Int, row0, rows int) {
	goal := grid.NewTile(rows, p.k)
	goal.Load(w, p.k, row0)
	t := newTile(p, g, goal)
	for i, s := range p.layout.spans {
		g.Load(l, row0, s.col0, t.params[i], t.codes[s.col0*rows:s.col1*rows])
		for c := s.col0; c < s.col1; c++ {
			g.Decode(t.params[i], c-s.col0, t.col(c), t.q.Col(c))
		}
	}
	if t.refine() == 0 {
		return
	}
	for i, s := range p.layout.spans {
		g.Store(l, row0, s.col0, t.params[i], t.codes[s.col0*rows:s.col1*rows])
	}
}
