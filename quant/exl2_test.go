package quant

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/internal/testmodel"
	"github.com/llmquant/quantize/quant/exl2"
)

// mixed measures a model and chooses bit widths for a target.
func mixed(t *testing.T, dir string, target float64, threads int) Recipe {
	o := options(t)
	o.Threads = threads
	m, err := MeasureEXL2(context.Background(), openModel(t, dir), o, "")
	require.NoError(t, err)
	choice, err := exl2.Optimize(m.Slots, target)
	require.NoError(t, err)
	return NewEXL2(choice, 6)
}

// The artifact meets its target, decodes close to the source, gets better with more bits, and has one hash at any number
// of threads, interrupted or not.
func TestEXL2(t *testing.T) {
	golden := openGolden(t)
	for _, model := range []string{"llama", "qwen3moe"} {
		dir := writeModel(t, models()[model])
		last := 1.0
		for _, target := range []float64{4, 6} {
			rep, out := runTiny(t, dir, mixed(t, dir, target, 2), options(t))
			require.LessOrEqual(t, rep.Recipe.Settings["bits_per_weight"], target)
			require.Equal(t, "exl2", openModel(t, out).Meta().Quant.Method)
			res, err := verify(t, out, dir)
			require.NoError(t, err)
			require.True(t, res.OK, "%+v", res.Tensors)
			sum, n := 0.0, 0.0
			for _, row := range rep.Tensors {
				require.NotEmpty(t, row.Grid, row.Name)
				if row.OutError > 0 {
					sum, n = sum+row.OutError, n+1
				}
			}
			require.Less(t, sum/n, last, "%s at %g", model, target)
			last = sum / n
		}
		r := mixed(t, dir, 4, 1)
		require.Equal(t, r.Allocation, mixed(t, dir, 4, 3).Allocation)
		golden.compare(model+" exl2 exl2 4 bpw", hashOfRun(t, dir, r, 3), 3)
		o := options(t)
		run := func(ctx context.Context, o Options) error {
			_, err := Run(ctx, openModel(t, dir), r, o)
			return err
		}
		stopBehind(t, interrupted{run: run}, o, 1)
		require.NoError(t, run(context.Background(), o))
		golden.compare(model+" exl2 exl2 4 bpw", treeHash(t, o.Out), o.Threads)
	}
}

// A target below or above what the widths allow says what is possible.
func TestEXL2Targets(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	m, err := MeasureEXL2(context.Background(), openModel(t, dir), options(t), "")
	require.NoError(t, err)
	slots := m.Slots
	for _, target := range []float64{0.5, 1} {
		_, err := exl2.Optimize(slots, target)
		var bad *exl2.TargetError
		require.True(t, errors.As(err, &bad), "%g: %v", target, err)
		require.Greater(t, bad.Least, target)
		require.ErrorContains(t, err, "bits")
	}
	for _, s := range slots {
		require.True(t, strings.HasPrefix(s.Name, "model.layers.") || strings.Contains(s.Name, "layer"), s.Name)
	}
	o := options(t)
	o.Out = filepath.Join(t.TempDir(), "x")
	other := testmodel.Llama()
	other.Layers = 3
	choice, err := exl2.Optimize(slots, 4)
	require.NoError(t, err)
	_, err = Run(context.Background(), openModel(t, writeModel(t, other)), NewEXL2(choice, 6), o)
	require.ErrorContains(t, err, "model.layers.2")
	require.NoDirExists(t, o.Out)
}
