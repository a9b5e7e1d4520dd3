package quant

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/internal/testmodel"
	"github.com/llmquant/quantize/quant/exl2"
)

// Inputs that leave little to work with: one token, widths that no group divides, outputs that no 32 divides, weights at
// both ends of the range of halves. Measuring and quantizing end in a directory that loads.
func TestEXL2PoorInputs(t *testing.T) {
	wide := oddLlama()
	wide.Hidden, wide.Inter, wide.Heads = 96, 160, 6
	extreme := oddLlama()
	extreme.Patch = func(name string, values []float32) {
		switch name {
		case "model.layers.0.mlp.gate_proj.weight":
			for i := range values {
				values[i] *= 1e-8
			}
		case "model.layers.0.self_attn.k_proj.weight":
			clear(values)
		case "model.layers.1.mlp.up_proj.weight":
			values[5] = 6e4
		}
	}
	for name, x := range map[string]struct {
		c               testmodel.Config
		windows, seqLen int
	}{"one token": {oddLlama(), 1, 1}, "widths": {wide, 2, 16}, "weights": {extreme, 2, 16}} {
		dir := writeModel(t, x.c)
		o := options(t)
		o.Calib = windows(x.windows, x.seqLen, 128)
		m, err := MeasureEXL2(context.Background(), openModel(t, dir), o, "")
		require.NoError(t, err, name)
		choice, err := exl2.Optimize(m.Slots, 6)
		require.NoError(t, err, name)
		_, out := runTiny(t, dir, NewEXL2(choice, 6), o)
		requireLoads(t, out)
	}
}

// An expert that no token reached is measured and rounded by its weights alone; the report says so, --strict refuses.
func TestEXL2SilentExpert(t *testing.T) {
	dir := writeModel(t, testmodel.Qwen3MoE())
	m, err := MeasureEXL2(context.Background(), openModel(t, dir), options(t), "")
	require.NoError(t, err)
	for _, s := range m.Slots {
		for _, o := range s.Options {
			require.False(t, math.IsNaN(o.Error), s.Name)
		}
		if strings.Contains(s.Name, "experts") {
			require.Len(t, s.Modules, 4, "one decision for all experts")
		}
	}
	choice, err := exl2.Optimize(m.Slots, 5)
	require.NoError(t, err)
	rep, out := runTiny(t, dir, NewEXL2(choice, 6), options(t))
	requireLoads(t, out)
	silent := 0
	for _, row := range rep.Tensors {
		if strings.Contains(row.Fallback, "no calibration token reached this expert") {
			require.Contains(t, row.Name, "experts.3.")
			said := 0
			for _, e := range rep.Events {
				if e.Kind == EventFallback && e.Tensor == row.Name {
					said++
				}
			}
			require.Equal(t, 1, said, row.Name)
			silent++
		}
	}
	require.Equal(t, 6, silent)
	o := options(t)
	o.Strict = true
	_, err = Run(context.Background(), openModel(t, dir), NewEXL2(choice, 6), o)
	require.ErrorContains(t, err, "--strict")
}

// Statistics that cannot be used do not reach the weights: the identity takes the place of the Hessian, and the weight
// itself that of a target that left the range of halves.
func TestEXL2PoorStatistics(t *testing.T) {
	const out, in = 40, 64
	groups, err := exl2.ParseCandidate("4 g32")
	require.NoError(t, err)
	w := make([]float32, out*in)
	for i := range w {
		w[i] = float32(math.Sin(float64(i)))
	}
	good := func() *Stats {
		st := &Stats{K: in, Tokens: 100, Gram: make([]float64, in*in), shift: make([]float32, in*in)}
		for i := range in {
			st.Gram[i*(in+1)] = 1 + float64(i)/in
		}
		return st
	}
	lin := &arch.Linear{Name: "m", Out: out, In: in}
	for name, spoil := range map[string]func(*Stats){
		"none":      func(*Stats) {},
		"NaN":       func(s *Stats) { s.Gram[3] = math.NaN() },
		"zero":      func(s *Stats) { clear(s.Gram) },
		"rank one":  func(s *Stats) { fill(s.Gram, 1) },
		"NaN shift": func(s *Stats) { s.shift[7] = float32(math.NaN()) },
		"far":       func(s *Stats) { fill(s.shift, 1e30) },
	} {
		st := good()
		spoil(st)
		m := &Matrix{Linear: lin, Scheme: groups.Scheme(in), W: w, Layer: &Layer{pool: kernel.NewPool(2)}}
		var rec recorder
		ctx := context.WithValue(context.Background(), eventKey{}, rec.add)
		q, err := EXL2{exl2.Best()}.Round(ctx, m, st)
		require.NoError(t, err, name)
		layout, _ := packing.Lookup(exl2Name)
		require.NoError(t, packing.Validate(q, layout), name)
		require.Equal(t, name == "NaN" || name == "zero", len(rec.of(EventFallback)) == 1, name)
		require.Equal(t, float32(math.Sin(1)), w[1], "the weight itself is left alone")
	}
}

func fill[T float32 | float64](m []T, v T) {
	for i := range m {
		m[i] = v
	}
}
