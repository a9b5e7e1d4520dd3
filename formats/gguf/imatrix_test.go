package gguf

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/stretchr/testify/require"
)

func openImatrix(t testing.TB, content []byte) *Imatrix {
	t.Helper()
	m, err := OpenImatrix(write(t, "imatrix", content))
	require.NoError(t, err)
	return m
}

// Reading llama-imatrix's file and writing it again gives the same bytes, in both forms, and the legacy form follows
// from the GGUF form byte for byte.
func TestImatrixFormsEqualReference(t *testing.T) {
	for _, model := range []string{"golm-llama", "golm-qwen3moe"} {
		gguf, dat := golden(t, model+".imatrix.gguf"), golden(t, model+".imatrix.dat")
		m := openImatrix(t, gguf)
		require.Equal(t, []string{"golm-calib-65536.txt"}, m.Datasets)
		require.Equal(t, 128, m.Chunks)
		require.Equal(t, 512, m.ChunkSize)
		again, err := m.EncodeGGUF()
		require.NoError(t, err)
		require.True(t, bytes.Equal(gguf, again), model)
		require.True(t, bytes.Equal(dat, m.EncodeLegacy()), model)
		old := openImatrix(t, dat)
		require.True(t, old.Legacy)
		require.True(t, bytes.Equal(dat, old.EncodeLegacy()), model)
		require.Equal(t, len(m.Entries), len(old.Entries))
		require.Equal(t, ImatrixFacts{File: "x", Dataset: "golm-calib-65536.txt", Entries: len(m.Entries), Chunks: 128}, m.Facts("x"))
	}
}

// Dense entries of the two forms give the same importance bit for bit when counts are powers of two; experts differ by
// rounding only.
func TestImportanceOfBothForms(t *testing.T) {
	a := openImatrix(t, golden(t, "golm-qwen3moe.imatrix.gguf"))
	b := openImatrix(t, golden(t, "golm-qwen3moe.imatrix.dat"))
	for _, e := range a.Entries {
		tensor, ok := NewTensor(e.Name, F32, int64(len(e.Counts)), 8, int64(e.Cols()))
		require.True(t, ok)
		x, err := a.Importance(&tensor)
		require.NoError(t, err)
		y, err := b.Importance(&tensor)
		require.NoError(t, err)
		if len(e.Counts) == 1 {
			require.Equal(t, x.Values, y.Values, e.Name)
		}
		for i := range x.Values {
			require.InEpsilon(t, x.Values[i], y.Values[i], 1e-6)
		}
		require.Empty(t, x.Unseen)
		require.Empty(t, x.Zero)
	}
}

func smallImatrix() *Imatrix {
	return &Imatrix{Datasets: []string{"a.txt"}, Chunks: 2, ChunkSize: 4, Entries: []ImatrixEntry{
		{"blk.0.attn_q.weight", []float32{8, 16}, []float32{8}},
		{"blk.0.ffn_up_exps.weight", []float32{3, 6, 9, 9, 0, 0}, []float32{3, 0, 5}},
	}}
}

func TestImportance(t *testing.T) {
	m := smallImatrix()
	q, _ := NewTensor("blk.0.attn_q.weight", F16, 5, 2)
	got, err := m.Importance(&q)
	require.NoError(t, err)
	require.Equal(t, []float32{1, 2}, got.Values)

	up, _ := NewTensor("blk.0.ffn_up_exps.weight", F16, 3, 7, 2)
	got, err = m.Importance(&up)
	require.NoError(t, err)
	require.Equal(t, []float32{1, 2, 1, 1, 1, 1}, got.Values)
	require.Equal(t, []int{1}, got.Unseen)
	require.Equal(t, []int{2}, got.Zero)

	none, _ := NewTensor("blk.9.attn_q.weight", F16, 5, 2)
	got, err = m.Importance(&none)
	require.NoError(t, err)
	require.Nil(t, got)

	wrong, _ := NewTensor("blk.0.attn_q.weight", F16, 5, 4)
	_, err = m.Importance(&wrong)
	require.ErrorIs(t, err, safeio.ErrCorrupt)

	m.Entries = append(m.Entries, ImatrixEntry{"token_embd.weight", []float32{1}, []float32{1}})
	embed, _ := NewTensor("token_embd.weight", F16, 5, 4)
	got, err = m.Importance(&embed)
	require.NoError(t, err)
	require.Nil(t, got, "an entry for the embedding never fits and is ignored")
}

func TestCoverageAndFilter(t *testing.T) {
	m := smallImatrix()
	missing, extra := m.Coverage([]string{"blk.1.attn_q.weight", "blk.0.attn_q.weight"})
	require.Equal(t, []string{"blk.1.attn_q.weight"}, missing)
	require.Equal(t, []string{"blk.0.ffn_up_exps.weight"}, extra)
	m.Filter(func(name string) bool { return name == "blk.0.attn_q.weight" })
	require.Len(t, m.Entries, 1)
}

