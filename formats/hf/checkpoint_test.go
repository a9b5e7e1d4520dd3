package hf

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
)

func TestOpenLayouts(t *testing.T) {
	dir := t.TempDir()
	one := weightsFile(t, "a", "b")
	config := "{}"
	for name, f := range map[string]tree{
		"single":                    singleTree(t),
		"sharded":                   shardedTree(t),
		"single-with-index":         {ConfigName: config, "model.safetensors": one, indexName: index(t, "a", "model.safetensors", "b", "model.safetensors")},
		"single-odd-name":           {ConfigName: config, "output.safetensors": one},
		"complete-set-no-index":     {ConfigName: config, "output-00001-of-00002.safetensors": weightsFile(t, "a"), "output-00002-of-00002.safetensors": weightsFile(t, "b")},
		"one-of-one":                {ConfigName: config, "model-00001-of-00001.safetensors": one},
		"consolidated-besides":      {ConfigName: config, "model.safetensors": one, "consolidated.safetensors": weightsFile(t, "x")},
		"consolidated-beside-index": {ConfigName: config, shard1: weightsFile(t, "a"), shard2: weightsFile(t, "b"), indexName: index(t, "a", shard1, "b", shard2), "adapter_model.safetensors": "junk"},
		"stale-exl2-index": {ConfigName: `{"quantization_config":{"quant_method":"exl2"}}`, "output-00001-of-00002.safetensors": weightsFile(t, "a"),
			"output-00002-of-00002.safetensors": weightsFile(t, "b"), indexName: index(t, "x", shard1, "y", shard2)},
		"pickles-besides": {ConfigName: config, "model.safetensors": one, "pytorch_model.bin": "pickle"},
	} {
		f.write(t, filepath.Join(dir, name))
		c, err := open(t, filepath.Join(dir, name))
		require.NoError(t, err, name)
		requireWhole(t, c, "a", "b")
		require.NoError(t, c.Unchanged())
		file, _, n, ok := c.Place("b")
		require.True(t, ok)
		require.FileExists(t, filepath.Join(c.Dir(), file))
		require.EqualValues(t, 3, n)
		require.Error(t, c.ReadTensor("none", nil, 0))
		_, ok = c.Lookup("none")
		require.False(t, ok)
	}
	c, err := open(t, filepath.Join(dir, "consolidated-besides"))
	require.NoError(t, err)
	require.Equal(t, []string{"consolidated.safetensors"}, c.Skipped())
}

// A single file is opened with the configuration that lies beside it, if any.
func TestOpenSingleFile(t *testing.T) {
	dir := t.TempDir()
	shardedTree(t).write(t, dir)
	c, err := open(t, filepath.Join(dir, shard2))
	require.NoError(t, err)
	requireWhole(t, c, "b")
	require.True(t, c.Config().Exists())
	require.Empty(t, c.Side(), "a file by itself has no company")
	require.NoError(t, os.Remove(filepath.Join(dir, ConfigName)))
	c, err = open(t, filepath.Join(dir, shard2))
	require.NoError(t, err)
	require.False(t, c.Config().Exists())
	t.Chdir(dir)
	c, err = open(t, shard1)
	require.NoError(t, err)
	requireWhole(t, c, "a")
}

