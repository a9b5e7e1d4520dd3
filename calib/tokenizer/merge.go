package tokenizer

// mergeShort joins the symbols of sc.ids by looking for the lowest rank after every join: quadratic, and the fastest
// way for the lengths of ordinary words.
func (m *bpe) mergeShort(sc *scratch) {
	n := len(sc.ids)
	ids := sc.ids
	sc.rank, sc.into = grown(sc.rank, n), grown(sc.into, n)
	rank, into := sc.rank[:n], sc.into[:n]
	for i := 0; i+1 < n; i++ {
		rank[i], into[i] = m.pairs.get(ids[i], ids[i+1])
	}
	for n > 1 {
		best, at := uint32(noRank), 0
		for i, r := range rank[:n-1] {
			if r < best {
				best, at = r, i
			}
		}
		if best == noRank {
			break
		}
		ids[at] = into[at]
		copy(ids[at+1:n-1], ids[at+2:n])
		copy(rank[at:n-2], rank[at+1:n-1]) // the pair that began with the joined symbol's right half moves here
		copy(into[at:n-2], into[at+1:n-1])
		n--
		if at+1 < n {
			rank[at], into[at] = m.pairs.get(ids[at], ids[at+1])
		}
		if at > 0 {
			rank[at-1], into[at-1] = m.pairs.get(ids[at-1], ids[at])
		}
	}
	sc.dst = append(sc.dst, ids[:n]...)
}

// mergeLong does the same with a heap of candidates in O(n log n). Symbols are a linked list; a candidate is its rank
// and its left symbol's position, so that the smallest candidate is the one to join next. Candidates are not removed
// when a neighbour changes: a popped one counts only if its pair still has that rank there.
func (m *bpe) mergeLong(sc *scratch) {
	n := len(sc.ids)
	ids := sc.ids
	sc.prev, sc.next = grown(sc.prev, n), grown(sc.next, n)
	prev, next := sc.prev[:n], sc.next[:n]
	sc.heap = sc.heap[:0]
	for i := range n {
		prev[i], next[i] = int32(i)-1, int32(i)+1
		if i+1 < n {
			if r, _ := m.pairs.get(ids[i], ids[i+1]); r != noRank {
				sc.heap = append(sc.heap, candidate(r, int32(i)))
			}
		}
	}
	sc.heap.init()
	for len(sc.heap) > 0 {
		top := sc.heap.pop()
		at := int32(uint32(top))
		right := next[at]
		if ids[at] < 0 || right == int32(n) {
			continue
		}
		r, id := m.pairs.get(ids[at], ids[right])
		if r != uint32(top>>32) {
			continue
		}
		ids[at], ids[right] = id, -1
		next[at] = next[right]
		if next[at] < int32(n) {
			prev[next[at]] = at
			if r, _ := m.pairs.get(id, ids[next[at]]); r != noRank {
				sc.heap.push(candidate(r, at))
			}
		}
		if p := prev[at]; p >= 0 {
			if r, _ := m.pairs.get(ids[p], id); r != noRank {
				sc.heap.push(candidate(r, p))
			}
		}
	}
	for i := int32(0); i < int32(n); i = next[i] {
		sc.dst = append(sc.dst, ids[i])
	}
}

// candidate packs a candidate so that numbers order by rank first and position second.
func candidate(rank uint32, at int32) uint64 { return uint64(rank)<<32 | uint64(uint32(at)) }

// grown returns s with room for n elements; what they hold is not kept.
func grown[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n+n/4)
	}
	return s[:cap(s)]
}

// minHeap is a binary heap of candidates, smallest first.
type minHeap []uint64

// init orders a heap that was filled by appending.
func (h minHeap) init() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

// push adds a candidate.
func (h *minHeap) push(x uint64) {
	a := append(*h, x)
	i := len(a) - 1
	for i > 0 {
		up := (i - 1) / 2
		if a[up] <= x {
			break
		}
		a[i] = a[up]
		i = up
	}
	a[i] = x
	*h = a
}

// pop removes the smallest candidate.
func (h *minHeap) pop() uint64 {
	a := *h
	top := a[0]
	last := len(a) - 1
	a[0] = a[last]
	*h = a[:last]
	if last > 0 {
		h.down(0)
	}
	return top
}

// down lets the element at i sink to its place.
func (h minHeap) down(i int) {
	x := h[i]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if h[child] >= x {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = x
}
