package exl2

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
)

func randomItems(r *rand.Rand, slots, options int) []item {
	items := make([]item, slots)
	for i := range items {
		bits, cost := int64(50+r.IntN(100)), 100*r.Float64()
		for j := range options {
			items[i] = append(items[i], choice{j, bits, cost})
			bits += int64(1 + r.IntN(60))
			cost *= 0.2 + 0.75*r.Float64()
		}
	}
	return items
}

func totals(items []item, pick []int) (bits int64, cost float64) {
	for i, it := range items {
		bits += it[pick[i]].bits
		cost += it[pick[i]].cost
	}
	return bits, cost
}

// exhaustive tries everything.
func exhaustive(items []item, budget int64) float64 {
	if len(items) == 0 {
		return 0
	}
	best := math.Inf(1)
	for _, c := range items[0] {
		if c.bits <= budget {
			best = min(best, c.cost+exhaustive(items[1:], budget-c.bits))
		}
	}
	return best
}

// The solution is the optimum, at every budget.
func TestSolveIsOptimal(t *testing.T) {
	r := newRand(31)
	for range 300 {
		items := randomItems(r, 1+r.IntN(6), 1+r.IntN(5))
		least, most := int64(0), int64(0)
		for _, it := range items {
			least += it[0].bits
			most += it[len(it)-1].bits
		}
		budget := least + r.Int64N(most-least+20)
		bits, cost := totals(items, solve(items, budget))
		require.LessOrEqual(t, bits, budget)
		require.InDelta(t, exhaustive(items, budget), cost, 1e-9)
	}
}

// Hundreds of slots: deterministic, close to the bound of the relaxation, monotone in the budget.
func TestSolveLarge(t *testing.T) {
	items := randomItems(newRand(32), 560, 26)
	last := math.Inf(1)
	for budget := int64(150_000); budget < 500_000; budget += 37_001 {
		pick := solve(items, budget)
		bits, cost := totals(items, pick)
		require.LessOrEqual(t, bits, budget)
		require.Greater(t, float64(bits), 0.995*float64(budget))
		require.LessOrEqual(t, cost, last)
		require.Equal(t, pick, solve(items, budget))
		last = cost
		relax, price := relaxed(items, budget)
		rb, rc := totals(items, relax)
		require.LessOrEqual(t, cost, rc)
		require.Less(t, cost, 1.001*(rc-price*float64(budget-rb))+1e-9, "above the relaxation's bound")
	}
}

func TestHull(t *testing.T) {
	it := item{{0, 10, 100}, {1, 20, 90}, {2, 30, 40}, {3, 40, 38}, {4, 50, 10}}
	require.Equal(t, []step{{7, 2, 20, 3}, {7, 4, 20, 1.5}}, it.hull(7))
	s := Slot{Sensitivity: 2, Options: []Option{{Bits: 30, Error: 1}, {Bits: 10, Error: 3}, {Bits: 20, Error: 3}, {Bits: 10, Error: 4}}}
	require.Equal(t, item{{1, 10, 6}, {0, 30, 2}}, s.item(), "options that another beats are dropped")
}

// slots makes a model of linears whose error falls with the bits as errors do.
func slots(t testing.TB, n int) []Slot {
	t.Helper()
	r := newRand(33)
	var all []Slot
	for i := range n {
		m := Module{Name: "model.layers." + string(rune('a'+i)), Out: 64 + 32*r.IntN(3), In: 256}
		cands, err := Candidates(m.In)
		require.NoError(t, err)
		var measured []Measured
		for _, c := range cands {
			bits := c.Bits(m.Out, m.In)
			measured = append(measured, Measured{c, bits, math.Exp2(-2 * float64(bits) / float64(m.Out*m.In))})
		}
		s, err := NewSlot(m.Name, []Module{m}, [][]Measured{measured}, nil)
		require.NoError(t, err)
		s.Sensitivity = math.Exp(r.NormFloat64())
		all = append(all, s)
	}
	return all
}

func TestOptimize(t *testing.T) {
	all := slots(t, 20)
	for _, target := range []float64{2.5, 3, 3.5, 4, 5, 6, 7.3} {
		c, err := Optimize(all, target)
		require.NoError(t, err)
		require.LessOrEqual(t, c.Reached, target)
		require.Greater(t, c.Reached, 0.995*target)
		again := Choice{Modules: c.Modules}
		require.NoError(t, again.Complete(all))
		require.InDelta(t, c.Reached, again.Reached, 1e-12)
		require.InDelta(t, c.Predicted, again.Predicted, 1e-12)
	}
	_, err := Optimize(all, 2)
	var low *TargetError
	require.ErrorAs(t, err, &low)
	require.ErrorIs(t, err, safeio.ErrUnsupported)
	require.ErrorContains(t, err, "the smallest possible target is 2.")
	c, err := Optimize(all, math.Ceil(low.Least*1000)/1000)
	require.NoError(t, err, "the target that the error names is possible")
	require.InDelta(t, low.Least, c.Reached, 0.01)
	_, err = Optimize(all, 9)
	require.ErrorContains(t, err, "the largest possible target is 8.")
	_, err = Optimize(all, math.NaN())
	require.Error(t, err)
	_, err = Optimize(nil, 4)
	require.Error(t, err)
	all[3].Options[2].Error = math.NaN()
	_, err = Optimize(all, 4)
	require.ErrorIs(t, err, safeio.ErrCorrupt)
}

