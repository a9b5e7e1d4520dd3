package gguf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/stretchr/testify/require"
)

// goldenValue spells a value of convert-MODEL.json as Format does; long arrays are recorded by their beginning.
func goldenValue(t *testing.T, v any) (text string, whole bool) {
	t.Helper()
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return fmt.Sprint(v), true
	case float64:
		return fmt.Sprint(float32(v)), true
	case []any:
		var texts []string
		for _, x := range v {
			texts = append(texts, x.(string))
		}
		return Strings(texts).Format(len(texts)), true
	case map[string]any:
		first := v["first"].([]any)
		if _, isText := first[0].(string); isText {
			text, _ := goldenValue(t, first)
			return text, false
		}
		var ints []int32
		for _, x := range first {
			ints = append(ints, int32(x.(float64)))
		}
		return Int32s(ints).Format(len(ints)), false
	}
	t.Fatalf("unexpected %T", v)
	return "", false
}

// The listing of a conversion agrees key by key and tensor by tensor: what TestConversionEqualsReference says in one hash,
// said so that a difference can be found.
func TestConversionListing(t *testing.T) {
	for _, model := range []string{"golm-llama", "golm-qwen2", "golm-qwen3moe"} {
		t.Run(model, func(t *testing.T) {
			c := openModel(t, modelDir(t, model))
			var want map[string]goldenConversion
			goldenJSON(t, "convert-"+model+".json.gz", &want)
			var pairs [][]any
			require.NoError(t, json.Unmarshal(want["F32"].KV, &pairs))
			content := c.convert(t, F32)
			f, err := Open(write(t, "m.gguf", content))
			require.NoError(t, err)
			defer f.Close()
			require.Equal(t, want["F32"].DataOffset, f.Shards()[0].Data)
			require.Equal(t, len(pairs), f.KV.Len())
			i := 0
			for key, v := range f.KV.All() {
				require.Equal(t, pairs[i][0], key)
				require.Equal(t, pairs[i][1], v.TypeName(), key)
				text, whole := goldenValue(t, pairs[i][2])
				if !whole {
					n := int(pairs[i][2].(map[string]any)["length"].(float64))
					require.Equal(t, n, v.Len(), key)
					require.Contains(t, v.Format(8), text[:len(text)-1], key)
				} else if v.Kind() == KindFloat32 {
					x, err := v.Float()
					require.NoError(t, err)
					require.InEpsilon(t, pairs[i][2], x, 1e-12, key)
				} else {
					require.Equal(t, text, v.Format(100), key)
				}
				i++
			}
			for i, row := range want["F32"].Tensors {
				got := &f.Tensors[i]
				require.Equal(t, row[0], got.Name)
				require.Equal(t, row[1], got.Type.String())
				var ne []any
				for _, n := range got.NE[:got.Dims] {
					ne = append(ne, float64(n))
				}
				require.Equal(t, row[2], ne, got.Name)
				require.Equal(t, row[3], float64(got.Offset), got.Name)
				require.Equal(t, row[4], float64(got.Bytes), got.Name)
				data := make([]byte, got.Bytes)
				require.NoError(t, f.ReadAt(got, data, 0))
				require.Equal(t, row[5], sum(data), got.Name)
			}
		})
	}
}

// Files of other tools open: llama.cpp's vocabularies without tensors, a hand-made model. Their tokenizers are rebuilt or
// refused by name.
func TestForeignFilesOpen(t *testing.T) {
	for name, c := range map[string]struct {
		tokens  int
		refused bool
	}{
		"ggml-vocab-llama-spm.gguf": {32000, false}, "ggml-vocab-phi-3.gguf": {32064, false}, "ggml-vocab-gpt-2.gguf": {50257, false},
		"ggml-vocab-starcoder.gguf": {49152, false}, "ggml-vocab-deepseek-coder.gguf": {32256, false},
		"ggml-vocab-falcon.gguf": {65024, true}, "ggml-vocab-bert-bge.gguf": {30522, true},
	} {
		f, err := Open(shared(t, "assets", "gguf-vocab", name))
		require.NoError(t, err, name)
		require.Empty(t, f.Tensors)
		tokens, err := f.KV.Strings("tokenizer.ggml.tokens")
		require.NoError(t, err)
		require.Len(t, tokens, c.tokens, name)
		text, err := f.tokenizerJSON(&params{vocab: c.tokens})
		_, _, hfErr := f.HF()
		require.Error(t, hfErr, "a vocabulary is no model")
		require.NoError(t, f.Close())
		if c.refused {
			require.ErrorIs(t, err, safeio.ErrUnsupported, name)
			continue
		}
		require.NoError(t, err, name)
		doc, err := safeio.ParseJSON(text)
		require.NoError(t, err)
		require.Positive(t, doc.Path("model", "merges").Len(), name)
	}
	f, err := Open(shared(t, "assets", "stories260K", "stories260K-F32.gguf"))
	require.NoError(t, err)
	defer f.Close()
	m, err := f.ToHF()
	require.NoError(t, err)
	c := openModel(t, shared(t, "assets", "stories260K"))
	for _, info := range c.Tensors() {
		require.Equal(t, readAll(t, c, info.Name), readAll(t, m.Tensors, info.Name), info.Name)
	}
}

// A split set reads like the single file, through the view as well.
func TestSplitSetsReadAsOneModel(t *testing.T) {
	set, err := Open(firstShard(t))
	require.NoError(t, err)
	defer set.Close()
	p, err := Plan(&set.Header, PlanOptions{Name: "one.gguf"})
	require.NoError(t, err)
	one, err := Open(write(t, "one.gguf", copyTensors(t, p, set)[0]))
	require.NoError(t, err)
	defer one.Close()
	configA, a, err := set.HF()
	require.NoError(t, err)
	configB, b, err := one.HF()
	require.NoError(t, err)
	require.Equal(t, configA, configB)
	require.Equal(t, a.Tensors(), b.Tensors())
	r := rand.New(rand.NewPCG(3, 4))
	for _, info := range a.Tensors() {
		n, ok := info.Bytes()
		require.True(t, ok)
		for range 5 { // any range, row boundaries or not
			from := r.Int64N(n)
			span := min(1+r.Int64N(9000), n-from)
			x, y := make([]byte, span), make([]byte, span)
			require.NoError(t, a.ReadTensor(info.Name, x, from))
			require.NoError(t, b.ReadTensor(info.Name, y, from))
			require.True(t, bytes.Equal(x, y), "%s %d+%d", info.Name, from, span)
		}
	}
	require.Equal(t, filepath.Base(firstShard(t)), set.Shards()[0].Name)
	require.Equal(t, firstShard(t), set.Path())
}

// Copying a tensor in pieces of any size gives the tensor.
func TestViewInPieces(t *testing.T) {
	for _, fam := range families {
		f := openHeader(t, tiny(fam.arch))
		m, err := f.ToHF()
		require.NoError(t, err)
		for _, info := range m.Tensors.Tensors() {
			whole := readAll(t, m.Tensors, info.Name)
			for _, step := range []int{1, 3, 16, 37, 1000} {
				var pieces []byte
				for at := 0; at < len(whole); at += step {
					piece := make([]byte, min(step, len(whole)-at))
					require.NoError(t, m.Tensors.ReadTensor(info.Name, piece, int64(at)))
					pieces = append(pieces, piece...)
				}
				require.True(t, bytes.Equal(whole, pieces), "%s %s in pieces of %d", fam.arch, info.Name, step)
			}
		}
	}
}
