package tokenizer

import "math"

// scoreOrder maps scores to numbers that ascend as scores descend.
func scoreOrder(score float32) uint64 {
	bits := math.Float32bits(score + 0) // -0 becomes 0
	if bits>>31 == 1 {
		return uint64(bits)
	}
	return uint64(bits ^ 0x7fffffff)
}

// spCandidate is a pair that may be joined: its score and left symbol in one number that orders it, its right symbol,
// and the length of its text.
type spCandidate struct {
	key   uint64
	right int32
	size  int32
}

// spHeap is a binary heap of candidates, smallest key first.
type spHeap []spCandidate

// push adds a candidate.
func (h *spHeap) push(x spCandidate) {
	a := append(*h, x)
	i := len(a) - 1
	for i > 0 {
		up := (i - 1) / 2
		if a[up].key <= x.key {
			break
		}
		a[i] = a[up]
		i = up
	}
	a[i] = x
	*h = a
}

// pop removes the candidate with the smallest key.
func (h *spHeap) pop() spCandidate {
	a := *h
	top, last := a[0], len(a)-1
	x := a[last]
	a = a[:last]
	*h = a
	i := 0
	for {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && a[child+1].key < a[child].key {
			child++
		}
		if a[child].key >= x.key {
			break
		}
		a[i] = a[child]
		i = child
	}
	if last > 0 {
		a[i] = x
	}
	return top
}
