package arch

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// TestPublishedConfigs reads the config.json files of about 130 published models: each one resolves against the
// tensors it implies, or is refused by the name of its architecture.
func TestPublishedConfigs(t *testing.T) {
	resolved, refused := 0, 0
	root := sharedDir(t, "assets", "configs")
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		if err != nil || name != "config.json" && !strings.HasSuffix(name, "_config.json") ||
			strings.HasSuffix(name, "quant_config.json") || name == "generation_config.json" || name == "quantize_config.json" {
			return err
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var s settings
		if strings.Contains(string(text), "Infinity") { // Python writes it, JSON does not have it
			_, err := Resolve(text, &shapes{})
			require.ErrorIs(t, err, safeio.ErrCorrupt, path)
			return nil
		}
		require.NoError(t, json.Unmarshal(text, &s), path)
		class := s["architectures"].([]any)[0].(string)
		if !slices.Contains(Supported(), class) {
			_, err := Resolve(text, &shapes{})
			require.ErrorIs(t, err, safeio.ErrUnsupported, path)
			require.ErrorContains(t, err, class, path)
			refused++
			return nil
		}
		m, err := Resolve(text, s.tensors())
		require.NoError(t, err, path)
		require.Empty(t, m.Unknown, path)
		require.Len(t, m.Blocks, s.int("num_hidden_layers", 0), path)
		checkModel(t, &Model{ // one block is like the others, and some of these have a hundred layers of experts
			Blocks: m.Blocks[:1], Rope: m.Rope, Heads: m.Heads, KVHeads: m.KVHeads, HeadDim: m.HeadDim,
		})
		_, implied, err := Implied(text)
		require.NoError(t, err, path)
		sorted := func(l []tensor.Info) []tensor.Info {
			l = slices.Clone(l)
			slices.SortFunc(l, func(a, b tensor.Info) int { return strings.Compare(a.Name, b.Name) })
			for i := range l {
				l[i].DType = tensor.BF16
			}
			return l
		}
		require.Equal(t, sorted(s.tensors().list), sorted(implied), path)
		resolved++
		checkIndex(t, filepath.Join(filepath.Dir(path), "model.safetensors.index.json"), s, m)
		return nil
	}))
	t.Logf("%d resolved, %d refused by name", resolved, refused)
	require.Greater(t, resolved, 20)
	require.Greater(t, refused, 40)
}

// checkIndex compares the tensor names of a real checkpoint with the names the model expects.
func checkIndex(t *testing.T, path string, s settings, m *Model) {
	text, err := os.ReadFile(path)
	if err != nil || filepath.Base(filepath.Dir(filepath.Dir(path))) != "index" || s["quantization"] != nil {
		return
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	require.NoError(t, json.Unmarshal(text, &index))
	for _, info := range s.tensors().list {
		require.Contains(t, index.WeightMap, info.Name, path)
		delete(index.WeightMap, info.Name)
	}
	require.Empty(t, index.WeightMap, path)
}
