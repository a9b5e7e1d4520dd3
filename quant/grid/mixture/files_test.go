package mixture

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/gguf"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safetensors"
	"github.com/llmquant/quantize/quant/grid/ggml"
	"github.com/stretchr/testify/require"
)

var repository = filepath.Join("..", "..", "..")

// source is a model converted to BF16, the file the recorded runs started from.
type source struct {
	header *gguf.Header
	rows   map[string][]float32 // by GGUF name
	raw    map[string][]byte    // stored bytes of a quantized source
}

func convert(t *testing.T, name string) *source {
	t.Helper()
	dir := filepath.Join(repository, "testdata", name)
	if _, err := os.Stat(filepath.Join(dir, "model.safetensors")); err != nil {
		if dir = filepath.Join(repository, "..", "shared", "models", name); !exists(dir) {
			t.Skipf("the model %s is not beside the repository", name)
		}
	}
	f, err := safetensors.Open(filepath.Join(dir, "model.safetensors"), safeio.DefaultLimits())
	require.NoError(t, err)
	defer f.Close()
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	side := map[string][]byte{}
	for _, file := range gguf.SideFiles() {
		if b, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
			side[file] = b
		}
	}
	model, err := arch.Resolve(config, f)
	require.NoError(t, err)
	h, maps, err := gguf.FromHF(model, f, gguf.ConvertOptions{Type: gguf.BF16, Config: config, Side: side, Name: name})
	require.NoError(t, err)
	s := &source{header: h, rows: map[string][]float32{}}
	for i := range maps {
		rows := make([]float32, maps[i].Elements())
		require.NoError(t, maps[i].ReadRows(f, rows, 0))
		s.rows[maps[i].Name] = rows
	}
	return s
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// quantize makes the files that llama-quantize would: types, order, metadata, data.
func (s *source) quantize(t *testing.T, a Arch, o Options, im *gguf.Imatrix, imName string, keepSplit bool) [][]byte {
	t.Helper()
	return s.quantizeWith(t, a, o, gguf.RequantizeOptions{KeepSplit: keepSplit}, im, imName)
}

func (s *source) quantizeWith(t *testing.T, a Arch, o Options, ro gguf.RequantizeOptions, im *gguf.Imatrix, imName string) [][]byte {
	t.Helper()
	ro.FileType, ro.KeepType = o.File.ID, o.Copy
	if im != nil {
		facts := im.Facts(imName)
		ro.Imatrix = &facts
	}
	h := gguf.Requantize(s.header, ro)
	choices, err := Choose(a, TensorsOf(h), o)
	require.NoError(t, err)
	for i := range h.Tensors {
		var ok bool
		h.Tensors[i], ok = h.Tensors[i].WithType(choices[i].Type)
		require.True(t, ok)
	}
	p, err := gguf.Plan(h, gguf.PlanOptions{Name: "out.gguf", KeepSplit: ro.KeepSplit})
	require.NoError(t, err)
	out := make([][]byte, len(p.Files))
	for i, f := range p.Files {
		out[i] = make([]byte, f.Size)
		copy(out[i], f.Header)
	}
	for i, at := range p.Tensors {
		s.encode(t, &h.Tensors[i], im, out[at.File][at.Offset:at.Offset+at.Bytes])
	}
	return out
}

// as returns the model as a quantized source: the header of the file and the weights it decodes to.
func (s *source) as(t *testing.T, file string) *source {
	t.Helper()
	f, _ := ParseFileType(file)
	a, err := ArchOf(&s.header.KV)
	require.NoError(t, err)
	content := s.quantize(t, a, Options{File: f}, nil, "", false)[0]
	path := filepath.Join(t.TempDir(), "q.gguf")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	g, err := gguf.Open(path)
	require.NoError(t, err)
	defer g.Close()
	q := &source{header: &g.Header, rows: map[string][]float32{}, raw: map[string][]byte{}}
	for i := range g.Tensors {
		tensor := &g.Tensors[i]
		raw := make([]byte, tensor.Bytes)
		require.NoError(t, g.ReadAt(tensor, raw, 0))
		grid, ok := ggml.ByID(uint32(tensor.Type))
		require.True(t, ok)
		rows := make([]float32, tensor.Elements())
		grid.DecodeRow(rows, raw)
		q.rows[tensor.Name], q.raw[tensor.Name] = rows, raw
	}
	return q
}