// Outputs carry over everything a model needs, and nothing that describes this artifact or does not belong to it.
func TestSideFiles(t *testing.T) {
	dir := t.TempDir()
	f := singleTree(t)
	carried := []string{"LICENSE", "README.md", "added_tokens.json", "chat_template.jinja", "configuration_x.py", "generation_config.json", "merges.txt",
		"preprocessor_config.json", "special_tokens_map.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json"}
	left := []string{"model.onnx", "old.gguf", "pytorch_model.bin", "tf_model.h5", "training_args.bin"}
	for _, n := range append(append([]string{".gitattributes", "quantize_config.json", "quantize_report.json", "pytorch_model.bin.index.json", "x.partial", "t.lock"}, carried...), left...) {
		f[n] = "{}"
	}
	f.write(t, dir)
	for _, d := range []string{".git", "original", "__pycache__"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	c, err := open(t, dir)
	require.NoError(t, err)
	var names []string
	for _, s := range c.Side() {
		names = append(names, s.Name)
		r, err := s.Open()
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.EqualValues(t, len(data), s.Size)
	}
	require.Equal(t, carried, names)
	require.Equal(t, []string{"model.onnx", "old.gguf", "original/", "pytorch_model.bin", "tf_model.h5", "training_args.bin"}, c.Skipped())
}

// Every limit that a directory can reach is enforced where it is reached.
func TestLimits(t *testing.T) {
	dir := t.TempDir()
	f := shardedTree(t)
	f["a.txt"], f["b.txt"] = "12", "34"
	f.write(t, dir)
	withoutIndex := filepath.Join(dir, "sub")
	delete(f, indexName)
	f.write(t, withoutIndex)
	for name, lower := range map[string]func(*safeio.Limits){
		"tensors": func(l *safeio.Limits) { l.Tensors = 1 }, "shards": func(l *safeio.Limits) { l.Shards = 1 },
		"side files": func(l *safeio.Limits) { l.SideFiles = 1 }, "side file": func(l *safeio.Limits) { l.SideFile = 1 },
		"config": func(l *safeio.Limits) { l.ConfigJSON = 5 }, "header": func(l *safeio.Limits) { l.SafetensorsHeader = 8 },
	} {
		limits := safeio.DefaultLimits()
		lower(&limits)
		for _, path := range []string{dir, withoutIndex} {
			_, err := Open(path, limits)
			require.ErrorIs(t, err, safeio.ErrLimit, name)
		}
	}
	limits := safeio.DefaultLimits()
	limits.IndexJSON = 5
	_, err := Open(dir, limits)
	require.ErrorIs(t, err, safeio.ErrLimit)
}

// An input that changes while it is in use is noticed before anything computed from it is published.
func TestChangedInput(t *testing.T) {
	dir := t.TempDir()
	f := singleTree(t)
	f["tokenizer.json"] = "{}"
	f.write(t, dir)
	c, err := open(t, dir)
	require.NoError(t, err)
	path := filepath.Join(dir, "model.safetensors")
	require.NoError(t, os.Chtimes(path, time.Time{}, time.Unix(1e9, 0)))
	require.ErrorIs(t, c.Unchanged(), safeio.ErrCorrupt)
	_, err = c.Weights()[0].Open()
	require.ErrorIs(t, err, safeio.ErrCorrupt)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte("longer"), 0o644))
	_, err = c.Side()[0].Open()
	require.ErrorIs(t, err, safeio.ErrCorrupt)
	require.NoError(t, os.Remove(path))
	require.Error(t, c.Unchanged())
}

// cache builds a repository of the Hub's cache with these revisions, files being links into the blob store.
func cache(t *testing.T, dir string, revisions ...string) string {
	repo := filepath.Join(dir, "models--org--name")
	for i, rev := range revisions {
		snapshot := filepath.Join(repo, "snapshots", rev)
		blobs := filepath.Join(repo, "blobs")
		require.NoError(t, os.MkdirAll(snapshot, 0o755))
		require.NoError(t, os.MkdirAll(blobs, 0o755))
		f := singleTree(t)
		f[ConfigName] = `{"revision":"` + rev + `"}`
		for name, text := range f {
			require.NoError(t, os.WriteFile(filepath.Join(blobs, rev+name), []byte(text), 0o644))
			require.NoError(t, os.Symlink(filepath.Join("..", "..", "blobs", rev+name), filepath.Join(snapshot, name)))
		}
		when := time.Unix(int64(1_700_000_000+i), 0)
		require.NoError(t, os.Chtimes(snapshot, when, when))
	}
	return repo
}

