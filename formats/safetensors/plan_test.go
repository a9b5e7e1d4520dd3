package safetensors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/container"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safeio/safeiotest"
	"github.com/llmquant/quantize/formats/tensor"
)

func info(name string, d tensor.DType, shape ...int64) tensor.Info {
	return tensor.Info{Name: name, DType: d, Shape: shape}
}

// reopen renders a planned file with zeros for data and opens it.
func reopen(t *testing.T, plan *container.Plan, i int) *File {
	f, err := New(zeroFile{plan.Files[i].Header}, plan.Files[i].Size, plan.Files[i].Name, safeio.DefaultLimits())
	require.NoError(t, err)
	return f
}

func TestPlanEveryDType(t *testing.T) {
	var infos []tensor.Info
	for i, d := range tensor.DTypes() {
		infos = append(infos, info(fmt.Sprintf("t%02d \"ü\\\u2028", i), d, 3, int64(i)), tensor.Info{Name: fmt.Sprint("s", i), DType: d, Shape: []int64{}})
	}
	plan, index, err := Plan(infos, 0, nil)
	require.NoError(t, err)
	require.Nil(t, index)
	require.Equal(t, "model.safetensors", plan.Files[0].Name)
	require.Zero(t, len(plan.Files[0].Header)%8)
	f := reopen(t, plan, 0)
	require.Len(t, f.Tensors(), len(infos))
	for _, want := range infos {
		got, ok := f.Lookup(want.Name)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	for _, p := range plan.Tensors {
		off, n, ok := f.Place(p.Name)
		require.True(t, ok)
		require.Equal(t, [2]int64{p.Offset, p.Bytes}, [2]int64{off, n})
		got, _ := f.Lookup(p.Name)
		require.Zero(t, off%got.DType.Size(), "%s is aligned to its element", p.Name)
	}
}

func TestPlanShards(t *testing.T) {
	infos := []tensor.Info{info("embed", tensor.U8, 60), info("a", tensor.U8, 50), info("b", tensor.U8, 50), info("huge", tensor.U8, 250), info("c", tensor.U8, 10), info("d", tensor.U8, 0)}
	plan, index, err := Plan(infos, 100, nil)
	require.NoError(t, err)
	var where []string
	for _, p := range plan.Tensors {
		where = append(where, fmt.Sprint(p.Name, p.File))
	}
	require.Equal(t, []string{"embed0", "a1", "b1", "huge2", "c3", "d3"}, where)
	require.Equal(t, "model-00004-of-00004.safetensors", plan.Files[3].Name)
	for i := range plan.Files {
		reopen(t, plan, i)
	}
	require.Equal(t, `{
  "metadata": {
    "total_size": 420
  },
  "weight_map": {
    "a": "model-00002-of-00004.safetensors",
    "b": "model-00002-of-00004.safetensors",
    "c": "model-00004-of-00004.safetensors",
    "d": "model-00004-of-00004.safetensors",
    "embed": "model-00001-of-00004.safetensors",
    "huge": "model-00003-of-00004.safetensors"
  }
}
`, string(index))

	named, _, err := Plan(infos, 100, func(i, n int) string { return fmt.Sprintf("output-%d-%d", i, n) })
	require.NoError(t, err)
	require.Equal(t, "output-1-4", named.Files[0].Name)
	again, index2, err := Plan(infos, 100, nil)
	require.NoError(t, err)
	require.Equal(t, plan, again)
	require.Equal(t, index, index2)
	empty, index, err := Plan(nil, 0, nil)
	require.NoError(t, err)
	require.Nil(t, index)
	require.Empty(t, reopen(t, empty, 0).Tensors())
}

func TestPlanRefuses(t *testing.T) {
	for name, infos := range map[string][]tensor.Info{
		"twice":        {info("a", tensor.U8, 1), info("a", tensor.U8, 1)},
		"empty name":   {info("", tensor.U8, 1)},
		"reserved":     {info("__metadata__", tensor.U8, 1)},
		"not UTF-8":    {info("\xff", tensor.U8, 1)},
		"no type":      {info("a", tensor.Invalid, 1)},
		"negative":     {info("a", tensor.U8, -1)},
		"overflow":     {info("a", tensor.U8, 1<<62, 4)},
		"sum overflow": {info("a", tensor.U8, 1<<62), info("b", tensor.U8, 1<<62)},
	} {
		_, _, err := Plan(infos, 0, nil)
		require.ErrorIs(t, err, safeio.ErrCorrupt, name)
	}
	long := info(string(bytes.Repeat([]byte{'n'}, 100_000_000)), tensor.U8, 1)
	_, _, err := Plan([]tensor.Info{long}, 0, nil)
	require.ErrorIs(t, err, safeio.ErrLimit)
}

// FuzzHeader feeds headers, with the length and the data that fit them, to the reader. What is accepted must read in
// full, and planning it again must give a file that reads as the same tensors.
func FuzzHeader(f *testing.F) {
	for _, c := range hostiles() {
		if len(c.data) >= lengthBytes && len(c.data) < 3000 {
			f.Add(c.data[lengthBytes:])
		}
	}
	f.Fuzz(func(t *testing.T, header []byte) {
		end := len(header) // data behind the JSON object, as the fuzzer likes
		if i := bytes.LastIndexByte(header, '}'); i >= 0 {
			end = i + 1
		}
		checkFile(t, framed(uint64(end), string(header), 0))
	})
}

// FuzzFile feeds whole files.
func FuzzFile(f *testing.F) {
	for _, c := range hostiles() {
		if len(c.data) < 3000 {
			f.Add(c.data)
		}
	}
	f.Fuzz(checkFile)
}

func checkFile(t *testing.T, data []byte) {
	var f *File
	var err error
	safeiotest.CheckAllocation(t, len(data), func() {
		f, err = New(bytes.NewReader(data), int64(len(data)), "fuzz", safeio.DefaultLimits())
	})
	if err != nil {
		var e *safeio.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "fuzz", e.Path)
		return
	}
	covered := f.data
	for _, i := range f.Tensors() {
		off, n, ok := f.Place(i.Name)
		require.True(t, ok)
		require.Equal(t, covered, off)
		covered += n
		bytes, ok := i.Bytes()
		require.True(t, ok)
		require.Equal(t, n, bytes)
		require.NoError(t, f.ReadTensor(i.Name, make([]byte, n), 0))
		require.Error(t, f.ReadTensor(i.Name, make([]byte, n+1), 0))
	}
	require.EqualValues(t, len(data), covered)
	require.True(t, json.Valid(data[lengthBytes:f.data]), "no stricter reader may refuse what we accept")

	plan, _, err := Plan(f.Tensors(), 0, nil)
	require.NoError(t, err)
	rewritten := make([]byte, plan.Files[0].Size)
	copy(rewritten, plan.Files[0].Header)
	for _, p := range plan.Tensors {
		require.NoError(t, f.ReadTensor(p.Name, rewritten[p.Offset:p.Offset+p.Bytes], 0))
	}
	again, err := New(bytes.NewReader(rewritten), int64(len(rewritten)), "again", safeio.DefaultLimits())
	require.NoError(t, err)
	require.Len(t, again.Tensors(), len(f.Tensors()))
	for _, want := range f.Tensors() {
		got, ok := again.Lookup(want.Name)
		require.True(t, ok)
		require.Equal(t, want, got)
		n, _ := want.Bytes()
		a, b := make([]byte, n), make([]byte, n)
		require.NoError(t, f.ReadTensor(want.Name, a, 0))
		require.NoError(t, again.ReadTensor(want.Name, b, 0))
		require.Equal(t, a, b)
	}
}
