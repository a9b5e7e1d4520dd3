package kernel

// RoundLevels rounds x[i] to y[i] = scale[i]·q with q the whole number nearest to x[i]/scale[i], ties to even, within
// −zero[i] … top−zero[i], and sets codes[i] to q + zero[i]. Zeros and top are whole and at most 255; all slices are as long
// as x. It is one step of rounding a column of weights to integers, one row per element.
func RoundLevels(y []float32, codes []uint8, x, scale, zero []float32, top float32) {
	active().roundLevels(y, codes, x, scale, zero, top)
}

// FeedbackErrors sets e = (y − x)·inv and adds e² to loss, for slices as long as x: the error of a rounded column as it
// spreads to those behind it, and its share of the loss.
func FeedbackErrors(e, loss, x, y []float32, inv float32) {
	active().feedbackErrors(e, loss, x, y, inv)
}

func (s *set) roundLevels(y []float32, codes []uint8, x, scale, zero []float32, top float32) {
	n := len(x)
	y, codes, scale, zero = y[:n], codes[:n], scale[:n], zero[:n]
	done := s.bursts(n, func(v *vectors, i, n int) { v.roundLevels(&y[i], &codes[i], &x[i], &scale[i], &zero[i], top, n) })
	for i := done; i < n; i++ {
		// Clamping comes first: it commutes with rounding because the ends are whole, and it bounds what is rounded, so that
		// adding 1.5·2^23 pushes the fraction out of the mantissa.
		const magic = 0x1.8p23
		q := float32(min(max(x[i]/scale[i], -zero[i]), top-zero[i])+magic) - magic
		y[i] = scale[i] * q
		codes[i] = uint8(q + zero[i])
	}
}

func (s *set) feedbackErrors(e, loss, x, y []float32, inv float32) {
	n := len(x)
	e, loss, y = e[:n], loss[:n], y[:n]
	done := s.bursts(n, func(v *vectors, i, n int) { v.feedbackErrors(&e[i], &loss[i], &x[i], &y[i], inv, n) })
	for i := done; i < n; i++ {
		v := (y[i] - x[i]) * inv
		e[i] = v
		loss[i] += float32(v * v)
	}
}
