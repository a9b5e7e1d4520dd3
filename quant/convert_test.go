package quant

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/testmodel"
	"github.com/llmquant/quantize/quant/gptq"
)

// convert changes the layout of an artifact and returns the new one's path.
func convert(t *testing.T, path, layout string, d tensor.DType) (string, error) {
	dense := openDense(t, path)
	o := Options{Out: filepath.Join(t.TempDir(), "converted"), Threads: 2, Version: "test"}
	_, err := Run(context.Background(), dense, NewConvert(dense, layout, d), o)
	return o.Out, err
}

// sameNumbers requires that two artifacts decode to the same bits, tensor by tensor.
func sameNumbers(t *testing.T, a, b string) {
	x, y := openDense(t, a), openDense(t, b)
	require.Len(t, y.Tensors(), len(x.Tensors()))
	for _, info := range x.Tensors() {
		require.Equal(t, valuesOf(t, x, info.Name), valuesOf(t, y, info.Name), info.Name)
	}
}

// codesOf lists the codes of every quantized linear.
func codesOf(t *testing.T, path string) map[string]*packing.Linear {
	dense := openDense(t, path)
	all := map[string]*packing.Linear{}
	for _, info := range dense.Tensors() {
		module := strings.TrimSuffix(info.Name, ".weight")
		if _, ok := formats.Stored(dense, module); !ok {
			continue
		}
		l, err := formats.Unpacked(dense, module)
		require.NoError(t, err)
		all[module] = l
	}
	require.NotEmpty(t, all)
	return all
}

// Layouts change without rounding: after AWQ → GPTQ v2 → compressed-tensors → AWQ every code, scale and zero point is the
// first artifact's, and so are the files.
func TestConversionsRoundTrip(t *testing.T) {
	for name, c := range models() {
		t.Run(name, func(t *testing.T) {
			dir := writeModel(t, c)
			_, first := runTiny(t, dir, NewAWQ(int4, "awq", AWQOptions{}), options(t))
			path, err := first, error(nil)
			for _, layout := range []string{"gptq_v2", "compressed-tensors", "awq"} {
				path, err = convert(t, path, layout, tensor.Invalid)
				require.NoError(t, err)
				sameNumbers(t, first, path)
				require.Contains(t, string(openModel(t, path).Meta().Config), "quantization_config")
			}
			was, is := codesOf(t, first), codesOf(t, path)
			for module, l := range was {
				require.Equal(t, l.Codes, is[module].Codes, module)
				require.Equal(t, l.Scales, is[module].Scales, module)
				require.Equal(t, l.Zeros, is[module].Zeros, module)
			}
			require.Equal(t, digests(t, first)["model.safetensors"], digests(t, path)["model.safetensors"])
		})
	}
}

// A symmetric GPTQ artifact travels the other way round, in three and eight bits as well.
func TestConversionsOfGPTQ(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	for _, bits := range []int{3, 4, 8} {
		s := packing.Scheme{Grid: "int", Bits: bits, GroupSize: 32, Sym: true}
		_, first := runTiny(t, dir, NewRTN(s, "gptq"), options(t))
		v2, err := convert(t, first, "gptq_v2", tensor.Invalid)
		require.NoError(t, err)
		sameNumbers(t, first, v2)
		back, err := convert(t, v2, "gptq", tensor.Invalid)
		require.NoError(t, err)
		require.Equal(t, digests(t, first)["model.safetensors"], digests(t, back)["model.safetensors"])
	}
}

// Decoding gives a dense checkpoint in the type asked for; float32 loses nothing.
func TestConversionToFloats(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	_, art := runTiny(t, dir, NewGPTQ(int4Sym, "gptq", gptq.Best()), options(t))
	full, err := convert(t, art, "", tensor.F32)
	require.NoError(t, err)
	sameNumbers(t, art, full)
	require.Nil(t, openModel(t, full).Meta().Quant)
	half, err := convert(t, art, "", tensor.BF16)
	require.NoError(t, err)
	for _, info := range openModel(t, half).Tensors() {
		require.Equal(t, tensor.BF16, info.DType)
	}
	require.Contains(t, string(openModel(t, half).Meta().Config), `"bfloat16"`)
	require.NotContains(t, string(openModel(t, half).Meta().Config), "quantization_config")
	var rep Report
	readJSON(t, filepath.Join(half, ReportName), &rep)
	require.Zero(t, rep.Totals.QuantizedTensors)
}

// What a layout cannot hold exactly is refused with the tensor and the reason, before anything is written.
func TestConversionsThatWouldRound(t *testing.T) {
	dir := writeModel(t, testmodel.Llama())
	_, eight := runTiny(t, dir, NewRTN(packing.Scheme{Grid: "int", Bits: 8, GroupSize: 32}, "compressed-tensors"), options(t))
	_, four := runTiny(t, dir, NewRTN(int4, "awq"), options(t))
	for _, x := range []struct{ path, layout, text string }{
		{eight, "awq", "8 bits"}, {dir, "awq", "nothing in the source is quantized"}, {four, "awq_gemv", "cannot be written"}, {four, "nonsense", "nonsense"},
	} {
		out, err := convert(t, x.path, x.layout, tensor.Invalid)
		require.ErrorIs(t, err, safeio.ErrUnsupported, x.layout)
		require.ErrorContains(t, err, x.text)
		require.NoDirExists(t, out)
		require.NoDirExists(t, out+".partial")
	}
}
