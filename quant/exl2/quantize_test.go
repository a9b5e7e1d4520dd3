package exl2

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 3)) }

// problem makes a weight and the Hessian of correlated inputs of unequal power.
func problem(seed uint64, out, k int) (w []float32, h []float64) {
	r := newRand(seed)
	tokens := 2 * k
	power, hidden := make([]float64, k), make([]float64, 8*k)
	for i := range power {
		power[i] = math.Exp(0.7 * r.NormFloat64())
	}
	for i := range hidden {
		hidden[i] = r.NormFloat64()
	}
	h = make([]float64, k*k)
	x := make([]float64, k)
	for range tokens {
		var z [8]float64
		for i := range z {
			z[i] = r.NormFloat64()
		}
		for i := range x {
			x[i] = r.NormFloat64()
			for j, v := range z {
				x[i] += 0.5 * v * hidden[8*i+j]
			}
			x[i] *= power[i]
		}
		for i, a := range x {
			for j, b := range x {
				h[i*k+j] += a * b / float64(tokens)
			}
		}
	}
	w = make([]float32, out*k)
	for i := range w {
		w[i] = float32(0.02 * r.NormFloat64())
	}
	return w, h
}

// lossOf recomputes the loss in float64 from what is stored.
func lossOf(t testing.TB, h []float64, damp float64, w []float32, l *packing.Linear) float64 {
	t.Helper()
	k, q := l.In, make([]float32, len(w))
	require.NoError(t, l.Dequantize(q, 0, l.Out))
	mean := 0.0
	for i := range k {
		mean += h[i*(k+1)] / float64(k)
	}
	loss := 0.0
	d := make([]float64, k)
	for n := range l.Out {
		for i := range d {
			d[i] = float64(w[n*k+i]) - float64(q[n*k+i])
		}
		for i, a := range d {
			sum := damp * mean * a
			for j, b := range d {
				sum += h[i*k+j] * b
			}
			loss += a * sum
		}
	}
	return loss
}

func prepared(t testing.TB, k int, h []float64, o Options) *Prepared {
	t.Helper()
	p, err := Prepare(kernel.NewPool(2), k, h, o)
	require.NoError(t, err)
	return p
}

func quantized(t testing.TB, p *Prepared, w []float32, out int, candidate string) (*packing.Linear, Report) {
	t.Helper()
	l, rep, err := p.Quantize(context.Background(), kernel.NewPool(2), w, out, mustCandidate(t, candidate).Groups(p.k))
	require.NoError(t, err)
	return l, rep
}

var tried = []string{"2 g64", "3/2 50/50 g64", "4/3 25/75 g32", "4 g128", "5 g32", "8/6/5 10/30/60 g32", "8 g128"}

// The result is a file that the layout takes and reads back; the report's loss is that of what is stored; more bits and
// more work give less.
func TestQuantize(t *testing.T) {
	const out, k = 70, 160
	w, h := problem(1, out, k)
	layout, _ := packing.Lookup("exl2")
	plain := Options{Damp: 0.01}
	last := math.Inf(1)
	for _, c := range tried {
		p := prepared(t, k, h, Best())
		l, rep := quantized(t, p, w, out, c)
		require.NoError(t, packing.Validate(l, layout), c)
		require.Equal(t, mustCandidate(t, c).Bits(out, k), rep.Bits)
		require.Empty(t, rep.Fallback)
		require.InEpsilon(t, lossOf(t, h, rep.Damp, w, l), rep.Loss, 1e-3, c)
		_, feedback := quantized(t, prepared(t, k, h, plain), w, out, c)
		require.Less(t, rep.Loss, feedback.Loss, c)
		require.Less(t, feedback.Loss, 0.9*feedback.NearestLoss, c)
		require.Less(t, rep.Loss, last, c)
		last = rep.Loss
	}
}

// The bytes do not depend on the number of threads, nor on what was solved before.
func TestThreadsAndHistory(t *testing.T) {
	const out, k = 150, 96
	w, h := problem(2, out, k)
	for _, c := range tried {
		groups := mustCandidate(t, c).Groups(k)
		var want *packing.Linear
		used := prepared(t, k, h, Best())
		quantized(t, used, w, out, "4/2 50/50 g32")
		for threads := range 4 {
			p := used
			if threads != 2 {
				p = prepared(t, k, h, Best())
			}
			l, _, err := p.Quantize(context.Background(), kernel.NewPool(threads), w, out, groups)
			require.NoError(t, err)
			if want == nil {
				want = l
			}
			require.Equal(t, want, l)
		}
	}
}

