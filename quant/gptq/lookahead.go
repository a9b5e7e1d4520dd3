package gptq

import (
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid"
)

// lookAhead chooses, row by row, the parameters of sub-block sb of group i: every candidate of the grid rounds the
// columns of the sub-block with feedback among them, and the least Σ ((w̃ − q)/U_kk)² wins, which is exactly the share of
// L that these columns will have. Only params changes.
func (t *tile) lookAhead(i int, sb sub, w grid.Tile) {
	n, rows := sb.pos1-sb.pos0, t.rows
	s := &t.p.layout.spans[i]
	col0 := s.col0 + sb.index*t.g.Sub()
	now := t.gather(sb.pos0, sb.pos1, col0, w)
	importance := t.p.importance[col0 : col0+n]
	trial := make(grid.Params, len(t.params[i]))
	e, x, y, codes := t.try.Cut(0, n), t.x, t.y, t.c
	spread := make([]float32, n*n) // columns of U within the sub-block
	for a := range n {
		copy(spread[a*n:], t.column(sb.pos0, sb.pos0+a, sb.pos0+a))
	}
	loss, least := make([]float32, rows), make([]float32, rows)
	next := t.g.Propose(sb.index, now, importance)
	for first := true; next(trial, t.params[i]); first = false {
		clear(loss)
		for a := range n {
			pos := sb.pos0 + a
			copy(x, w.Col(pos))
			kernel.AddScaledRows(x, e.Data, rows, spread[a*n:a*n+a])
			t.g.Round(trial, t.p.layout.order[pos]-s.col0, x, y, codes)
			inv, err := 1/t.p.u[pos*t.p.k+pos], e.Col(a)
			kernel.FeedbackErrors(err, loss, x, y, inv)
		}
		for r, v := range loss {
			if v < least[r] || first {
				least[r] = v
				t.params[i].CopyRow(trial, r, rows)
			}
		}
	}
}
