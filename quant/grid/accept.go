package grid

// FlipMargin is the share of a step by which a new code must come closer to the optimum than the old one. It keeps
// rounding noise from flipping codes back and forth, so coordinate descent ends.
const FlipMargin = 1e-3

// Accept is one step of coordinate descent for one column of many rows: it moves q to y where that is nearer to the optimum
// x by the margin, with the codes, and leaves the moves in d, 0 where nothing moved. It reports whether anything did.
func Accept(x, y, q, d []float32, codes, old []uint8) bool {
	any := false
	for j := range x {
		d[j] = 0
		if y[j] == q[j] {
			continue
		}
		// |x−q| − |x−y| > margin·|y−q|, multiplied by |x−q| + |x−y|: no step size is needed
		a, b, step := x[j]-q[j], x[j]-y[j], y[j]-q[j]
		if float32(a*a)-float32(b*b) > FlipMargin*float32(step*step) {
			d[j] = step
			q[j], old[j] = y[j], codes[j]
			any = true
		}
	}
	return any
}
