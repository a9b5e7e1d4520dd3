package gptq

import (
	"cmp"
	"slices"
)

// layout says in which order feedback visits the columns of a row and where groups begin on the way.
type layout struct {
	order     []int  // position → column
	spans     []span // groups in storage order; index = column / span
	blocks    []block
	static    bool // group parameters are fixed before feedback starts
	size, sub int  // of groups and of sub-blocks
}

// span is a group of columns [col0, col1). Unless the order is static its columns are visited at positions [pos0, …).
type span struct {
	col0, col1, pos0 int
	subs             []sub // in order of visit
}

// sub is a run of positions whose columns form sub-block index of their span.
type sub struct{ pos0, pos1, index int }

// block is a run of positions whose errors are carried on together; spans lists the groups that are entered in it.
type block struct {
	pos0, pos1 int
	spans      []int
}

// newLayout arranges k columns in groups of size with sub-blocks of size sub.
func newLayout(k, size, subSize int, order Order, diag []float64) *layout {
	l := &layout{order: make([]int, k), static: order == ActOrder, size: min(size, k), sub: subSize}
	for c := range l.order {
		l.order[c] = c
	}
	for c := 0; c < k; c += size {
		l.spans = append(l.spans, span{col0: c, col1: min(c+size, k), pos0: c})
	}
	switch order {
	case ActOrder:
		l.order = descending(diag)
	case GroupAware:
		l.sortGroups(size, subSize, diag)
	default:
		l.sortSubs(subSize, nil)
	}
	l.cutBlocks()
	return l
}

// descending lists the columns by falling diagonal.
func descending(diag []float64) []int {
	order := make([]int, len(diag))
	for c := range order {
		order[c] = c
	}
	slices.SortFunc(order, byDiagonal(diag))
	return order
}

func byDiagonal(diag []float64) func(a, b int) int {
	return func(a, b int) int { return cmp.Or(cmp.Compare(diag[b], diag[a]), cmp.Compare(a, b)) }
}

// sortGroups orders whole groups, sub-blocks in them and columns in those by their largest diagonal. A short last
// group stays last.
func (l *layout) sortGroups(size, subSize int, diag []float64) {
	peak := func(c0, c1 int) float64 { return slices.Max(diag[c0:c1]) }
	visit := make([]int, len(l.spans))
	for i := range visit {
		visit[i] = i
	}
	whole := visit
	if last := l.spans[len(l.spans)-1]; last.col1-last.col0 < size {
		whole = visit[:len(visit)-1]
	}
	slices.SortFunc(whole, func(a, b int) int {
		return cmp.Or(cmp.Compare(peak(l.spans[b].col0, l.spans[b].col1), peak(l.spans[a].col0, l.spans[a].col1)), cmp.Compare(a, b))
	})
	pos := 0
	for _, i := range visit {
		l.spans[i].pos0 = pos
		pos += l.spans[i].col1 - l.spans[i].col0
	}
	l.sortSubs(subSize, peak)
	for _, s := range l.spans {
		for _, b := range s.subs {
			cols := l.order[b.pos0:b.pos1]
			for i := range cols {
				cols[i] = s.col0 + b.index*subSize + i
			}
			slices.SortFunc(cols, byDiagonal(diag))
		}
	}
}

// sortSubs lists the sub-blocks of every group, by peak when there is one, else as they lie.
func (l *layout) sortSubs(subSize int, peak func(c0, c1 int) float64) {
	for i := range l.spans {
		s := &l.spans[i]
		for j := 0; s.col0+j*subSize < s.col1; j++ {
			s.subs = append(s.subs, sub{index: j})
		}
		cut := func(b sub) (int, int) {
			c0 := s.col0 + b.index*subSize
			return c0, min(c0+subSize, s.col1)
		}
		if peak != nil {
			slices.SortStableFunc(s.subs, func(a, b sub) int {
				a0, a1 := cut(a)
				b0, b1 := cut(b)
				return cmp.Compare(peak(b0, b1), peak(a0, a1))
			})
		}
		pos := s.pos0
		for j := range s.subs {
			c0, c1 := cut(s.subs[j])
			s.subs[j].pos0, s.subs[j].pos1 = pos, pos+c1-c0
			pos += c1 - c0
		}
	}
}

// cutBlocks groups positions into blocks: several small groups, one group, or a part of a large one.
func (l *layout) cutBlocks() {
	k := len(l.order)
	if l.static {
		for p := 0; p < k; p += feedbackBlock {
			l.blocks = append(l.blocks, block{pos0: p, pos1: min(p+feedbackBlock, k)})
		}
		return
	}
	visit := make([]int, len(l.spans))
	for i := range visit {
		visit[i] = i
	}
	slices.SortFunc(visit, func(a, b int) int { return l.spans[a].pos0 - l.spans[b].pos0 })
	var open *block
	for _, i := range visit {
		s := l.spans[i]
		n := s.col1 - s.col0
		if open != nil && s.pos0+n-open.pos0 <= feedbackBlock {
			open.pos1 = s.pos0 + n
			open.spans = append(open.spans, i)
			continue
		}
		step := n
		if n > lookAheadMost {
			step = feedbackBlock
		}
		for p := 0; p < n; p += step {
			l.blocks = append(l.blocks, block{pos0: s.pos0 + p, pos1: s.pos0 + min(p+step, n)})
			if p == 0 {
				open = &l.blocks[len(l.blocks)-1]
				open.spans = []int{i}
			}
		}
		if n > feedbackBlock {
			open = nil
		}
	}
}

// spanOf returns the group of a column.
func (l *layout) spanOf(col int) *span { return &l.spans[col/(l.spans[0].col1-l.spans[0].col0)] }

// natural reports whether columns are visited as they lie.
func (l *layout) natural() bool {
	for p, c := range l.order {
		if p != c {
			return false
		}
	}
	return true
}
