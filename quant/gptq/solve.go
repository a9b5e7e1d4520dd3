package gptq

import (
	"context"
	"slices"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid"
)

// Report tells how a solve went. Losses are L in the units of the Hessian given: mean squared output error summed over
// the outputs, damping included, when H is an average over tokens.
type Report struct {
	Loss        float64 // of the result
	NearestLoss float64 // of plain rounding on the same grid; 0 where nothing was compared with it (Options.Guard)
	Rho         float64 // share of the target shift that was used
	Damp        float64
	Dead        int
	Guarded     int    // rows replaced by plain rounding
	Passes      int    // refinement passes that changed something, the most over all tiles
	Fallback    string // why the whole matrix was rounded plainly; "" otherwise
}

// Problem is one weight to round.
type Problem struct {
	W     []float32 // [Out, K], row-major; not changed
	Out   int
	Stats *Stats
	Grid  grid.Grid
}

// Solve prepares the statistics and rounds one weight; callers with several weights on one input call Prepare once.
func Solve(ctx context.Context, pool *kernel.Pool, pr Problem, o Options) (*packing.Linear, Report, error) {
	p, err := Prepare(pool, pr.Stats, pr.Grid, o)
	if err != nil {
		return nil, Report{}, err
	}
	return p.Solve(ctx, pool, pr.W, pr.Out, pr.Grid)
}

// Solve rounds w[out, K] on a grid with the geometry that Prepare was given.
func (p *Prepared) Solve(ctx context.Context, pool *kernel.Pool, w []float32, out int, g grid.Grid) (*packing.Linear, Report, error) {
	rep := Report{Damp: p.Damp, Dead: len(p.Dead), Fallback: p.Fallback}
	if out < 1 || len(w) != out*p.k {
		return nil, rep, safeio.Corruptf("%d weights for %d outputs of %d inputs", len(w), out, p.k)
	}
	if !p.Serves(g) {
		return nil, rep, safeio.Unsupportedf("prepared for groups of %d, not for %s", p.layout.size, g.Name())
	}
	if p.Fallback != "" {
		l, err := grid.RoundNearest(ctx, pool, w, out, p.k, g, nil)
		return l, rep, err
	}
	if err := grid.CheckFinite(w, p.k); err != nil {
		return nil, rep, err
	}
	l := g.New(out, p.k)
	if p.opt.Order == Indexed && l.Codes == nil {
		return nil, rep, safeio.Unsupportedf("%s has no groups that columns could be assigned to", g.Name())
	}
	live := p.withoutDead(w, out)
	target, rho := p.target(pool, live, out)
	rep.Rho = rho
	if p.opt.Order == Indexed {
		same := &live[0] == &target[0]
		live = p.stored(pool, kernel.MatF32(out, p.k, live)).F32
		if same {
			target = live
		} else {
			target = p.stored(pool, kernel.MatF32(out, p.k, target)).F32
		}
	}
	rows := grid.TileRows(out, pool.Threads())
	tiles := make([]tileReport, (out+rows-1)/rows)
	pool.Run(len(tiles), func(i int) {
		if ctx.Err() == nil {
			tiles[i] = p.solveTile(l, g, live, target, i*rows, min(rows, out-i*rows))
		}
	})
	for _, t := range tiles {
		rep.Loss += float64(t.loss * p.mean)
		rep.NearestLoss += float64(t.nearest * p.mean)
		rep.Guarded += t.guarded
		rep.Passes = max(rep.Passes, t.passes)
	}
	if p.opt.Order == Indexed {
		p.index(pool, l)
	}
	return l, rep, ctx.Err()
}

// index brings the codes of columns in visiting order into natural order and notes their groups.
func (p *Prepared) index(pool *kernel.Pool, l *packing.Linear) {
	l.GIdx = make([]int32, p.k)
	for pos, c := range p.order {
		l.GIdx[c] = int32(pos / p.layout.size)
	}
	pool.Run(l.Out, func(n int) {
		row := l.Codes[n*p.k : (n+1)*p.k]
		for pos, q := range slices.Clone(row) {
			row[p.order[pos]] = q
		}
	})
}

// withoutDead returns the weights with the columns of dead channels set to zero, w itself when there are none.
func (p *Prepared) withoutDead(w []float32, out int) []float32 {
	if len(p.Dead) == 0 {
		return w
	}
	live := append([]float32(nil), w...)
	for n := range out {
		for _, c := range p.Dead {
			live[n*p.k+c] = 0
		}
	}
	return live
}

type tileReport struct {
	loss, nearest   float64
	guarded, passes int
}

// solveTile rounds rows [row0, row0+rows) and stores them in l.
func (p *Prepared) solveTile(l *packing.Linear, g grid.Grid, w, target []float32, row0, rows int) (rep tileReport) {
	goal := grid.NewTile(rows, p.k)
	goal.Load(target, p.k, row0)
	t := newTile(p, g, goal)
	t.feedback()
	if p.opt.Passes > 0 {
		rep.passes = t.refine()
	}
	if o := &p.opt; o.Passes > 0 || o.Restarts > 0 || o.Guard {
		p.compare(t, &rep, g, w, row0)
	} else { // feedback alone knows what it did
		for _, l := range t.loss {
			rep.loss += l
		}
	}
	for i, s := range p.layout.spans {
		g.Store(l, row0, s.col0, t.params[i], t.codes[s.col0*rows:s.col1*rows])
	}
	return rep
}

// compare starts again, if that is wanted, and keeps what is better row by row, plain rounding included.
func (p *Prepared) compare(t *tile, rep *tileReport, g grid.Grid, w []float32, row0 int) {
	loss := t.losses(t.q)
	for range p.opt.Restarts {
		t.restart(loss)
	}
	plain := grid.NewTile(t.rows, p.k)
	plain.Load(w, p.k, row0)
	near := t.nearest(plain)
	for r, l := range t.losses(near.q) {
		rep.nearest += l
		if p.opt.Guard && l < loss[r] {
			t.takeRow(near, r)
			loss[r] = l
			rep.guarded++
		}
		rep.loss += loss[r]
	}
}
