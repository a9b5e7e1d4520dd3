package gguf

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmquant/quantize/formats/container"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/stretchr/testify/require"
)

func firstShard(t testing.TB) string {
	return shared(t, "golden", "llamacpp", "golm-llama-Q4_0-00001-of-00003.gguf")
}

// copyTensors fills a plan with the tensors of an open file.
func copyTensors(t testing.TB, p *container.Plan, f *File) [][]byte {
	return fill(t, p, func(i int, dst []byte) {
		tensor, ok := f.Lookup(p.Tensors[i].Name)
		require.True(t, ok)
		require.NoError(t, f.ReadAt(tensor, dst, 0))
	})
}

type goldenSplit struct {
	Shards map[string]struct {
		Bytes   int64
		SHA256  string `json:"sha256"`
		Tensors []string
	}
}

// The set that llama-gguf-split made opens as one model; merged without split keys it is the quantizer's own file, split
// again it gives the splitter's files.
func TestSplitsEqualReference(t *testing.T) {
	f, err := Open(firstShard(t))
	require.NoError(t, err)
	defer f.Close()
	require.Len(t, f.Shards(), 3)
	require.Len(t, f.Tensors, 39)

	var options struct {
		Runs map[string]struct {
			SHA256 string `json:"sha256"`
		}
		Split map[string]goldenSplit
	}
	goldenJSON(t, "options.json.gz", &options)
	p, err := Plan(&f.Header, PlanOptions{Name: "q4.gguf"})
	require.NoError(t, err)
	require.Equal(t, options.Runs["split source"].SHA256, sum(copyTensors(t, p, f)[0]))

	for name, o := range map[string]PlanOptions{
		"split-max-tensors 13":     {MaxCount: 13},
		"split-max-size 1M":        {MaxBytes: 1_000_000},
		"no-tensor-first-split 20": {MaxCount: 20, BareFirst: true},
	} {
		want := options.Split[name].Shards
		for file := range want {
			o.Name, _, _, _ = ParseSplitName(file)
		}
		p, err := Plan(&f.Header, o)
		require.NoError(t, err)
		require.Len(t, p.Files, len(want), name)
		for i, content := range copyTensors(t, p, f) {
			require.Equal(t, want[p.Files[i].Name].SHA256, sum(content), "%s %s", name, p.Files[i].Name)
		}
	}
}

func TestLargeTensorsStandAlone(t *testing.T) {
	h := &Header{}
	for _, n := range []int64{100, 8, 8, 100, 8} {
		tensor, _ := NewTensor("t"+string(rune('a'+len(h.Tensors))), F32, n)
		h.Tensors = append(h.Tensors, tensor)
	}
	p, err := Plan(h, PlanOptions{Name: "m.gguf", MaxBytes: 64})
	require.NoError(t, err)
	var files []int
	for _, at := range p.Tensors {
		files = append(files, at.File)
	}
	require.Equal(t, []int{0, 1, 1, 2, 3}, files)
	require.Equal(t, "m-00004-of-00004.gguf", p.Files[3].Name)

	p, err = Plan(h, PlanOptions{Name: "m.gguf", MaxBytes: 1 << 20})
	require.NoError(t, err)
	require.Equal(t, "m.gguf", p.Files[0].Name, "what fits one file is not split")
}

func TestAlignmentIsHonouredInEveryFile(t *testing.T) {
	h := &Header{}
	h.KV.Set("general.alignment", Uint32(128))
	for _, name := range []string{"a", "b"} {
		tensor, _ := NewTensor(name, F32, 8)
		h.Tensors = append(h.Tensors, tensor)
	}
	p, err := Plan(h, PlanOptions{Name: "m.gguf", MaxCount: 1})
	require.NoError(t, err)
	for _, content := range fill(t, p, func(int, []byte) {}) {
		q, err := parse(bytes.NewReader(content), int64(len(content)), safeio.DefaultLimits())
		require.NoError(t, err)
		require.Equal(t, int64(128), q.align)
	}
	_, err = Plan(&Header{Tensors: []Tensor{{Name: "a", Type: Q4_0, Dims: 1, NE: [4]int64{33, 1, 1, 1}}}}, PlanOptions{Name: "m.gguf"})
	require.ErrorIs(t, err, safeio.ErrCorrupt)
	_, err = Plan(&Header{Tensors: append(h.Tensors, h.Tensors[0])}, PlanOptions{Name: "m.gguf"})
	require.ErrorIs(t, err, safeio.ErrCorrupt)
}

func TestSplitNames(t *testing.T) {
	prefix, no, count, ok := ParseSplitName("a-b-00002-of-00010.gguf")
	require.True(t, ok)
	require.Equal(t, "a-b", prefix)
	require.Equal(t, 1, no)
	require.Equal(t, 10, count)
	for _, name := range []string{"", "m.gguf", "-00001-of-00002.gguf", "m-00003-of-00002.gguf", "m-00000-of-00002.gguf",
		"m-00001-of-00002.bin", "m-+0001-of-00002.gguf", "m_00001-of-00002.gguf", "m-00001-of-00002"} {
		_, _, _, ok := ParseSplitName(name)
		require.False(t, ok, name)
	}
}

