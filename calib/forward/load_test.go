package forward

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/kernel"
)

// patched is a Source that changes the bytes or the type of some tensors.
type patched struct {
	tensor.Source
	change map[string]func(tensor.Info, []byte) (tensor.DType, []byte)
}

func (p patched) whole(name string) (tensor.Info, []byte) {
	info, _ := p.Source.Lookup(name)
	size, _ := info.Bytes()
	buf := make([]byte, size)
	if err := p.Source.ReadTensor(name, buf, 0); err != nil {
		panic(err)
	}
	info.DType, buf = p.change[name](info, buf)
	return info, buf
}

func (p patched) Lookup(name string) (tensor.Info, bool) {
	if p.change[name] == nil {
		return p.Source.Lookup(name)
	}
	info, _ := p.whole(name)
	return info, true
}

func (p patched) ReadTensor(name string, dst []byte, off int64) error {
	if p.change[name] == nil {
		return p.Source.ReadTensor(name, dst, off)
	}
	_, buf := p.whole(name)
	copy(dst, buf[off:])
	return nil
}

// as stores a tensor in another type.
func as(d tensor.DType) func(tensor.Info, []byte) (tensor.DType, []byte) {
	return func(info tensor.Info, buf []byte) (tensor.DType, []byte) {
		n, _ := info.Elements()
		v := make([]float32, n)
		if err := tensor.ToFloat32(v, info.DType, buf); err != nil {
			panic(err)
		}
		out := make([]byte, n*d.Size())
		if err := tensor.FromFloat32(out, d, v); err != nil {
			panic(err)
		}
		return d, out
	}
}

// TestNonFiniteWeights puts NaN and infinities into tensors of every type: count and first index are exact, and the
// values become zero where the policy says so.
func TestNonFiniteWeights(t *testing.T) {
	src, m := openModel(t, familyDir(t, "llama-bias"))
	poison := map[tensor.DType][][]byte{
		tensor.BF16: {{0x80, 0x7f}, {0xc0, 0xff}, {0x81, 0xff}},
		tensor.F16:  {{0, 0x7c}, {0, 0xfc}, {1, 0x7e}},
		tensor.F32:  {{0, 0, 0x80, 0x7f}, {0, 0, 0xc0, 0xff}, {1, 0, 0x80, 0x7f}},
		tensor.F64:  {binary.LittleEndian.AppendUint64(nil, math.Float64bits(1e300)), {0, 0, 0, 0, 0, 0, 0xf0, 0x7f}, {1, 0, 0, 0, 0, 0, 0xf0, 0x7f}},
	}
	for d, values := range poison {
		for _, c := range []struct {
			name  string
			first []int64
			flat  int64
		}{
			{"model.layers.1.self_attn.k_proj.weight", []int64{3, 5}, 3*32 + 5},
			{"model.layers.1.mlp.down_proj.bias", []int64{31}, 31},
			{"model.layers.1.input_layernorm.weight", []int64{0}, 0},
		} {
			bad := patched{src, map[string]func(tensor.Info, []byte) (tensor.DType, []byte){
				c.name: func(info tensor.Info, buf []byte) (tensor.DType, []byte) {
					_, buf = as(d)(info, buf)
					copy(buf[c.flat*d.Size():], values[0])
					for i, v := range values[1:] {
						if at := c.flat + int64(i) + 2; (at+1)*d.Size() <= int64(len(buf)) {
							copy(buf[at*d.Size():], v)
						}
					}
					return d, buf
				},
			}}
			want := int64(1)
			if c.flat < 31 || len(c.first) == 2 {
				want = 3
			}
			_, err := Load(bad, m, 1, LoadOptions{})
			require.ErrorIs(t, err, safeio.ErrCorrupt)
			var e *safeio.Error
			require.True(t, errors.As(err, &e))
			require.Equal(t, c.name, e.Tensor)

			b, err := Load(bad, m, 1, LoadOptions{NonFinite: NonFiniteZero, Pool: kernel.NewPool(2)})
			require.NoError(t, err)
			require.Equal(t, []NonFinite{{Tensor: c.name, Count: want, First: c.first}}, b.Findings, "%v", d)
			require.Contains(t, b.Findings[0].String(), c.name)
			h := randomHidden(m, 8, 1)
			require.NoError(t, NewRunner(m, nil, 1, 8).Forward(context.Background(), b, h, nil))
		}
	}
}