// Coarse groups are visited first where inputs have similar power, and that beats visiting packed rows as they lie; strong
// inputs come before them.
func TestCoarseGroupsFirst(t *testing.T) {
	const out, k = 64, 128
	mixed := []packing.EXL2Group{{Bits: 8, Rows: 32}, {Bits: 4, Rows: 32}, {Bits: 4, Rows: 32}, {Bits: 2, Rows: 32}}
	w, h := problem(3, out, k)
	flat, strong := slices.Clone(h), slices.Clone(h)
	for i := range h {
		flat[i] /= math.Sqrt(h[i/k*(k+1)] * h[i%k*(k+1)])
		strong[i] = flat[i]
		if i/k < 10 {
			strong[i] *= 2000
		}
		if i%k < 10 {
			strong[i] *= 2000
		}
	}
	p := prepared(t, k, flat, Options{Damp: 0.01})
	require.Equal(t, []int{3, 1, 2, 0}, p.visits(mixed))
	require.Equal(t, []int{0, 3, 1, 2}, prepared(t, k, strong, Options{Damp: 0.01}).visits(mixed))

	groups := mustCandidate(t, "4/3 50/50 g32").Groups(k)
	asTheyLie := *p.factor(nil, p.h, p.perm)
	for i := range groups {
		asTheyLie.visit = append(asTheyLie.visit, i)
	}
	a := p.arrange(nil, groups).solve(context.Background(), nil, Matrix{w, out}, groups, p.opt, nil)
	b := asTheyLie.solve(context.Background(), nil, Matrix{w, out}, groups, p.opt, nil)
	t.Logf("coarse first %.4g, as they lie %.4g", a.loss, b.loss)
	require.Less(t, a.loss, 0.95*b.loss)
}

// With a Hessian that is a multiple of the identity there is nothing to feed back: the result is plain rounding.
func TestIdentity(t *testing.T) {
	const out, k = 20, 64
	w, _ := problem(4, out, k)
	h := make([]float64, k*k)
	for i := range k {
		h[i*(k+1)] = 3
	}
	want, rep := quantized(t, prepared(t, k, nil, Best()), w, out, "4/3 50/50 g32")
	require.Contains(t, rep.Fallback, "no calibration statistics")
	require.Equal(t, rep.Loss, rep.NearestLoss)
	got, rep := quantized(t, prepared(t, k, h, Options{Damp: 0.01}), w, out, "4/3 50/50 g32")
	require.Empty(t, rep.Fallback)
	require.Equal(t, want.Codes, got.Codes)
	require.Equal(t, want.EXL2, got.EXL2)
	for k, row := range want.EXL2.Row {
		require.EqualValues(t, k, row, "natural order")
	}
}

// Hessians that cannot be used are replaced by the identity, with the reason.
func TestBadHessians(t *testing.T) {
	const out, k = 8, 32
	w, h := problem(5, out, k)
	for want, spoil := range map[string]func(h []float64){
		"NaN":          func(h []float64) { h[5] = math.NaN() },
		"+Inf":         func(h []float64) { h[k+1] = math.Inf(1) },
		"negative":     func(h []float64) { h[0] = -1 },
		"no calibrat":  func(h []float64) { clear(h) },
		"mean diag":    func(h []float64) { clear(h); h[0] = 1e-310 },
		"cannot be fa": func(h []float64) { h[1], h[k] = 1e9, 1e9 },
	} {
		bad := slices.Clone(h)
		spoil(bad)
		_, rep := quantized(t, prepared(t, k, bad, Best()), w, out, "4/3 50/50 g32")
		require.Contains(t, rep.Fallback, want)
	}
	_, err := Prepare(nil, k, h[1:], Best())
	require.ErrorIs(t, err, safeio.ErrCorrupt)

	// One token: rank one. Damping carries it.
	for i := range h {
		h[i] = 1
	}
	_, rep := quantized(t, prepared(t, k, h, Best()), w, out, "3 g32")
	require.Empty(t, rep.Fallback)
	require.Less(t, rep.Loss, rep.NearestLoss)

	// A channel that was never active keeps its weights, rounded.
	_, h = problem(5, out, k)
	for i := range k {
		h[7*k+i], h[i*k+7] = 0, 0
	}
	l, rep := quantized(t, prepared(t, k, h, Best()), w, out, "8 g32")
	require.Equal(t, 1, rep.Dead)
	require.EqualValues(t, k-1, l.EXL2.Row[7])
	q := make([]float32, len(w))
	require.NoError(t, l.Dequantize(q, 0, out))
	for n := range out {
		require.InDelta(t, w[n*k+7], q[n*k+7], 0.01)
	}
}

