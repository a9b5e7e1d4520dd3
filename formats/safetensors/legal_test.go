package safetensors

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safeio/safeiotest"
	"github.com/llmquant/quantize/formats/tensor"
)

// zeroFile reads as a header followed by zeros: models too large for a test still have a header.
type zeroFile struct{ header []byte }

func (z zeroFile) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	if off < int64(len(z.header)) {
		copy(p, z.header[off:])
	}
	return len(p), nil
}

// family describes the largest public models by the numbers that decide how long their headers are.
type family struct {
	name            string
	layers, experts int
	hidden, inner   int64
	perLinear       []string // suffixes of the tensors that store one linear
}

// The other side of the limits: the largest known models (names and shapes only) must be read, even with all their
// shards in one file, within the allocation the meter allows.
func TestLargestModelsPass(t *testing.T) {
	for _, m := range []family{
		{"405B dense", 126, 0, 16384, 53248, []string{"weight"}},
		{"1T, 384 experts, packed integers", 61, 384, 7168, 2048, []string{"weight_packed", "weight_scale", "weight_shape", "weight_zero_point"}},
	} {
		infos := m.tensors()
		header, err := Header(infos)
		require.NoError(t, err, m.name)
		var total int64
		for _, i := range infos {
			n, ok := i.Bytes()
			require.True(t, ok)
			total += n
		}
		var f *File
		safeiotest.CheckAllocation(t, len(header), func() {
			f, err = New(zeroFile{header}, int64(len(header))+total, m.name, safeio.DefaultLimits())
		})
		require.NoError(t, err, m.name)
		require.Len(t, f.Tensors(), len(infos))
		last := infos[len(infos)-1]
		n, _ := last.Bytes()
		require.NoError(t, f.ReadTensor(last.Name, make([]byte, 1), n-1))

		plan, index, err := Plan(infos, 5_000_000_000, nil)
		require.NoError(t, err)
		require.Greater(t, len(plan.Files), 100, m.name)
		require.Less(t, int64(len(index)), safeio.DefaultLimits().IndexJSON)
		t.Logf("%s: %d tensors, header %d bytes, %d shards", m.name, len(infos), len(header), len(plan.Files))
	}
}

func (m family) tensors() []tensor.Info {
	infos := []tensor.Info{{Name: "model.embed_tokens.weight", DType: tensor.BF16, Shape: []int64{163840, m.hidden}}}
	add := func(module string, out, in int64) {
		for _, suffix := range m.perLinear {
			infos = append(infos, tensor.Info{Name: module + "." + suffix, DType: tensor.BF16, Shape: []int64{out, in}})
		}
	}
	for l := range m.layers {
		p := fmt.Sprintf("language_model.model.layers.%d.", l)
		for _, proj := range []string{"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"} {
			add(p+"self_attn."+proj, m.hidden, m.hidden)
		}
		for _, norm := range []string{"input_layernorm", "post_attention_layernorm"} {
			infos = append(infos, tensor.Info{Name: p + norm + ".weight", DType: tensor.BF16, Shape: []int64{m.hidden}})
		}
		for e := range max(m.experts, 1) {
			for _, proj := range []string{"gate_proj", "up_proj", "down_proj"} {
				add(fmt.Sprintf("%smlp.experts.%d.%s", p, e, proj), m.inner, m.hidden)
			}
		}
	}
	return append(infos, tensor.Info{Name: "lm_head.weight", DType: tensor.BF16, Shape: []int64{163840, m.hidden}})
}

// A legal header of the smallest possible tensors is the worst case for memory per byte.
func TestDensestHeader(t *testing.T) {
	const n = 200_000
	infos := make([]tensor.Info, n)
	for i := range infos {
		infos[i] = tensor.Info{Name: fmt.Sprintf("%x", i), DType: tensor.U8, Shape: []int64{0}}
	}
	header, err := Header(infos)
	require.NoError(t, err)
	safeiotest.CheckAllocation(t, len(header), func() {
		_, err := New(bytes.NewReader(header), int64(len(header)), "dense", safeio.DefaultLimits())
		require.NoError(t, err)
	})
	few := safeio.DefaultLimits()
	few.Tensors = n - 1
	_, err = New(bytes.NewReader(header), int64(len(header)), "dense", few)
	require.ErrorIs(t, err, safeio.ErrLimit)
}

// A file that shrinks after it was opened, or a disk that fails, gives errors and never zeros.
func TestReadFailures(t *testing.T) {
	whole := file(u8([2]int{0, 4}, [2]int{4, 9}), 9)
	r := &shrinking{data: whole}
	f, err := New(r, int64(len(whole)), "x", safeio.DefaultLimits())
	require.NoError(t, err)
	buf := make([]byte, 5)
	require.NoError(t, f.ReadTensor("b", buf, 0))
	r.data = whole[:len(whole)-1]
	require.ErrorIs(t, f.ReadTensor("b", buf, 0), safeio.ErrCorrupt)
	require.NoError(t, f.ReadTensor("b", buf[:4], 0))
	r.err = io.ErrClosedPipe
	require.ErrorIs(t, f.ReadTensor("a", buf[:4], 0), io.ErrClosedPipe)
	r.err = nil
	for _, bad := range []struct {
		name   string
		n      int
		offset int64
	}{{"none", 1, 0}, {"a", 5, 0}, {"a", 1, 4}, {"a", 1, -1}, {"a", 4, 1}, {"a", 1, 1<<63 - 1}} {
		err := f.ReadTensor(bad.name, buf[:bad.n], bad.offset)
		require.ErrorIs(t, err, safeio.ErrCorrupt)
		require.ErrorContains(t, err, bad.name)
	}
	_, ok := f.Lookup("none")
	require.False(t, ok)
	off, n, ok := f.Place("b")
	require.True(t, ok)
	require.EqualValues(t, len(whole)-5, off)
	require.EqualValues(t, 5, n)
}

// A disk that fails while a file is being opened gives its own error.
func TestOpenFailures(t *testing.T) {
	whole := file(u8([2]int{0, 4}), 4)
	for _, readable := range []int64{0, lengthBytes} {
		_, err := New(&failing{bytes.NewReader(whole), readable}, int64(len(whole)), "x", safeio.DefaultLimits())
		require.ErrorIs(t, err, io.ErrClosedPipe)
		require.ErrorContains(t, err, "x")
	}
	_, err := Open("none", safeio.DefaultLimits())
	require.ErrorIs(t, err, fs.ErrNotExist)
}

type failing struct {
	io.ReaderAt
	from int64
}

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	if off >= f.from {
		return 0, io.ErrClosedPipe
	}
	return f.ReaderAt.ReadAt(p, off)
}

type shrinking struct {
	data []byte
	err  error
}

func (s *shrinking) ReadAt(p []byte, off int64) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	return bytes.NewReader(s.data).ReadAt(p, off)
}