func TestMerge(t *testing.T) {
	a, b := smallImatrix(), smallImatrix()
	b.Entries[0].Name = "blk.0.attn_k.weight"
	b.Datasets = []string{"b.txt"}
	require.NoError(t, a.Merge(b))
	require.Equal(t, []string{"a.txt", "b.txt"}, a.Datasets)
	require.Equal(t, 4, a.Chunks)
	require.Equal(t, []ImatrixEntry{
		{"blk.0.attn_k.weight", []float32{8, 16}, []float32{8}},
		{"blk.0.attn_q.weight", []float32{8, 16}, []float32{8}},
		{"blk.0.ffn_up_exps.weight", []float32{6, 12, 18, 18, 0, 0}, []float32{6, 0, 10}},
	}, a.Entries)
	b.Entries[1].Sums = b.Entries[1].Sums[:3]
	require.ErrorIs(t, a.Merge(b), safeio.ErrCorrupt)
	b.ChunkSize = 8
	require.ErrorIs(t, a.Merge(b), safeio.ErrUnsupported)
}

func TestLegacyWritesOnesForUnseenExperts(t *testing.T) {
	m := smallImatrix()
	m.Entries = append(m.Entries, ImatrixEntry{"blk.1.attn_q.weight", []float32{0, 0}, []float32{0}})
	old := openImatrix(t, m.EncodeLegacy())
	require.Len(t, old.Entries, 2, "an entry without any token is left out")
	require.Equal(t, []float32{2, 4, 2, 2, 0, 0}, old.Entries[1].Sums)
	require.Equal(t, []float32{2}, old.Entries[1].Counts)
}

func TestHostileImatrix(t *testing.T) {
	le := func(parts ...any) []byte {
		var b []byte
		for _, p := range parts {
			switch p := p.(type) {
			case int:
				b = binary.LittleEndian.AppendUint32(b, uint32(p))
			case float32:
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(p))
			case string:
				b = append(b, p...)
			}
		}
		return b
	}
	nan := float32(math.NaN())
	broken := func(change func(m *Imatrix)) []byte {
		m := smallImatrix()
		change(m)
		b, err := m.EncodeGGUF()
		require.NoError(t, err)
		return b
	}
	for name, content := range map[string][]byte{
		"empty":               nil,
		"no entries":          le(0),
		"negative entries":    le(-1),
		"too many entries":    le(1 << 30),
		"name past the end":   le(1, 100, "abc", 0, 0),
		"negative name":       le(1, -5, "abcdefghijkl"),
		"empty name":          le(1, 0, 1, 1, float32(1)),
		"bad utf-8":           le(1, 1, "\xff", 1, 1, float32(1)),
		"negative calls":      le(1, 1, "a", -1, 1, float32(1)),
		"no values":           le(1, 1, "a", 1, 0, "xxxx"),
		"values past the end": le(1, 1, "a", 1, 1<<29, float32(1)),
		"twice":               le(2, 1, "a", 1, 1, float32(1), 1, "a", 1, 1, float32(1)),
		"nan":                 le(1, 1, "a", 1, 1, nan),
		"negative value":      le(1, 1, "a", 1, 1, float32(-1)),
		"infinite":            le(1, 1, "a", 1, 1, float32(math.Inf(1))),
		"short tail":          le(1, 1, "a", 1, 1, float32(1), 7),
		"long tail":           le(1, 1, "a", 1, 1, float32(1), 7, 1, "dx"),
		"gguf: nan":           broken(func(m *Imatrix) { m.Entries[0].Sums[1] = nan }),
		"gguf: negative":      broken(func(m *Imatrix) { m.Entries[0].Counts[0] = -8 }),
		"gguf: no counts":     bytes.Replace(broken(func(*Imatrix) {}), []byte("attn_q.weight.counts"), []byte("attn_q.weight.others"), 1),
		"gguf: uneven":        bytes.Replace(broken(func(*Imatrix) {}), []byte("ffn_up_exps.weight.counts"), []byte("attn_q.weight.counts12345"), 1),
		"gguf: a model":       golden(t, "header-golm-llama-BF16.gz"),
	} {
		_, err := OpenImatrix(write(t, "imatrix", content))
		require.ErrorIs(t, err, safeio.ErrCorrupt, name)
	}
	uneven := smallImatrix()
	uneven.Entries[1].Counts = []float32{1, 1, 1, 1}
	_, err := uneven.EncodeGGUF()
	require.ErrorIs(t, err, safeio.ErrCorrupt)
	tail := openImatrix(t, le(1, 1, "a", 3, 1, float32(6)))
	require.Zero(t, tail.Chunks, "the tail is optional")
}