// Weights at the ends of the range of half floats.
func TestExtremeWeights(t *testing.T) {
	const out, k = 33, 64
	base, h := problem(6, out, k)
	layout, _ := packing.Lookup("exl2")
	for _, scale := range []float32{0, 1e-9, 1e-7, 1e-5, 1e-3, 1, 1e4, 8e5} {
		for _, c := range []string{"2 g32", "4 g64", "8 g32"} {
			w := slices.Clone(base)
			for i := range w {
				w[i] = min(max(w[i]*scale, -largest), largest)
			}
			w[3] = -w[3]
			clear(w[5*k : 6*k]) // an output without weights
			l, rep := quantized(t, prepared(t, k, h, Best()), w, out, c)
			require.NoError(t, packing.Validate(l, layout), "%g %s", scale, c)
			require.False(t, math.IsNaN(rep.Loss))
			q := make([]float32, len(w))
			require.NoError(t, l.Dequantize(q, 0, out))
			for i := 5 * k; i < 6*k; i++ {
				require.Zero(t, q[i])
			}
			if scale >= 1e-3 {
				require.Less(t, rep.Loss, 0.3*rep.Power, "%g %s", scale, c)
			}
		}
	}
	p := prepared(t, k, h, Best())
	for _, bad := range []float32{65520, float32(math.Inf(-1)), float32(math.NaN())} {
		w := slices.Clone(base)
		w[2*k+1] = bad
		_, _, err := p.Quantize(context.Background(), nil, w, out, mustCandidate(t, "4 g32").Groups(k))
		require.ErrorIs(t, err, safeio.ErrUnsupported)
		require.ErrorContains(t, err, "output 2, input 1")
	}
	_, _, err := p.Quantize(context.Background(), nil, base[1:], out, mustCandidate(t, "4 g32").Groups(k))
	require.ErrorIs(t, err, safeio.ErrCorrupt)
	_, _, err = p.Quantize(context.Background(), nil, base, out, mustCandidate(t, "4 g32").Groups(96))
	require.ErrorContains(t, err, "more than the 64")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err = p.Quantize(ctx, nil, base, out, mustCandidate(t, "4 g32").Groups(k))
	require.ErrorIs(t, err, context.Canceled)
}

// The largest step that the tables choose is about as good as the best of a fine search by exhaustion.
func TestMaxima(t *testing.T) {
	const out, k = 96, 64
	for seed := range uint64(3) {
		w, h := problem(10+seed, out, k)
		for n := range out { // outputs of unequal size
			f := float32(math.Exp(0.5 * newRand(seed+uint64(n)).NormFloat64()))
			for i := range k {
				w[n*k+i] *= f
			}
		}
		for _, c := range []string{"2 g64", "3 g32", "4 g32"} {
			p := prepared(t, k, h, Options{Damp: 0.01})
			groups := mustCandidate(t, c).Groups(k)
			a := p.arrange(nil, groups)
			chosen := a.maxima(nil, w, out, groups)
			total := func(st []steps) float64 {
				sum, pos := 0.0, 0
				for g := range groups {
					for i := range 2 {
						x := a.load(w, out, i).Cut(pos, pos+groups[g].Rows)
						tl := &tile{arrangement: a, rows: x.Rows, spans: []span{{steps: st[g], pos0: pos}}, scale: make([]uint8, x.Rows)}
						loss := make([]float32, x.Rows)
						tl.choose(0, x, nil)
						tl.try(&tl.spans[0], x, x, nil, tl.scale, loss)
						for _, v := range loss {
							sum += float64(v)
						}
					}
					pos += groups[g].Rows
				}
				return sum
			}
			best := make([]steps, len(groups))
			for g := range groups {
				least := math.Inf(1)
				for f := 0.5; f < 2; f *= 1.02 {
					trial := slices.Clone(chosen)
					trial[g] = newSteps(groups[g].Bits, chosen[g].size[15]*float32(f))
					if v := total(trial); v < least {
						least, best[g] = v, trial[g]
					}
				}
			}
			require.Less(t, total(chosen), 1.08*total(best), "%s seed %d", c, seed)
		}
	}
}

// Refinement never raises the loss, and what it leaves alone it leaves alone again.
func TestRefine(t *testing.T) {
	const out, k = 64, 128
	w, h := problem(7, out, k)
	for _, c := range []string{"2 g64", "4/3 50/50 g32"} {
		p := prepared(t, k, h, Options{Damp: 0.01, Passes: 1, Inner: 3})
		groups := mustCandidate(t, c).Groups(k)
		a := p.arrange(nil, groups)
		tl := newTile(a, p.opt, a.spans(nil, w, out, groups, p.opt), a.load(w, out, 0))
		tl.feedback()
		sum := func() (s float64) {
			for _, v := range tl.losses(tl.q) {
				s += v
			}
			return s
		}
		last, passes := sum(), 0
		for tl.refine() > 0 {
			now := sum()
			require.Less(t, now, last*(1+1e-5), fmt.Sprintf("%s pass %d", c, passes))
			last = now
			passes++
			require.Less(t, passes, 200)
		}
		codes := slices.Clone(tl.codes)
		require.Zero(t, tl.refine())
		require.Equal(t, codes, tl.codes)
		// The values are those of the codes.
		for i, s := range tl.spans {
			for pos := s.pos0; pos < s.pos1; pos++ {
				for r, q := range tl.col(pos) {
					require.Equal(t, packing.EXL2Value(q, s.bits, s.size[tl.scales(i)[r]]), tl.q.Col(pos)[r])
				}
			}
		}
	}
}
