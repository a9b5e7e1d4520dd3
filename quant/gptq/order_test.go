package gptq

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLayouts(t *testing.T) {
	r := newRand(20)
	for _, k := range []int{1, 32, 100, 384, 1000} {
		diag := make([]float64, k)
		for i := range diag {
			diag[i] = float64(r.IntN(50)) // ties
		}
		for _, size := range []int{1, 32, 96, 128, 256, 300, 1000} {
			for _, sub := range []int{size, 16} {
				if size%sub != 0 {
					continue
				}
				for _, order := range []Order{Natural, GroupAware, ActOrder} {
					checkLayout(t, newLayout(k, size, sub, order, diag), k, size, sub, order, diag)
				}
			}
		}
	}
}

func checkLayout(t *testing.T, l *layout, k, size, sub int, order Order, diag []float64) {
	t.Helper()
	seen := make([]bool, k)
	for _, c := range l.order {
		require.False(t, seen[c])
		seen[c] = true
	}
	pos, entered := 0, 0
	for _, b := range l.blocks { // blocks cover all positions once, in order
		require.Equal(t, pos, b.pos0)
		require.Greater(t, b.pos1, b.pos0)
		require.LessOrEqual(t, b.pos1-b.pos0, lookAheadMost)
		pos = b.pos1
		for _, i := range b.spans {
			require.GreaterOrEqual(t, l.spans[i].pos0, b.pos0)
			require.Less(t, l.spans[i].pos0, b.pos1)
			entered++
		}
	}
	require.Equal(t, k, pos)
	if l.static {
		require.True(t, slices.IsSortedFunc(l.order, func(a, b int) int { return int(diag[b] - diag[a]) }))
		return
	}
	require.Equal(t, len(l.spans), entered, "every group is entered once")
	for _, s := range l.spans {
		at := s.pos0
		for _, sb := range s.subs { // sub-blocks tile the group's positions and hold exactly their columns
			require.Equal(t, at, sb.pos0)
			at = sb.pos1
			cols := slices.Clone(l.order[sb.pos0:sb.pos1])
			if order == GroupAware {
				require.True(t, slices.IsSortedFunc(cols, func(a, b int) int { return int(diag[b] - diag[a]) }))
			}
			slices.Sort(cols)
			require.Equal(t, s.col0+sb.index*sub, cols[0])
			require.Equal(t, len(cols)-1, cols[len(cols)-1]-cols[0])
		}
		require.Equal(t, s.pos0+s.col1-s.col0, at)
	}
	if order == GroupAware && k >= size {
		full := slices.DeleteFunc(slices.Clone(l.spans), func(s span) bool { return s.col1-s.col0 < size })
		slices.SortFunc(full, func(a, b span) int { return a.pos0 - b.pos0 })
		require.True(t, slices.IsSortedFunc(full, func(a, b span) int {
			return int(slices.Max(diag[b.col0:b.col1]) - slices.Max(diag[a.col0:a.col1]))
		}))
	}
	if order == Natural {
		require.True(t, l.natural())
	}
}
