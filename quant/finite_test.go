package quant

import (
	"context"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/testmodel"
)

// A census finds exactly what the conversion to float calls non-finite, for all 16-bit patterns and for wider types.
func TestCensusAgreesWithConversion(t *testing.T) {
	for _, d := range []tensor.DType{tensor.F16, tensor.BF16} {
		raw, values := make([]byte, 2<<16), make([]float32, 1<<16)
		for i := range values {
			binary.LittleEndian.PutUint16(raw[2*i:], uint16(i))
		}
		require.NoError(t, tensor.ToFloat32(values, d, raw))
		want := census{first: -1}
		for i, v := range values {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				if want.count++; want.first < 0 {
					want.first = int64(i)
				}
			}
		}
		var got census
		got.look(d, raw, 0, true)
		require.Equal(t, want, got)
		var again census
		again.look(d, raw, 0, false)
		require.Zero(t, again.count, "replaced")
	}
	raw := make([]byte, 8*4)
	for i, v := range []float64{1, math.Inf(1), math.NaN(), math.MaxFloat64} {
		binary.LittleEndian.PutUint64(raw[8*i:], math.Float64bits(v))
	}
	var c census
	c.look(tensor.F64, raw, 10, false)
	require.Equal(t, census{count: 2, first: 11}, c)
	require.Equal(t, "[2 3]", c.place([]int64{5, 4}))
	c = census{}
	c.look(tensor.I64, raw, 0, true)
	require.Zero(t, c.count, "integers have none")
}

// Values that the requested element type cannot hold are refused instead of written as infinities; tensors unknown to
// the family may hold infinities.
func TestConversionKeepsTheRange(t *testing.T) {
	dir := writeModel(t, poisoned(testmodel.Llama(), "lm_head.weight", 1e6, 70, 71))
	r := NewCopy()
	r.Allocation = Keep{DType: tensor.F16}
	o := options(t)
	_, err := Run(context.Background(), openModel(t, dir), r, o)
	require.ErrorIs(t, err, safeio.ErrUnsupported)
	require.ErrorContains(t, err, "2 values are beyond the range of F16, the first at [1 6]")
	require.ErrorContains(t, err, "lm_head.weight")
	require.NoDirExists(t, o.Out)

	dir = writeModel(t, testmodel.Llama())
	addTensor(t, dir, tensor.Info{Name: "mask", DType: tensor.BF16, Shape: []int64{2}}, []byte{0x80, 0xff, 0, 0})
	_, out := runTiny(t, dir, RTN(4, 32), options(t))
	require.True(t, math.IsInf(float64(valuesOf(t, openModel(t, out), "mask")[0]), -1))
}
