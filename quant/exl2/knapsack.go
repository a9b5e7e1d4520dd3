package exl2

import (
	"cmp"
	"slices"
)

// The choice is a multiple-choice knapsack. Its relaxation, in which a slot may lie between two options, is solved exactly
// by taking the steps of all convex hulls in order of their efficiency; the efficiency of the step that no longer fits
// is the price of a bit. At that price the best of every slot costs at least as much as any solution, which bounds how
// far an option may lie from it. A search over all slots within that bound, dropping what others beat in both bits and
// cost, then finds the optimum. For hundreds of slots the bound is so small that a cap on the search never matters.

// mostStates caps the partial solutions that are kept after a slot.
const mostStates = 1 << 13

// solve returns the index of the chosen option of every item. The cheapest options together fit the budget.
func solve(items []item, budget int64) []int {
	pick, price := relaxed(items, budget)
	fill(items, pick, budget)
	if price == 0 {
		return pick // everything fits
	}
	if better := search(items, pick, price, budget); better != nil {
		pick = better
	}
	fill(items, pick, budget)
	return pick
}

// step is an edge of a lower convex hull.
type step struct {
	slot, to   int
	bits       int64
	efficiency float64 // cost saved per bit
}

// relaxed takes hull steps in order of efficiency until one does not fit and returns the price of a bit there.
func relaxed(items []item, budget int64) (pick []int, price float64) {
	var steps []step
	for i, it := range items {
		steps = append(steps, it.hull(i)...)
		budget -= it[0].bits
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(b.efficiency, a.efficiency) })
	pick = make([]int, len(items))
	for _, s := range steps {
		if s.bits > budget {
			return pick, s.efficiency
		}
		budget -= s.bits
		pick[s.slot] = s.to
	}
	return pick, 0
}

// hull lists the edges of the lower convex hull of bits and cost.
func (it item) hull(slot int) []step {
	at := []int{0}
	slope := func(a, b int) float64 { return (it[a].cost - it[b].cost) / float64(it[b].bits-it[a].bits) }
	for j := 1; j < len(it); j++ {
		for len(at) > 1 && slope(at[len(at)-2], at[len(at)-1]) <= slope(at[len(at)-1], j) {
			at = at[:len(at)-1]
		}
		at = append(at, j)
	}
	var steps []step
	for n := 1; n < len(at); n++ {
		a, b := at[n-1], at[n]
		steps = append(steps, step{slot, b, it[b].bits - it[a].bits, slope(a, b)})
	}
	return steps
}

// fill spends what is left of the budget: again and again the change of one slot that fits and saves most.
func fill(items []item, pick []int, budget int64) {
	for i, it := range items {
		budget -= it[pick[i]].bits
	}
	for {
		slot, to, most := -1, 0, 0.0
		for i, it := range items {
			for j := pick[i] + 1; j < len(it) && it[j].bits-it[pick[i]].bits <= budget; j++ {
				if saved := it[pick[i]].cost - it[j].cost; saved > most {
					slot, to, most = i, j, saved
				}
			}
		}
		if slot < 0 {
			return
		}
		budget -= items[slot][to].bits - items[slot][pick[slot]].bits
		pick[slot] = to
	}
}

// state is a choice for the first slots. Bits and cost are relative to the option that is best at the price; over is the
// cost by which the choice exceeds that at the price, never negative.
type state struct {
	bits   int64
	cost   float64
	over   float64
	option int32
	from   int32 // state of the slots before
}

// search looks for a solution better than pick; nil when there is none.
func search(items []item, pick []int, price float64, budget int64) []int {
	best := make([]int, len(items))
	limit, room := 0.0, budget // limit: cost of pick, in the end its excess over the bound
	for i, it := range items {
		for j, c := range it {
			if c.priced(price) < it[best[i]].priced(price) {
				best[i] = j
			}
		}
		limit += it[pick[i]].cost - it[best[i]].cost
		room -= it[best[i]].bits
	}
	known := limit
	bound := known + float64(price*float64(room)) // cost + price·bits of pick's excess, were it to use all bits
	layers := make([][]state, 1, len(items)+1)
	layers[0] = []state{{}}
	for i, it := range items {
		layers = append(layers, expand(layers[i], it, best[i], price, bound))
	}
	end := -1
	for n, s := range layers[len(items)] {
		if s.bits <= room && s.cost < known && (end < 0 || s.cost < layers[len(items)][end].cost) {
			end = n
		}
	}
	if end < 0 {
		return nil
	}
	found := make([]int, len(items))
	for i := len(items); i > 0; i-- {
		s := layers[i][end]
		found[i-1], end = int(s.option), int(s.from)
	}
	return found
}

func (c choice) priced(price float64) float64 { return c.cost + float64(price*float64(c.bits)) }

// expand adds one slot to all states, drops those over the bound and those that another beats, and keeps the best.
func expand(states []state, it item, best int, price, bound float64) []state {
	var next []state
	for n, s := range states {
		for j, c := range it {
			over := s.over + (c.priced(price) - it[best].priced(price))
			if over > bound {
				continue
			}
			next = append(next, state{s.bits + c.bits - it[best].bits, s.cost + (c.cost - it[best].cost), over, int32(j), int32(n)})
		}
	}
	slices.SortStableFunc(next, func(a, b state) int { return cmp.Or(cmp.Compare(a.bits, b.bits), cmp.Compare(a.cost, b.cost)) })
	kept := next[:0]
	for _, s := range next {
		if len(kept) == 0 || s.cost < kept[len(kept)-1].cost {
			kept = append(kept, s)
		}
	}
	if len(kept) > mostStates {
		slices.SortStableFunc(kept, func(a, b state) int { return cmp.Compare(a.over, b.over) })
		kept = kept[:mostStates]
	}
	return slices.Clone(kept)
}