func TestHubCache(t *testing.T) {
	dir := t.TempDir()
	repo := cache(t, dir, "b", "a")
	revision := func(path string) string {
		t.Helper()
		c, err := open(t, path)
		require.NoError(t, err)
		requireWhole(t, c, "a", "b")
		rev, err := safeio.At(c.Config(), "revision", safeio.Value.Str)
		require.NoError(t, err)
		return rev
	}
	require.Equal(t, "a", revision(repo), "without a reference the newest snapshot")
	ref := filepath.Join(repo, "refs", "main")
	require.NoError(t, os.MkdirAll(filepath.Dir(ref), 0o755))
	require.NoError(t, os.WriteFile(ref, []byte("b\n"), 0o644))
	require.Equal(t, "b", revision(repo))
	require.Equal(t, "a", revision(filepath.Join(repo, "snapshots", "a")))
	require.NoError(t, os.Symlink(filepath.Join(repo, "snapshots", "a"), filepath.Join(dir, "link")))
	require.Equal(t, "a", revision(filepath.Join(dir, "link")))
	require.NoError(t, os.WriteFile(ref, []byte("gone"), 0o644))
	require.Equal(t, "a", revision(repo), "a reference to a snapshot that is not there")
	require.Equal(t, "a", revision(filepath.Join(repo, "snapshots", "a", "model.safetensors")))

	require.NoError(t, os.WriteFile(ref, []byte("../../.."), 0o644))
	_, err := open(t, repo)
	require.ErrorIs(t, err, safeio.ErrCorrupt)
	require.NoError(t, os.WriteFile(ref, make([]byte, 1000), 0o644))
	_, err = open(t, repo)
	require.ErrorIs(t, err, safeio.ErrLimit)
	require.NoError(t, os.RemoveAll(filepath.Join(repo, "refs")))
	require.NoError(t, os.RemoveAll(filepath.Join(repo, "snapshots")))
	require.NoError(t, os.Mkdir(filepath.Join(repo, "snapshots"), 0o755))
	_, err = open(t, repo)
	require.ErrorIs(t, err, safeio.ErrCorrupt)
}

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		name, config, file, text string
		method, source           string
	}{
		{"dense", `{}`, "", "", "", ""},
		{"null", `{"quantization_config":null}`, "", "", "", ""},
		{"stated", `{"quantization_config":{"quant_method":"gptq","bits":4}}`, "", "", "gptq", ConfigName},
		{"config wins", `{"quantization_config":{"quant_method":"gptq"}}`, "quant_config.json", `{"w_bit":4}`, "gptq", ConfigName},
		{"multimodal", `{"text_config":{"quantization_config":{"quant_method":"awq"}}}`, "", "", "awq", ConfigName},
		{"first compressed-tensors", `{"compression_config":{"format":"pack-quantized","config_groups":{}}}`, "", "", "compressed-tensors", ConfigName},
		{"mlx", `{"quantization":{"group_size":64,"bits":4}}`, "", "", "mlx", ConfigName},
		{"telltale", `{"quantization_config":{"load_in_8bit":true}}`, "", "", "bitsandbytes", ConfigName},
		{"AutoGPTQ", `{}`, "quantize_config.json", `{"bits":4,"group_size":128,"desc_act":true}`, "gptq", "quantize_config.json"},
		{"GPTQModel's awq", `{}`, "quantize_config.json", `{"quant_method":"awq","bits":4}`, "awq", "quantize_config.json"},
		{"AutoRound", `{}`, "quantization_config.json", `{"bits":4}`, "gptq", "quantization_config.json"},
		{"llm-awq", `{}`, "quant_config.json", `{"w_bit":4,"q_group_size":128}`, "awq", "quant_config.json"},
		{"ModelOpt", `{}`, "hf_quant_config.json", `{"producer":{},"quantization":{"quant_algo":"FP8"}}`, "modelopt", "hf_quant_config.json"},
	} {
		dir := t.TempDir()
		f := singleTree(t)
		f[ConfigName] = c.config
		if c.file != "" {
			f[c.file] = c.text
		}
		f.write(t, dir)
		got, err := open(t, dir)
		require.NoError(t, err, c.name)
		if c.method == "" {
			require.Nil(t, got.Quantization(), c.name)
			continue
		}
		require.Equal(t, c.method, got.Quantization().Method, c.name)
		require.Equal(t, c.source, got.Quantization().Source, c.name)
		require.Equal(t, safeio.Object, got.Quantization().Raw.Kind(), c.name)
	}
}

// The models and artifacts that tests elsewhere rely on open, whichever tool wrote them.
func TestOpenReferenceArtifacts(t *testing.T) {
	paths, err := filepath.Glob("../../../shared/golden/[abgl]*/*/config.json")
	require.NoError(t, err)
	if len(paths) == 0 {
		t.Skip("no reference artifacts beside the repository")
	}
	opened := 0
	for _, path := range paths {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), "model.safetensors")); err != nil {
			continue // a configuration by itself
		}
		c, err := open(t, filepath.Dir(path))
		require.NoError(t, err)
		require.NotNil(t, c.Quantization(), path)
		opened++
	}
	require.Greater(t, opened, 20)
}
