package gptq

// Order is the order in which feedback visits columns. Codes are always stored in natural order with k/g groups.
type Order uint8

// The orders.
const (
	Natural Order = iota
	// GroupAware sorts groups by their largest diagonal of H, sub-blocks within a group and columns within those alike,
	// all descending. Groups stay whole, so parameters are still chosen on entry.
	GroupAware
	// ActOrder sorts all columns by the diagonal of H, descending. Group parameters are then fixed beforehand, from the
	// original weights ("static groups").
	ActOrder
	// Indexed sorts all columns like ActOrder and forms the groups in that order, chosen as it goes; the result says in
	// GIdx which group a column belongs to. Only layouts that store it can hold that, and fewer engines every year load it.
	Indexed
)

// Fit is the way group parameters are chosen when feedback enters a group.
type Fit uint8

// The fits.
const (
	// LookAhead tries the grid's candidates with feedback inside the group and keeps the best of each row.
	LookAhead Fit = iota
	// Boundary fits to the weights as they were at the start of the 128-column block, without the updates of earlier
	// groups of the same block: what the reference implementations do for groups below 128.
	Boundary
	// Current fits to the weights with all updates so far.
	Current
)

// Options steer a solve. The zero value is not useful; start from Plain, Normal, Best or Reference.
type Options struct {
	Damp   float64 // λ as a share of the mean diagonal of H
	Order  Order
	Fit    Fit
	Passes int // refinement passes; 0: plain GPTQ
	Inner  int // rounds of refit and descent per block and pass
	// Restarts runs feedback again with the refined parameters, refines once more and keeps the better rows.
	Restarts int
	// Guard replaces rows that came out worse than plain rounding.
	Guard bool
	// Rho scales the shift of the target where Stats.Half is nil: 0 none, 1 full.
	Rho float64
}

// Plain returns the options for error feedback alone, as published but for the search of scales with feedback inside
// each group: a fraction of the work.
func Plain() Options {
	return Options{Damp: 0.01, Order: GroupAware, Fit: LookAhead}
}

// Normal returns the options that take most of what refinement can give for half of its work.
func Normal() Options {
	return Options{Damp: 0.01, Order: GroupAware, Fit: LookAhead, Passes: 2, Inner: 2, Guard: true, Rho: 0.5}
}

// Best returns the options for the lowest error in files of the same size.
func Best() Options {
	return Options{Damp: 0.01, Order: GroupAware, Fit: LookAhead, Passes: 4, Inner: 2, Restarts: 1, Guard: true, Rho: 0.5}
}

// Reference returns the options that reproduce GPTQ as published and as GPTQModel runs it, given a grid without search.
func Reference(damp float64, order Order) Options {
	return Options{Damp: damp, Order: order, Fit: Boundary}
}

// feedbackBlock is the number of columns after which updates are carried to the rest of the row (lazily, as one matrix
// product). It is GPTQ's block size and decides which weights Boundary sees.
const feedbackBlock = 128

// lookAheadMost is the longest group whose candidates are tried with feedback inside; longer ones are fitted on entry.
const lookAheadMost = 256

// descentBlock is the most columns whose residual is kept up to date between matrix products during refinement.
const descentBlock = 256
