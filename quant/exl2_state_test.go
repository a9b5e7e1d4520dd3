package quant

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/testmodel"
	"github.com/llmquant/quantize/quant/exl2"
)

// A measurement that is stopped behind any layer continues to the same file, also when its states are damaged.
func TestMeasurementResumes(t *testing.T) {
	for _, c := range []testmodel.Config{testmodel.Llama(), testmodel.Qwen3MoE()} {
		c.Layers = 3
		dir := writeModel(t, c)
		measure := func(ctx context.Context, file string) error {
			o := options(t)
			_, err := MeasureEXL2(ctx, openModel(t, dir), o, file)
			return err
		}
		whole := filepath.Join(t.TempDir(), "m.json")
		require.NoError(t, measure(context.Background(), whole))
		want, err := os.ReadFile(whole)
		require.NoError(t, err)
		require.NoDirExists(t, whole+".partial")
		inMemory, err := MeasureEXL2(context.Background(), openModel(t, dir), options(t), "")
		require.NoError(t, err)
		src := openModel(t, dir)
		plan, err := MakePlan(context.Background(), src, NewEXL2(byHand(t, dir, "4 g32"), 6), options(t))
		require.NoError(t, err)
		read, err := ReadMeasurement(whole, plan.Model)
		require.NoError(t, err)
		inMemory.Format = read.Format
		require.Equal(t, inMemory, read)
		for layer := 1; layer < c.Layers; layer++ {
			for _, damage := range []bool{false, true} {
				file := filepath.Join(t.TempDir(), "m.json")
				stopMeasuring(t, dir, file, layer)
				require.NoFileExists(t, file)
				if damage {
					blobs, err := filepath.Glob(filepath.Join(file+".partial", "blob-*"))
					require.NoError(t, err)
					require.NotEmpty(t, blobs)
					for _, b := range blobs {
						require.NoError(t, os.Truncate(b, 100))
					}
				}
				require.NoError(t, measure(context.Background(), file))
				got, err := os.ReadFile(file)
				require.NoError(t, err)
				require.Equal(t, string(want), string(got))
			}
		}
		require.ErrorIs(t, measure(context.Background(), whole), safeio.ErrExists)
	}
}

// stopMeasuring cancels a measurement when it comes to a layer.
func stopMeasuring(t *testing.T, dir, file string, layer int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	o := options(t)
	seen := 0
	o.Events = func(e Event) {
		if e.Kind == EventProgress {
			if seen == layer {
				cancel()
			}
			seen++
		}
	}
	_, err := MeasureEXL2(ctx, openModel(t, dir), o, file)
	require.ErrorIs(t, err, context.Canceled)
}

// A measurement says what it was made from, whatever the directory is called.
func TestMeasurementOrigin(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	o := options(t)
	id, err := MeasuredFrom(context.Background(), openModel(t, dir), o.Calib)
	require.NoError(t, err)
	again, err := MeasuredFrom(context.Background(), openModel(t, writeModel(t, testmodel.Llama())), o.Calib)
	require.NoError(t, err)
	require.Equal(t, id, again)
	require.NoError(t, id.Check(&exl2.Measurement{Model: id.String()}))
	require.NoError(t, id.Check(&exl2.Measurement{}), "ExLlamaV2's")
	other := testmodel.Llama()
	other.Patch = func(name string, values []float32) { values[0]++ }
	changed, err := MeasuredFrom(context.Background(), openModel(t, writeModel(t, other)), o.Calib)
	require.NoError(t, err)
	require.ErrorContains(t, id.Check(&exl2.Measurement{Model: changed.String()}), "another model")
	text, err := MeasuredFrom(context.Background(), openModel(t, dir), windows(5, 32, 128))
	require.NoError(t, err)
	require.ErrorContains(t, id.Check(&exl2.Measurement{Model: text.String()}), "5 windows of 32 tokens")
	require.Error(t, id.Check(&exl2.Measurement{Model: "x"}))
}

// The candidates' targets are known without a measurement.
func TestCheckEXL2Target(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	plan, err := MakePlan(context.Background(), openModel(t, dir), NewEXL2(byHand(t, dir, "4 g32"), 6), options(t))
	require.NoError(t, err)
	require.NoError(t, CheckEXL2Target(plan.Model, 5))
	require.ErrorIs(t, CheckEXL2Target(plan.Model, 1), safeio.ErrUnsupported)
	require.ErrorContains(t, CheckEXL2Target(plan.Model, 30), "too many")
}