// TestStoredTypes: the same numbers stored as BF16, F32 or F64 give the same bits.
func TestStoredTypes(t *testing.T) {
	src, m := openModel(t, familyDir(t, "qwen3-bias")) // BF16
	input := randomHidden(m, 16, 2)
	var want kernel.Mat
	for _, d := range []tensor.DType{tensor.BF16, tensor.F32, tensor.F64} {
		all := patched{src, map[string]func(tensor.Info, []byte) (tensor.DType, []byte){}}
		for _, info := range src.Tensors() {
			all.change[info.Name] = as(d)
		}
		b, err := Load(all, m, 1, LoadOptions{})
		require.NoError(t, err)
		require.Equal(t, d == tensor.BF16, b.Q.W.Kind == kernel.BF16)
		h := clone(input)
		require.NoError(t, NewRunner(m, nil, 1, 16).Forward(context.Background(), b, h, nil))
		if want.F32 == nil {
			want = h
		}
		require.Equal(t, want.F32, h.F32, "%v", d)
	}
}

// TestLazyExperts: fetching experts gives the same bits, fetches only experts with tokens, and passes errors on.
func TestLazyExperts(t *testing.T) {
	src, m := openModel(t, familyDir(t, "qwen3moe-window"))
	loaded, err := Load(src, m, 1, LoadOptions{})
	require.NoError(t, err)
	lazy, err := Load(src, m, 1, LoadOptions{LazyExperts: true})
	require.NoError(t, err)
	require.Nil(t, lazy.Linear(&lazy.Arch.MoE.Experts[3].Up))
	require.Len(t, lazy.Linears(), 4)
	require.Len(t, loaded.Linears(), 4+3*8)
	var fetched []int
	fetch := lazy.Fetch
	lazy.Fetch = func(i int) (MLP, error) {
		fetched = append(fetched, i)
		return fetch(i)
	}
	input := randomHidden(m, 2, 4) // two tokens reach at most four experts
	want, got := clone(input), clone(input)
	r := NewRunner(m, nil, 1, 2)
	require.NoError(t, r.Forward(context.Background(), loaded, want, nil))
	require.NoError(t, r.Forward(context.Background(), lazy, got, nil))
	require.Equal(t, want.F32, got.F32)
	require.LessOrEqual(t, len(fetched), 4)
	require.True(t, slices.IsSorted(fetched))

	lazy.Fetch = func(int) (MLP, error) { return MLP{}, errors.New("disk gone") }
	require.ErrorContains(t, r.Forward(context.Background(), lazy, got, nil), "disk gone")
}

func TestReplacedWeights(t *testing.T) {
	src, m := openModel(t, familyDir(t, "llama-bias"))
	b, err := Load(src, m, 0, LoadOptions{})
	require.NoError(t, err)
	for _, l := range b.Linears() {
		require.Same(t, l, b.Linear(l.Info))
		require.Equal(t, l.Info.Out, l.W.Rows)
		require.Equal(t, l.Info.In, l.W.Cols)
		wide := make([]float32, len(l.W.U16))
		kernel.Widen(wide, l.W.U16, l.W.Kind)
		l.W = kernel.MatF32(l.W.Rows, l.W.Cols, wide) // the same numbers in float32
	}
	again, err := Load(src, m, 0, LoadOptions{})
	require.NoError(t, err)
	require.Nil(t, b.Linear(&m.Blocks[1].Q))
	x, y := randomHidden(m, 8, 6), randomHidden(m, 8, 6)
	r := NewRunner(m, nil, 1, 8)
	require.NoError(t, r.Forward(context.Background(), b, x, nil))
	require.NoError(t, r.Forward(context.Background(), again, y, nil))
	require.Equal(t, y.F32, x.F32)
}

func TestEmbed(t *testing.T) {
	src, m := openModel(t, familyDir(t, "llama-llama3"))
	r := NewRunner(m, kernel.NewPool(2), 1, 8)
	ids := []int32{5, 0, 47, 5, 5, 12, 0}
	x := newHidden(m, len(ids))
	require.NoError(t, r.Embed(x, ids, src))
	table := tensorF32(t, src, m.Embed)
	for i, id := range ids {
		require.Equal(t, kernelRow(table, int(id)), x.Row(i))
	}
	for _, id := range []int32{-1, 48, math.MaxInt32} {
		err := r.Embed(x, []int32{1, id}, src)
		require.ErrorIs(t, err, safeio.ErrCorrupt)
		require.ErrorContains(t, err, "position 1")
	}
	bad := patched{src, map[string]func(tensor.Info, []byte) (tensor.DType, []byte){
		m.Embed: func(info tensor.Info, buf []byte) (tensor.DType, []byte) {
			copy(buf[2*(7*32+9):], []byte{0, 0x7c}) // +Inf as F16
			return info.DType, buf
		},
	}}
	require.NoError(t, r.Embed(x, ids, bad))
	require.ErrorContains(t, r.Embed(x, []int32{7}, bad), "row 7 is not finite in channel 9")
}

// kernelRow widens one row of a matrix.
func kernelRow(w kernel.Mat, i int) []float32 {
	if w.Kind == kernel.F32 {
		return w.Row(i)
	}
	v := make([]float32, w.Cols)
	kernel.Widen(v, w.U16[i*w.Stride:i*w.Stride+w.Cols], w.Kind)
	return v
}