// Choices made by hand may use any legal candidate, measured or not.
func TestChoicesByHand(t *testing.T) {
	all := slots(t, 2)
	c := Choice{Modules: map[string]Candidate{"model.layers.a": mustCandidate(t, "6/4/2 20/30/50 g96"), "model.layers.b": mustCandidate(t, "4 g128")}}
	require.NoError(t, c.Complete(all))
	bits := float64(c.Modules["model.layers.a"].Bits(all[0].Modules[0].Out, 256) + c.Modules["model.layers.b"].Bits(all[1].Modules[0].Out, 256))
	require.InDelta(t, bits/float64(all[0].Weights()+all[1].Weights()), c.Reached, 1e-12)
	c.Modules["model.layers.c"] = mustCandidate(t, "4 g128")
	require.ErrorContains(t, c.Complete(all), "no linear of the model that can be quantized")
	delete(c.Modules, "model.layers.c")
	delete(c.Modules, "model.layers.a")
	require.ErrorContains(t, c.Complete(all), "says nothing about model.layers.a")
	dense := mustCandidate(t, "dense")
	require.True(t, dense.Dense())
	require.Equal(t, "dense", dense.String())
	c.Modules["model.layers.a"] = dense
	require.NoError(t, c.Complete(all))
	wide := 16 * float64(all[0].Modules[0].Out*256)
	require.InDelta(t, (wide+float64(c.Modules["model.layers.b"].Bits(all[1].Modules[0].Out, 256)))/float64(all[0].Weights()+all[1].Weights()), c.Reached, 1e-12)
	for i := range all { // without a measurement
		all[i].Options = nil
	}
	require.NoError(t, c.Complete(all))
	require.Zero(t, c.Predicted)
	all[0].Modules[0].In = 100
	require.ErrorContains(t, c.Complete(all), "cannot be stored")
}

func TestSensitivities(t *testing.T) {
	all := slots(t, 4)
	names := []string{all[0].Name, all[1].Name, all[2].Name}
	SetSensitivities(all, nil)
	SetSensitivities(all, []Sensitivity{{names[0], 0.1, 3, 0.2}, {names[1], 0.1, 4, 0.6}, {names[2], 0.1, 5, 0}})
	require.InDeltaSlice(t, []float64{2, 6, 0.006, 6}, []float64{all[0].Sensitivity, all[1].Sensitivity, all[2].Sensitivity, all[3].Sensitivity}, 1e-9)
	SetSensitivities(all, []Sensitivity{{names[0], 0.1, 3, 0}, {names[1], 0, 4, 0}, {names[2], 0.1, math.Inf(1), 0}})
	require.InDeltaSlice(t, []float64{30, 0.03, 0.03, 30}, []float64{all[0].Sensitivity, all[1].Sensitivity, all[2].Sensitivity, all[3].Sensitivity}, 1e-9)
}

// The experts of a layer are one slot: bits add up, errors are averaged.
func TestExpertSlot(t *testing.T) {
	a, b := mustCandidate(t, "3 g32"), mustCandidate(t, "4 g32")
	modules := []Module{{"e0", 32, 64}, {"e1", 64, 64}}
	measured := [][]Measured{{{a, a.Bits(32, 64), 0.2}, {b, b.Bits(32, 64), 0.1}}, {{a, a.Bits(64, 64), 0.4}, {b, b.Bits(64, 64), 0.2}}}
	s, err := NewSlot("experts", modules, measured, []float64{1, 3})
	require.NoError(t, err)
	require.EqualValues(t, 96*64, s.Weights())
	require.InDelta(t, 0.35, s.Options[0].Error, 1e-12)
	require.Equal(t, b.Bits(32, 64)+b.Bits(64, 64), s.Options[1].Bits)
	c, err := Optimize([]Slot{s}, 8)
	require.ErrorContains(t, err, "largest")
	require.Nil(t, c)
	c, err = Optimize([]Slot{s}, float64(s.Options[1].Bits)/float64(s.Weights())-0.2)
	require.NoError(t, err)
	require.Equal(t, map[string]Candidate{"e0": a, "e1": a}, c.Modules)
	slices.Reverse(measured[1])
	_, err = NewSlot("experts", modules, measured, nil)
	require.ErrorContains(t, err, "different candidates")
	_, err = NewSlot("experts", nil, nil, nil)
	require.Error(t, err)
}
