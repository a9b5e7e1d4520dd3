package hf

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safetensors"
	"github.com/llmquant/quantize/formats/tensor"
)

// tree is a directory: base name to content. The tests below build checkpoints from it and damage them.
type tree map[string]string

// weightsFile renders a safetensors file of U8 vectors of length 3 filled with their name's first byte.
func weightsFile(t testing.TB, names ...string) string {
	var infos []tensor.Info
	for _, n := range names {
		infos = append(infos, tensor.Info{Name: n, DType: tensor.U8, Shape: []int64{3}})
	}
	plan, _, err := safetensors.Plan(infos, 0, nil)
	require.NoError(t, err)
	data := make([]byte, plan.Files[0].Size)
	copy(data, plan.Files[0].Header)
	for _, p := range plan.Tensors {
		copy(data[p.Offset:], bytes.Repeat([]byte{p.Name[0]}, 3))
	}
	return string(data)
}

func index(t testing.TB, pairs ...string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	b, err := json.Marshal(map[string]any{"metadata": map[string]any{"total_size": 6}, "weight_map": m})
	require.NoError(t, err)
	return string(b)
}

const (
	shard1 = "model-00001-of-00002.safetensors"
	shard2 = "model-00002-of-00002.safetensors"
)

func singleTree(t testing.TB) tree {
	return tree{"config.json": `{"model_type":"llama"}`, "model.safetensors": weightsFile(t, "a", "b")}
}

func shardedTree(t testing.TB) tree {
	return tree{"config.json": `{"model_type":"llama"}`, shard1: weightsFile(t, "a"), shard2: weightsFile(t, "b"), indexName: index(t, "a", shard1, "b", shard2)}
}

func (f tree) write(t testing.TB, dir string) {
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for name, text := range f {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
}

func open(t testing.TB, path string) (*Checkpoint, error) {
	c, err := Open(path, safeio.DefaultLimits())
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// requireWhole reads every tensor of a checkpoint made here.
func requireWhole(t testing.TB, c *Checkpoint, names ...string) {
	t.Helper()
	require.Len(t, c.Tensors(), len(names))
	for _, n := range names {
		buf := make([]byte, 3)
		require.NoError(t, c.ReadTensor(n, buf, 0))
		require.Equal(t, bytes.Repeat([]byte{n[0]}, 3), buf)
	}
}