// splitSet writes a small set of three files and returns the path of the first.
func splitSet(t *testing.T, change func(files map[string][]byte)) string {
	t.Helper()
	h := &Header{}
	h.KV.Set("general.architecture", String("llama"))
	for _, name := range []string{"a", "b", "c"} {
		tensor, _ := NewTensor(name, F32, 8)
		h.Tensors = append(h.Tensors, tensor)
	}
	p, err := Plan(h, PlanOptions{Name: "m.gguf", MaxCount: 1})
	require.NoError(t, err)
	files := map[string][]byte{}
	for i, content := range fill(t, p, func(int, []byte) {}) {
		files[p.Files[i].Name] = content
	}
	change(files)
	dir := t.TempDir()
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return filepath.Join(dir, "m-00001-of-00003.gguf")
}

// patch replaces the value of a u16 or i32 key.
func patch(content []byte, key string, v uint16) {
	at := bytes.Index(content, str(key)) + len(str(key)) + 4
	binary.LittleEndian.PutUint16(content[at:], v)
}

func TestBrokenSplitSetsAreRefused(t *testing.T) {
	f, err := Open(splitSet(t, func(map[string][]byte) {}))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	first, second := "m-00001-of-00003.gguf", "m-00002-of-00003.gguf"
	for name, c := range map[string]struct {
		want   error
		change func(files map[string][]byte)
	}{
		"second missing":        {os.ErrNotExist, func(f map[string][]byte) { delete(f, second) }},
		"number wrong":          {safeio.ErrCorrupt, func(f map[string][]byte) { patch(f[second], keySplitNo, 2) }},
		"number out of range":   {safeio.ErrCorrupt, func(f map[string][]byte) { patch(f[second], keySplitNo, 9) }},
		"count differs":         {safeio.ErrCorrupt, func(f map[string][]byte) { patch(f[second], keySplitCount, 4) }},
		"count against name":    {safeio.ErrCorrupt, func(f map[string][]byte) { patch(f[first], keySplitCount, 2) }},
		"total differs":         {safeio.ErrCorrupt, func(f map[string][]byte) { patch(f[first], keySplitTensors, 4) }},
		"first is second":       {safeio.ErrUnsupported, func(f map[string][]byte) { f[first] = f[second] }},
		"same tensor twice":     {safeio.ErrCorrupt, func(f map[string][]byte) { f[second] = bytes.Replace(f[second], str("b"), str("a"), 1) }},
		"second truncated":      {safeio.ErrCorrupt, func(f map[string][]byte) { f[second] = f[second][:len(f[second])-20] }},
		"second is no GGUF":     {safeio.ErrCorrupt, func(f map[string][]byte) { f[second] = []byte("hello, this is text") }},
		"second without a set":  {safeio.ErrCorrupt, func(f map[string][]byte) { f[second] = good().bytes() }},
		"first number negative": {safeio.ErrCorrupt, func(f map[string][]byte) { patch(f[first], keySplitNo, 0xffff) }},
	} {
		_, err := Open(splitSet(t, c.change))
		require.ErrorIs(t, err, c.want, name)
		require.ErrorContains(t, err, "m-0000", name)
	}
}

// A first file under a name that is not the first's, or no name of a set at all, says how to name it.
func TestRenamedSplitFileIsRefused(t *testing.T) {
	first := splitSet(t, func(map[string][]byte) {})
	content, err := os.ReadFile(first)
	require.NoError(t, err)
	for _, name := range []string{"m-00002-of-00003.gguf", "m-00001-of-00002.gguf", "m.gguf"} {
		path := filepath.Join(filepath.Dir(first), name)
		require.NoError(t, os.WriteFile(path, content, 0o644))
		_, err := Open(path)
		require.ErrorIs(t, err, safeio.ErrCorrupt, name)
		require.ErrorContains(t, err, "its name does not", name)
	}
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	_, err := Open(t.TempDir())
	require.ErrorIs(t, err, safeio.ErrCorrupt)
	_, err = Open(filepath.Join(t.TempDir(), "none.gguf"))
	require.ErrorIs(t, err, os.ErrNotExist)
	f, err := Open(write(t, "m.gguf", good().bytes()))
	require.NoError(t, err)
	require.Error(t, f.ReadAt(&f.Tensors[0], make([]byte, 65), 0))
	require.Error(t, f.ReadAt(&f.Tensors[0], make([]byte, 1), -1))
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
}

// A file that shrinks after it was opened gives an error, never zeros.
func TestTruncationAfterOpenIsNoticed(t *testing.T) {
	path := write(t, "m.gguf", good().bytes())
	f, err := Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, os.Truncate(path, f.Shards()[0].Data+10))
	require.ErrorIs(t, f.ReadAt(&f.Tensors[0], make([]byte, 64), 0), safeio.ErrCorrupt)
}

func TestUnchanged(t *testing.T) {
	path := splitSet(t, func(map[string][]byte) {})
	f, err := Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Unchanged())
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	got, err := io.ReadAll(f.OpenShard(0))
	require.NoError(t, err)
	require.Equal(t, content, got)
	third := filepath.Join(filepath.Dir(path), "m-00003-of-00003.gguf")
	require.NoError(t, os.Rename(path, third))
	require.Error(t, f.Unchanged())
	require.NoError(t, os.WriteFile(path, content, 0o600))
	require.ErrorIs(t, f.Unchanged(), safeio.ErrCorrupt, "the same bytes in another file")
}
