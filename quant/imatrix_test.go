package quant

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/calib"
	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/gguf"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/internal/testmodel"
)

// squares sums x² of every input of every layer token by token in float64, straight from the forward pass.
func squares(t *testing.T, dir string, set *calib.Set) map[string][]float64 {
	src := openModel(t, dir)
	m, err := arch.Resolve(src.Meta().Config, src)
	require.NoError(t, err)
	r := forward.NewRunner(m, nil, set.Windows, set.SeqLen)
	hidden := kernel.MatF32(len(set.IDs), m.Hidden, make([]float32, len(set.IDs)*m.Hidden))
	require.NoError(t, r.Embed(hidden, set.IDs, src))
	sums := map[string][]float64{}
	for i := range m.Blocks {
		b, err := forward.Load(src, m, i, forward.LoadOptions{})
		require.NoError(t, err)
		require.NoError(t, r.Forward(context.Background(), b, hidden, func(s forward.Sample) {
			key := fmt.Sprintf("%d %v %d", i, s.Kind, s.Expert)
			if sums[key] == nil {
				sums[key] = make([]float64, s.X.Cols)
			}
			for row := range s.X.Rows {
				for k, v := range s.X.Row(row) {
					sums[key][k] += float64(v) * float64(v)
				}
			}
		}))
	}
	return sums
}

// entryInput says which input of a block an entry describes.
var entryInput = map[string]arch.InputKind{"attn_q": arch.AttnIn, "attn_k": arch.AttnIn, "attn_v": arch.AttnIn, "attn_output": arch.OIn,
	"ffn_gate": arch.MLPIn, "ffn_up": arch.MLPIn, "ffn_down": arch.DownIn, "ffn_gate_inp": arch.MLPIn,
	"ffn_gate_exps": arch.MLPIn, "ffn_up_exps": arch.MLPIn, "ffn_down_exps": arch.DownIn}

// Importance is the float64 sum of squares of each input, experts apart, with the tokens that reached them.
func TestImatrixSums(t *testing.T) {
	for name, c := range models() {
		set := windows(6, 32, c.Vocab)
		dir := writeModel(t, c)
		want := squares(t, dir, set)
		rec := &recorder{}
		m, err := Imatrix(context.Background(), openModel(t, dir), Options{Calib: set, Threads: 3, Events: rec.add})
		require.NoError(t, err)
		require.Equal(t, []int{6, 32}, []int{m.Chunks, m.ChunkSize})
		entries := 7
		if c.Experts > 0 {
			entries = 8
			require.Len(t, rec.of(EventFinding), 2, "the expert without tokens, in both layers")
		}
		require.Len(t, m.Entries, 2*entries, name)
		for _, e := range m.Entries {
			var layer int
			var kind string
			_, err := fmt.Sscanf(strings.ReplaceAll(e.Name, ".", " "), "blk %d %s weight", &layer, &kind)
			require.NoError(t, err)
			cols := e.Cols()
			for expert := range e.Counts {
				at := -1
				if strings.HasSuffix(kind, "_exps") {
					at = expert
				}
				truth := want[fmt.Sprintf("%d %v %d", layer, entryInput[kind], at)]
				for k := range cols {
					got := e.Sums[expert*cols+k]
					if truth == nil {
						require.Zero(t, got)
						require.Zero(t, e.Counts[expert])
						continue
					}
					require.InEpsilon(t, truth[k], got, 1e-6, "%s %s %d", name, e.Name, k)
				}
				if at < 0 {
					require.EqualValues(t, 192, e.Counts[expert])
				}
			}
		}
	}
}

// On the trained model, the reference's figures are met as far as its own float32 sums are good: 3e-4.
func TestImatrixAgainstReference(t *testing.T) {
	if os.Getenv("QUANTIZE_LONG") == "" {
		t.Skip("takes half a minute: set QUANTIZE_LONG=1")
	}
	set, err := calib.Load(context.Background(), []string{filepath.Join(repository, "testdata", "data", "golm-calib-ids.jsonl")},
		calib.Options{Samples: 128, SeqLen: 512}, nil, 2048)
	require.NoError(t, err)
	got, err := Imatrix(context.Background(), openModel(t, golm), Options{Calib: set})
	require.NoError(t, err)
	want, err := gguf.OpenImatrix(filepath.Join(repository, "testdata", "gguf", "golm-llama.imatrix.gguf"))
	require.NoError(t, err)
	require.Len(t, got.Entries, len(want.Entries))
	worst := 0.0
	for _, w := range want.Entries {
		g, ok := got.Find(w.Name)
		require.True(t, ok, w.Name)
		require.Equal(t, w.Counts, g.Counts)
		for k, v := range w.Sums {
			worst = math.Max(worst, math.Abs(float64(g.Sums[k])/float64(v)-1))
		}
	}
	t.Logf("largest relative difference %.2g", worst)
	require.Less(t, worst, 3e-4)
}

// The matrix survives both file forms and serves a quantization; merging two halves gives the whole.
func TestImatrixFiles(t *testing.T) {
	dir := tinyGGUF(t)
	whole := windows(8, 32, 2000)
	half := func(from, to int) *calib.Set {
		s := *whole
		s.IDs, s.Windows, s.Requested = whole.IDs[from*32:to*32], to-from, to-from
		return &s
	}
	matrix := func(s *calib.Set) *gguf.Imatrix {
		m, err := Imatrix(context.Background(), openModel(t, dir), Options{Calib: s, Threads: 2})
		require.NoError(t, err)
		return m
	}
	all, a := matrix(whole), matrix(half(0, 3))
	require.NoError(t, a.Merge(matrix(half(3, 8))))
	require.Equal(t, all.Chunks, a.Chunks)
	for i, e := range all.Entries {
		require.Equal(t, e.Counts, a.Entries[i].Counts)
		require.Less(t, relError(a.Entries[i].Sums, e.Sums), 1e-6)
	}
	content, err := all.EncodeGGUF()
	require.NoError(t, err)
	for name, text := range map[string][]byte{"m.gguf": content, "m.dat": all.EncodeLegacy()} {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, text, 0o644))
		m, err := gguf.OpenImatrix(path)
		require.NoError(t, err)
		r := ggufType(t, "IQ2_XXS")
		r.Imatrix, r.ImatrixPath = m, name
		_, out := runGGUF(t, openModel(t, dir), r, Options{Threads: 2})
		openDense(t, out)
	}
	_, err = Imatrix(context.Background(), openModel(t, dir), Options{Calib: windows(1, 65, 100)})
	require.ErrorContains(t, err, "context of 64")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = Imatrix(ctx, openModel(t, writeModel(t, testmodel.Llama())), Options{Calib: windows(2, 32, 100)})
	require.ErrorIs(t, err, context.Canceled)
}
