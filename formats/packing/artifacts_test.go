package packing

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// reference.json holds, for every artifact that another tool wrote, its config and the SHA-256 of each linear as
// float32, computed by an independent reader. testdata has one or two linears of each; the whole files lie in the
// shared reference data.

type artifact struct {
	name   string // "autoawq/qwen2-g128"
	config *Config
	hashes map[string]string
}

func artifacts(t *testing.T) []artifact {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "reference.json"))
	require.NoError(t, err)
	v, err := safeio.ParseJSON(b)
	require.NoError(t, err)
	var all []artifact
	for name, entry := range v.Members() {
		a := artifact{name: name, hashes: map[string]string{}}
		a.config, err = ParseConfig(entry.Get("config"))
		require.NoError(t, err)
		for module, hash := range entry.Get("sha256").Members() {
			a.hashes[module], err = hash.Str()
			require.NoError(t, err)
		}
		all = append(all, a)
	}
	require.Greater(t, len(all), 20)
	return all
}

// open detects, unpacks and dequantizes every module of files, compares hashes, and returns the weights.
func (a artifact) open(t *testing.T, files stored) map[string]*Linear {
	t.Helper()
	found := map[string]*Linear{}
	for tensorName := range files {
		dot := strings.LastIndexByte(tensorName, '.')
		module := tensorName[:dot]
		if _, known := a.hashes[module]; !known || found[module] != nil {
			continue
		}
		f, ok, err := Detect(a.config, files.module(module))
		require.NoError(t, err)
		require.True(t, ok, module)
		l, err := f.Unpack(files.source(module))
		require.NoError(t, err)
		require.Empty(t, l.Notes)
		sum := sha256.New()
		raw := make([]byte, 4*l.Out*l.In)
		require.NoError(t, tensor.FromFloat32(raw, tensor.F32, dense(t, l)))
		sum.Write(raw)
		require.Equal(t, a.hashes[module], hex.EncodeToString(sum.Sum(nil)), "%s %s", a.name, module)
		found[module] = l
	}
	return found
}

func TestArtifactExcerpts(t *testing.T) {
	opened := 0
	for _, a := range artifacts(t) {
		path := filepath.Join("testdata", strings.ReplaceAll(a.name, "/", ".")+".safetensors")
		if _, err := os.Stat(path); err != nil {
			continue
		}
		for module, l := range a.open(t, readStored(t, path)) {
			convertEverywhere(t, a.name+" "+module, l)
			opened++
		}
	}
	require.GreaterOrEqual(t, opened, 22)
}

// convertEverywhere carries a weight into every layout that can hold it and expects the same numbers back.
func convertEverywhere(t *testing.T, name string, l *Linear) {
	t.Helper()
	want := dense(t, l)
	for _, layout := range Layouts() {
		c, err := Convert(l, &layout)
		if err != nil {
			require.ErrorIs(t, err, safeio.ErrUnsupported, name)
			continue
		}
		back, err := layout.Unpack(c.Scheme, c.Out, c.In, packed(t, layout, c).source("m"))
		require.NoError(t, err, "%s to %s", name, layout.Name)
		require.Equal(t, want, dense(t, back), "%s to %s", name, layout.Name)
	}
}

func TestWholeArtifacts(t *testing.T) {
	for _, a := range artifacts(t) {
		t.Run(a.name, func(t *testing.T) {
			path := filepath.Join(strings.Split(a.name, "/")...)
			if strings.HasSuffix(a.name, "layer0") {
				path += ".safetensors"
			} else {
				path = filepath.Join(path, "model.safetensors")
			}
			files := readStored(t, shared(t, "golden", path))
			require.Len(t, a.open(t, files), len(a.hashes))
			for name, e := range files { // nothing else is taken for a quantized module
				module := strings.TrimSuffix(name, ".weight")
				if a.hashes[module] != "" || module == name {
					continue
				}
				_, ok, err := Detect(a.config, files.module(module))
				require.NoError(t, err)
				require.False(t, ok, "%s %v", name, e.Shape)
			}
		})
	}
}

// An artifact packed again is the same file: our writer makes the words that the reference writers make.
func TestRepackedBytes(t *testing.T) {
	for _, name := range []string{"autoawq/qwen2-g128", "gptqmodel/qwen2-w4g128", "gptqmodel/qwen2-w4g128-actorder", "gptqmodel/qwen2-w4g128-asym-v1",
		"gptqmodel/qwen2-w4g128-asym-v2", "gptqmodel/qwen2-w3g128", "gptqmodel/qwen2-w2g64", "llmcompressor/golm-llama.w4a16-gptq",
		"llmcompressor/golm-llama.awq-w4a16-asym", "llmcompressor/golm-qwen2.w3a16-rtn", "llmcompressor/golm-qwen2.w8a16-rtn",
		"llmcompressor/golm-qwen2.sq-w8a8-static-asym"} {
		files := readStored(t, filepath.Join("testdata", strings.ReplaceAll(name, "/", ".")+".safetensors"))
		for _, a := range artifacts(t) {
			if a.name != name {
				continue
			}
			for module, l := range a.open(t, files) {
				f, _, err := Detect(a.config, files.module(module))
				require.NoError(t, err)
				again := packed(t, *f.Layout, l)
				for planned, e := range again {
					stored := files[module+strings.TrimPrefix(planned, "m")]
					require.Equal(t, stored.data, e.data, "%s %s", name, planned)
					require.Equal(t, stored.Shape, e.Shape, "%s %s", name, planned)
				}
			}
		}
	}
}
