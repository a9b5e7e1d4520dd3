package gguf

import (
	"math"
	"testing"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/quant/grid/ggml"
	"github.com/stretchr/testify/require"
)

// The sizes here are those of the package that encodes and decodes.
func TestTypesAgreeWithGrids(t *testing.T) {
	for _, g := range ggml.Types() {
		typ := Type(g.ID)
		require.True(t, typ.Valid(), g.Name)
		require.Equal(t, g.Name, typ.String())
		require.Equal(t, int64(g.Elems), typ.BlockElems(), g.Name)
		require.Equal(t, int64(g.Bytes), typ.BlockBytes(), g.Name)
		require.Equal(t, g.BitsPerWeight, typ.BitsPerWeight())
	}
	for _, typ := range Types() {
		again, ok := ParseType(typ.String())
		require.True(t, ok)
		require.Equal(t, typ, again)
		require.False(t, typ.Removed())
		_, decodable := ggml.ByID(uint32(typ))
		integer := typ.DType() != tensor.Invalid && !typ.DType().IsFloat()
		require.True(t, decodable || integer || typ == F64 || typ == Q8_1 || typ == Q8_K, typ)
	}
	same, ok := ParseType("q4_k")
	require.True(t, ok)
	require.Equal(t, Q4_K, same)
	for _, name := range []string{"", "Q4_2", "Q9_9", "type 43"} {
		_, ok := ParseType(name)
		require.False(t, ok, name)
	}
	require.True(t, Type(4).Removed())
	require.Equal(t, "type 99", Type(99).String())
	require.Zero(t, Type(99).BlockElems()+Type(4).BlockBytes())
	require.Zero(t, Type(99).BitsPerWeight())
	typ, ok := TypeOf(tensor.BF16)
	require.True(t, ok)
	require.Equal(t, BF16, typ)
	_, ok = TypeOf(tensor.F8E4M3)
	require.False(t, ok)
}

func TestRowBytes(t *testing.T) {
	for _, c := range []struct {
		typ   Type
		cols  int64
		bytes int64
		ok    bool
	}{{Q4_K, 512, 288, true}, {Q4_K, 128, 0, false}, {F16, 3, 6, true}, {F32, -1, 0, false}, {F64, 1 << 62, 0, false}, {Type(5), 32, 0, false}, {Q8_0, 0, 0, true}} {
		n, ok := c.typ.RowBytes(c.cols)
		require.Equal(t, c.ok, ok, "%s %d", c.typ, c.cols)
		require.Equal(t, c.bytes, n)
	}
}

func TestValues(t *testing.T) {
	for name, c := range map[string]struct {
		v    Value
		want any
		text string
	}{
		"u16":    {Uint16(7), int64(7), "7"},
		"u32":    {Uint32(math.MaxUint32), int64(math.MaxUint32), "4294967295"},
		"i32":    {Int32(-5), int64(-5), "-5"},
		"f32":    {Float32(0.1), float64(float32(0.1)), "0.1"},
		"bool":   {Bool(true), true, "true"},
		"string": {String("x"), "x", "x"},
		"strs":   {Strings([]string{"a", "b"}), []string{"a", "b"}, `["a", "b"]`},
		"ints":   {Int32s([]int32{-1, 2}), []int64{-1, 2}, "[-1, 2]"},
		"floats": {Float32s([]float32{0.5, -2}), []float64{0.5, -2}, "[0.5, -2]"},
	} {
		var kv Metadata
		kv.Set("k", c.v)
		got := map[string]any{}
		try := func(name string, v any, err error) {
			if err == nil {
				got[name] = v
				return
			}
			require.ErrorIs(t, err, safeio.ErrCorrupt)
			require.ErrorContains(t, err, `"k"`)
		}
		n, err := kv.Int("k", math.MinInt64, math.MaxInt64)
		try("int", n, err)
		x, err := kv.Float("k")
		try("float", x, err)
		b, err := kv.Bool("k")
		try("bool", b, err)
		s, err := kv.String("k")
		try("string", s, err)
		ss, err := kv.Strings("k")
		try("strings", ss, err)
		is, err := kv.Ints("k")
		try("ints", is, err)
		fs, err := kv.Floats("k")
		try("floats", fs, err)
		require.Len(t, got, 1, name)
		for _, v := range got {
			require.Equal(t, c.want, v, name)
		}
		require.Equal(t, c.text, c.v.Format(8))
	}
	require.Equal(t, "[1, 2, … 3]", Int32s([]int32{1, 2, 3}).Format(2))
	require.Equal(t, "arr[i32]", Int32s(nil).TypeName())
	elem, ok := Strings(nil).Elem()
	require.True(t, ok)
	require.Equal(t, KindString, elem)
	require.Equal(t, KindBool, Bool(false).Kind())
	require.Equal(t, "kind 77", Kind(77).String())
	big := Value{kind: KindUint64, num: math.MaxUint64}
	_, err := big.Int()
	require.ErrorIs(t, err, safeio.ErrCorrupt)
}

func TestMetadata(t *testing.T) {
	var kv Metadata
	for _, key := range []string{"a", "b", "c"} {
		kv.Set(key, String(key))
	}
	kv.Set("a", String("A"))
	c := kv.Clone()
	kv.Move("a", Uint32(1))
	require.True(t, kv.Delete("b"))
	require.False(t, kv.Delete("b"))
	order := func(m *Metadata) (keys []string) {
		for key := range m.All() {
			keys = append(keys, key)
		}
		return keys
	}
	require.Equal(t, []string{"c", "a"}, order(&kv))
	require.Equal(t, []string{"a", "b", "c"}, order(&c))
	require.Equal(t, 2, kv.Len())
	for range kv.All() {
		break
	}
	n, err := kv.Int("a", 0, 1)
	require.NoError(t, err)
	require.Equal(t, int64(1), n)
	_, err = kv.Int("a", 2, 3)
	require.ErrorContains(t, err, "outside 2 … 3")
	for _, get := range []func() error{
		func() error { _, err := kv.Int("x", 0, 1); return err }, func() error { _, err := kv.Float("x"); return err },
		func() error { _, err := kv.Bool("x"); return err }, func() error { _, err := kv.String("x"); return err },
		func() error { _, err := kv.Strings("x"); return err }, func() error { _, err := kv.Ints("x"); return err },
		func() error { _, err := kv.Floats("x"); return err },
	} {
		require.ErrorContains(t, get(), `lack the key "x"`)
	}
}

func TestNewTensor(t *testing.T) {
	a, ok := NewTensor("a", Q8_0, 3, 2, 64)
	require.True(t, ok)
	require.Equal(t, [4]int64{64, 2, 3, 1}, a.NE)
	require.Equal(t, []int64{3, 2, 64}, a.Shape())
	require.Equal(t, int64(3*2*2*34), a.Bytes)
	require.Equal(t, int64(6), a.Rows())
	require.Equal(t, int64(384), a.Elements())
	b, ok := a.WithType(F16)
	require.True(t, ok)
	require.Equal(t, int64(768), b.Bytes)
	_, ok = a.WithType(Q4_K)
	require.False(t, ok)
	_, ok = NewTensor("a", F32, 1, 1, 1, 1, 1)
	require.False(t, ok)
	h := Header{Tensors: []Tensor{a}}
	_, ok = h.Find("a")
	require.True(t, ok)
	_, ok = h.Find("b")
	require.False(t, ok)
}
