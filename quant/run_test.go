package quant

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/testmodel"
	"github.com/llmquant/quantize/quant/gptq"
)

// models are the synthetic families that every method is tried on.
func models() map[string]testmodel.Config {
	return map[string]testmodel.Config{"llama": testmodel.Llama(), "qwen2": testmodel.Qwen2(), "qwen3moe": testmodel.Qwen3MoE()}
}

// Every method on every family leaves an artifact that opens, decodes close to the source, says how it is stored, and
// carries over what it does not touch.
func TestMethodsOnFamilies(t *testing.T) {
	for family, c := range models() {
		dir := writeModel(t, c)
		for method, r := range recipes() {
			t.Run(family+" "+method, func(t *testing.T) {
				rep, out := runTiny(t, dir, r, options(t))
				require.Equal(t, method, rep.Recipe.Method)
				art, base := openModel(t, out), openModel(t, dir)
				require.NotNil(t, art.Meta().Quant)
				dense := openDense(t, out)
				m, err := arch.Resolve(dense.Meta().Config, dense)
				require.NoError(t, err)
				require.Empty(t, m.Unknown)
				res, err := Verify(context.Background(), dense, base, m, storedIn(dense))
				require.NoError(t, err)
				require.True(t, res.OK, "%+v", res.Tensors)
				require.Len(t, res.Tensors, len(base.Tensors()))
				for _, row := range res.Tensors {
					require.Less(t, row.RelError, 0.25, row.Name)
				}
			})
		}
	}
}

// A tensor that no part of the model names is copied bit for bit and reported.
func TestUnknownTensorsAreCopied(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	extra := tensor.Info{Name: "extra.table", DType: tensor.I32, Shape: []int64{3, 2}}
	addTensor(t, dir, extra, []byte("abcdefghijklmnopqrstuvwx"))
	rep, out := runTiny(t, dir, RTN(4, 32), options(t))
	got := make([]byte, 24)
	require.NoError(t, openModel(t, out).ReadTensor(extra.Name, got, 0))
	require.Equal(t, "abcdefghijklmnopqrstuvwx", string(got))
	require.Len(t, rep.Events, 1)
	require.Equal(t, extra.Name, rep.Events[0].Tensor)
	require.Equal(t, EventFinding, rep.Events[0].Kind)
}

// The report is complete, and its sizes are what lies on disk.
func TestReport(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	o := options(t)
	o.MaxShard = 30_000
	rep, out := runTiny(t, dir, NewAWQ(int4, "awq", AWQOptions{}), o)
	var stored Report
	readJSON(t, filepath.Join(out, ReportName), &stored)
	require.Equal(t, rep.Totals, stored.Totals)
	require.Equal(t, "quantize-report/1", stored.Schema)
	require.Equal(t, ToolInfo{"quantize", "test"}, stored.Tool)
	require.Equal(t, "awq", stored.Recipe.Method)
	require.Equal(t, []string{"awq"}, stored.Recipe.Transforms)
	require.Equal(t, []any{4, 32, false}, []any{stored.Recipe.Bits, stored.Recipe.GroupSize, stored.Recipe.Sym})
	require.Len(t, stored.Inputs, 1)
	require.Equal(t, digests(t, dir)["model.safetensors"], stored.Inputs[0].SHA256)
	require.Positive(t, stored.PeakMemory)
	require.Positive(t, stored.Planned)
	require.Positive(t, stored.Seconds)

	require.Greater(t, len(stored.Files), 2, "the artifact is sharded")
	sums := digests(t, out)
	names := []string{"model.safetensors.index.json"}
	for _, f := range stored.Files {
		require.Equal(t, sums[f.Name], f.SHA256)
		require.Equal(t, onDisk(t, out, f.Name), f.Bytes)
		names = append(names, f.Name)
	}
	require.Equal(t, onDisk(t, out, names...), stored.Totals.OutputBytes)
	checkRows(t, openModel(t, out).Tensors(), openModel(t, dir).Tensors(), &stored)

	cal := stored.Calibration
	require.NotNil(t, cal)
	require.Equal(t, []int{4, 32, 1}, []int{cal.Samples, cal.SeqLen, cal.Documents})
	require.EqualValues(t, 128, cal.TokensUsed)
	require.Equal(t, o.Calib.Hash(), cal.IDsHash)
	require.NotEmpty(t, stored.Engines)
}

// checkRows compares the rows of a report with the tensors of the artifact and of its source.
func checkRows(t *testing.T, out, source []tensor.Info, rep *Report) {
	stored := map[string]int64{}
	for _, info := range out {
		n, _ := info.Bytes()
		stored[info.Name] = n
	}
	var bytes, linears, linearBytes int64
	require.Len(t, rep.Tensors, len(source))
	for i, row := range rep.Tensors {
		info := source[i]
		require.Equal(t, info.Name, row.Name)
		require.Equal(t, info.Shape, row.Shape)
		require.NotEqual(t, string(arch.RoleUnknown), row.Role)
		module := strings.TrimSuffix(row.Name, ".weight")
		want, dense := stored[row.Name]
		if !dense {
			want = stored[module+".qweight"] + stored[module+".qzeros"] + stored[module+".scales"]
			n, _ := info.Elements()
			linears, linearBytes = linears+n, linearBytes+want
			require.Equal(t, "int4 g32 asym", row.Grid)
			require.Positive(t, row.RelError)
			require.Positive(t, row.OutError)
			require.LessOrEqual(t, row.OutError, row.RoundingOutError)
			require.InDelta(t, 4.625, row.BitsPerWeight, 1e-9) // 4 bits, and 16 + 4 bits per group of 32
		}
		require.Equal(t, want, row.Bytes, row.Name)
		bytes += row.Bytes
	}
	var all, roles int64
	for _, info := range source {
		n, _ := info.Elements()
		all += n
	}
	for _, r := range rep.Roles {
		roles += r.Bytes
	}
	require.Equal(t, bytes, roles)
	require.InDelta(t, 8*float64(bytes)/float64(all), rep.Totals.BitsPerWeight, 1e-9)
	require.InDelta(t, 8*float64(linearBytes)/float64(linears), rep.Totals.BitsPerWeightLinear, 1e-9)
	require.Equal(t, len(source), rep.Totals.QuantizedTensors+rep.Totals.KeptTensors)
	require.InDelta(t, float64(rep.Totals.SourceBytes)/float64(rep.Totals.OutputBytes), rep.Totals.Ratio, 1e-9)
}

