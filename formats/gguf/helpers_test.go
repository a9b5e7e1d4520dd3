package gguf

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/container"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safetensors"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/stretchr/testify/require"
)

// root is the repository, from this package's directory.
var root = filepath.Join("..", "..")

// shared returns a path of the data directory beside the repository and skips the test when it is not there.
func shared(t testing.TB, parts ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{root, "..", "shared"}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the reference data %s are not beside the repository", filepath.Join(parts...))
	}
	return path
}

// modelDir returns one of the project's models: in the repository, or beside it.
func modelDir(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(root, "testdata", name)
	if _, err := os.Stat(filepath.Join(dir, "model.safetensors")); err == nil {
		return dir
	}
	return shared(t, "models", name)
}

// golden reads a file of testdata/gguf, decompressed when its name ends in .gz.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "testdata", "gguf", name))
	require.NoError(t, err)
	if filepath.Ext(name) != ".gz" {
		return b
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	require.NoError(t, err)
	b, err = io.ReadAll(z)
	require.NoError(t, err)
	return b
}

func goldenJSON(t testing.TB, name string, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(golden(t, name), into))
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// checkpoint is an opened Hugging Face directory.
type checkpoint struct {
	*safetensors.File
	config []byte
	side   map[string][]byte
	model  *arch.Model
	name   string
}

func openModel(t testing.TB, dir string) *checkpoint {
	t.Helper()
	f, err := safetensors.Open(filepath.Join(dir, "model.safetensors"), safeio.DefaultLimits())
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	c := &checkpoint{File: f, side: map[string][]byte{}, name: filepath.Base(dir)}
	c.config, err = os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	for _, name := range SideFiles() {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			c.side[name] = b
		}
	}
	c.model, err = arch.Resolve(c.config, f)
	require.NoError(t, err)
	return c
}

func (c *checkpoint) options(t Type) ConvertOptions {
	return ConvertOptions{Type: t, Config: c.config, Side: c.side, Name: c.name}
}

// convert returns the whole GGUF file of a checkpoint.
func (c *checkpoint) convert(t testing.TB, typ Type) []byte {
	t.Helper()
	h, maps, err := FromHF(c.model, c.File, c.options(typ))
	require.NoError(t, err)
	p, err := Plan(h, PlanOptions{Name: "m.gguf"})
	require.NoError(t, err)
	return fill(t, p, func(i int, dst []byte) {
		m := &maps[i]
		rows := make([]float32, m.Elements())
		require.NoError(t, m.ReadRows(c.File, rows, 0))
		require.NoError(t, EncodeRows(dst, m.Type, rows))
	})[0]
}

// fill writes the files of a plan into memory.
func fill(t testing.TB, p *container.Plan, data func(i int, dst []byte)) [][]byte {
	t.Helper()
	files := make([][]byte, len(p.Files))
	for i, f := range p.Files {
		files[i] = make([]byte, f.Size)
		copy(files[i], f.Header)
	}
	for i, at := range p.Tensors {
		data(i, files[at.File][at.Offset:at.Offset+at.Bytes])
	}
	return files
}

// write puts a file into the test's directory and opens it.
func write(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

// memory is a tensor.Source for tests.
type memory map[string]struct {
	info tensor.Info
	data []byte
}

func (m memory) Tensors() []tensor.Info {
	var all []tensor.Info
	for _, e := range m {
		all = append(all, e.info)
	}
	return all
}

func (m memory) Lookup(name string) (tensor.Info, bool) {
	e, ok := m[name]
	return e.info, ok
}

func (m memory) ReadTensor(name string, dst []byte, off int64) error {
	copy(dst, m[name].data[off:])
	return nil
}