func (s *source) encode(t *testing.T, g *gguf.Tensor, im *gguf.Imatrix, dst []byte) {
	t.Helper()
	rows := s.rows[g.Name]
	if have, ok := s.header.Find(g.Name); ok && have.Type == g.Type && s.raw != nil {
		copy(dst, s.raw[g.Name])
		return
	}
	if g.Type == gguf.F32 || g.Type == gguf.F16 || g.Type == gguf.BF16 {
		require.NoError(t, gguf.EncodeRows(dst, g.Type, rows))
		return
	}
	grid, ok := ggml.ByID(uint32(g.Type))
	require.True(t, ok)
	var importance []float32
	if im != nil {
		got, err := im.Importance(g)
		require.NoError(t, err)
		if got != nil {
			importance = got.Values
		}
	}
	cols, matrix := int(g.NE[0]), int(g.NE[0]*g.NE[1])
	for m := range int(g.NE[2]) {
		var w []float32
		if importance != nil {
			w = importance[m*cols : (m+1)*cols]
		}
		size := len(dst) / int(g.NE[2])
		require.NoError(t, grid.EncodeRows(dst[m*size:(m+1)*size], rows[m*matrix:(m+1)*matrix], int(g.NE[1]), cols, w))
	}
}

// quick are the runs made every time, by model; QUANTIZE_LONG=1 makes all 297.
var quick = map[string][]string{
	"golm-llama": {"Q8_0", "Q4_K_M+im", "COPY"}, "golm-qwen2": {"Q8_0", "Q4_K_M+im", "pure:Q4_1+im", "F16"}, "golm-qwen3moe": {"MXFP4_MOE", "F32"},
}

// Whole files equal llama-quantize's, byte for byte: metadata, order, types, data.
func TestFilesEqualLlamaQuantize(t *testing.T) {
	long := os.Getenv("QUANTIZE_LONG") != ""
	for _, model := range []string{"golm-llama", "golm-qwen2", "golm-qwen3moe"} {
		t.Run(model, func(t *testing.T) {
			s := convert(t, model)
			var doc struct {
				Runs map[string]struct {
					SHA256 string `json:"sha256"`
					Error  []string
				}
			}
			readGolden(t, "quantize-"+model+".json.gz", &doc)
			made := 0
			for run, want := range doc.Runs {
				if want.Error != nil || !long && !slices.Contains(quick[model], run) {
					continue
				}
				o := goldenOptions(t, run)
				im, name, ok := imatrix(t, model, o.Imatrix)
				if !ok {
					continue
				}
				require.Equal(t, want.SHA256, sum(s.quantize(t, ourArch[model], o, im, name, false)[0]), run)
				made++
			}
			t.Logf("%d files equal", made)
		})
	}
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// --keep-split: the same shards, tensors in the source's order, which is also the order the rules count in.
func TestKeptSplitsEqualLlamaQuantize(t *testing.T) {
	var options struct {
		Split map[string]struct {
			Shards map[string]struct {
				SHA256 string `json:"sha256"`
			}
		}
	}
	readGolden(t, "options.json.gz", &options)
	s := convert(t, "golm-llama")
	got, err := ArchOf(&s.header.KV)
	require.NoError(t, err)
	require.Equal(t, ourArch["golm-llama"], got)
	for i := range s.header.Tensors {
		s.header.Tensors[i].Shard, s.header.Tensors[i].Offset = i/13, int64(i)
	}
	shards := s.quantize(t, ourArch["golm-llama"], goldenOptions(t, "Q4_K_M"), nil, "", true)
	require.Len(t, shards, 3)
	for i, b := range shards {
		require.Equal(t, options.Split["keep-split"].Shards[gguf.SplitName("ks", i, 3)].SHA256, sum(b))
	}
}

func imatrix(t *testing.T, model string, use bool) (im *gguf.Imatrix, name string, ok bool) {
	t.Helper()
	if !use {
		return nil, "", true
	}
	return imatrixFile(t, fmt.Sprintf("%s.imatrix.gguf", model))
}

func imatrixFile(t *testing.T, file string) (im *gguf.Imatrix, name string, ok bool) {
	t.Helper()
	name = file
	path := filepath.Join(repository, "testdata", "gguf", name)
	if !exists(path) {
		if path = filepath.Join(repository, "..", "shared", "golden", "llamacpp", name); !exists(path) {
			return nil, "", false
		}
	}
	im, err := gguf.OpenImatrix(path)
	require.NoError(t, err)
	return im, name, true
}