// A plan that is made without running says what the run then writes.
func TestPlanTellsWhatRunWrites(t *testing.T) {
	dir := writeModel(t, testmodel.Qwen3MoE())
	o := options(t)
	for method, r := range recipes() {
		o.Out = filepath.Join(t.TempDir(), method)
		plan, err := MakePlan(context.Background(), openModel(t, dir), r, o)
		require.NoError(t, err)
		require.NoDirExists(t, o.Out)
		rep, out := runTiny(t, dir, r, o)
		require.Equal(t, rep.Totals.OutputBytes, plan.Disk)
		totals, roles := plan.Totals()
		require.Equal(t, rep.Totals, totals)
		require.Equal(t, rep.Roles, roles)
		require.Equal(t, rep.Engines, plan.Engines)
		for _, f := range plan.Out.Files {
			require.Equal(t, f.Size, onDisk(t, out, f.Name))
		}
	}
}

// The estimate of memory does not grow with the number of layers, grows with windows, and counts at least a block and
// the hidden states.
func TestMemoryEstimate(t *testing.T) {
	estimate := func(layers, n int, r Recipe) int64 {
		c := testmodel.Llama()
		c.Layers = layers
		p, err := MakePlan(context.Background(), openModel(t, writeModel(t, c)), r, Options{Calib: windows(n, 32, 128), Threads: 1})
		require.NoError(t, err)
		return p.Memory
	}
	awq := AWQ(4, 32)
	require.Equal(t, estimate(1, 4, awq), estimate(5, 4, awq))
	more := estimate(2, 4000, awq) - estimate(2, 2000, awq)
	require.GreaterOrEqual(t, more, int64(2000*32*64*4), "2,000 more windows of hidden states")
	require.Greater(t, estimate(2, 4, awq), estimate(2, 4, RTN(4, 32)))
	require.Greater(t, estimate(2, 4, RTN(4, 32)), int64(4*4*64*128))

	_, err := MakePlan(context.Background(), openModel(t, writeModel(t, testmodel.Llama())), awq, Options{Calib: windows(4, 32, 128), Memory: 1 << 20})
	require.ErrorIs(t, err, safeio.ErrLimit)
	require.ErrorContains(t, err, "memory")
}

// An input that is quantized already is refused with its method and a way out.
func TestQuantizedSourceIsRefused(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	for method, r := range recipes() {
		_, out := runTiny(t, dir, r, options(t))
		o := options(t)
		_, err := Run(context.Background(), openModel(t, out), RTN(4, 32), o)
		require.ErrorIs(t, err, safeio.ErrUnsupported, method)
		require.ErrorContains(t, err, "already quantized")
		require.NoDirExists(t, o.Out)
		require.NoDirExists(t, o.Out+".partial")
	}
}

// Copying re-shards and changes nothing else.
func TestCopy(t *testing.T) {
	dir := writeModel(t, testmodel.Qwen2())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte("{}"), 0o644))
	o := options(t)
	o.MaxShard = 20_000
	rep, out := runTiny(t, dir, NewCopy(), o)
	src, dst := openModel(t, dir), openModel(t, out)
	require.Greater(t, len(dst.Meta().Files), 2)
	require.FileExists(t, filepath.Join(out, "generation_config.json"))
	require.Zero(t, rep.Totals.QuantizedTensors)
	for _, info := range src.Tensors() {
		a, err := bytesOf(src, info)
		require.NoError(t, err)
		b, err := bytesOf(dst, info)
		require.NoError(t, err)
		require.Equal(t, a, b, info.Name)
	}
	require.JSONEq(t, string(src.Meta().Config), string(dst.Meta().Config))
}

// Settings that are no quantization of the layout are refused before anything is written.
func TestImpossibleSettings(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	for name, r := range map[string]Recipe{
		"no such layout":    NewRTN(int4, "nonsense"),
		"read-only layout":  NewRTN(int4, "awq_gemv"),
		"dense artifact":    NewRTN(int4, ""),
		"3 bits in AWQ":     NewRTN(packing.Scheme{Grid: "int", Bits: 3, GroupSize: 32}, "awq"),
		"bits out of range": NewGPTQ(packing.Scheme{Grid: "int", Bits: 5, GroupSize: 32}, "gptq", gptq.Best()),
	} {
		o := options(t)
		o.Strict = true
		_, err := Run(context.Background(), openModel(t, dir), r, o)
		require.ErrorIs(t, err, safeio.ErrUnsupported, name)
		require.NoDirExists(t, o.Out)
	}
}
