package gguf

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The headers of llama-quantize's own files follow from the converter's header.
func TestRequantizedHeadersEqualReference(t *testing.T) {
	for file, c := range map[string]struct {
		model   string
		typ     uint32
		imatrix string
	}{
		"golm-llama-Q4_K_M.gguf":       {"golm-llama", 15, "golm-llama.imatrix.gguf"},
		"golm-llama-Q2_K.gguf":         {"golm-llama", 10, ""},
		"golm-llama-IQ2_XXS.gguf":      {"golm-llama", 19, "golm-llama.imatrix.gguf"},
		"golm-qwen2-Q5_0.gguf":         {"golm-qwen2", 8, ""},
		"golm-qwen3moe-MXFP4_MOE.gguf": {"golm-qwen3moe", 38, ""},
	} {
		t.Run(file, func(t *testing.T) {
			f, err := Open(shared(t, "golden", "llamacpp", file))
			require.NoError(t, err)
			defer f.Close()
			m := openModel(t, modelDir(t, c.model))
			h, _, err := FromHF(m.model, m.File, m.options(BF16))
			require.NoError(t, err)
			o := RequantizeOptions{FileType: c.typ}
			if c.imatrix != "" {
				facts := openImatrix(t, golden(t, c.imatrix)).Facts(c.imatrix)
				o.Imatrix = &facts
			}
			out := Requantize(h, o)
			for i := range out.Tensors {
				have, ok := f.Lookup(out.Tensors[i].Name)
				require.True(t, ok)
				out.Tensors[i], ok = out.Tensors[i].WithType(have.Type)
				require.True(t, ok)
			}
			p, err := Plan(out, PlanOptions{Name: file})
			require.NoError(t, err)
			content := copyTensors(t, p, f)[0]
			var doc struct {
				Runs map[string]struct {
					SHA256 string `json:"sha256"`
				}
			}
			goldenJSON(t, "quantize-"+c.model+".json.gz", &doc)
			run := strings.TrimSuffix(strings.TrimPrefix(file, c.model+"-"), ".gguf")
			if c.imatrix != "" {
				run += "+im"
			}
			require.Equal(t, doc.Runs[run].SHA256, sum(content))
		})
	}
}

func TestRequantizeKeys(t *testing.T) {
	h := &Header{}
	for _, key := range []string{"general.quantization_version", "general.architecture", keySplitNo, keySplitCount, "general.name", keySplitTensors} {
		h.KV.Set(key, String("old"))
	}
	long := strings.Repeat("x", 200)
	out := Requantize(h, RequantizeOptions{FileType: 15, Overrides: []KV{{"general.name", String("new")}, {"my.flag", Bool(true)}},
		Imatrix: &ImatrixFacts{File: long, Entries: 3}})
	var keys []string
	for key := range out.KV.All() {
		keys = append(keys, key)
	}
	require.Equal(t, []string{"general.architecture", "general.quantization_version", "general.file_type", "general.name", "my.flag",
		"quantize.imatrix.file", "quantize.imatrix.entries_count"}, keys)
	file, err := out.KV.String("quantize.imatrix.file")
	require.NoError(t, err)
	require.Len(t, file, 127)
	require.True(t, h.KV.Has(keySplitNo), "the source's header is not touched")
}

func TestCopiedFileType(t *testing.T) {
	typ := func(h *Header) int64 {
		out := Requantize(h, RequantizeOptions{FileType: 15, KeepType: true})
		n, err := out.KV.Int("general.file_type", 0, 1<<32)
		require.NoError(t, err)
		return n
	}
	h := &Header{}
	for _, name := range []string{"a", "b", "c"} {
		tensor, _ := NewTensor(name, Q4_K, 256)
		h.Tensors = append(h.Tensors, tensor)
	}
	h.Tensors[0].Type = F32
	require.Equal(t, int64(1024|15), typ(h), "guessed from the commonest type")
	h.KV.Set("general.file_type", Uint32(18))
	require.Equal(t, int64(18), typ(h))
}

func TestOrderAndTrailingOnes(t *testing.T) {
	h := &Header{}
	for _, name := range []string{"blk.10.a", "output.weight", "blk.2.b", "blk.2.a", "v.blk.1.x", "blk.x.y", "a"} {
		tensor, _ := NewTensor(name, F32, 1, 1, 4)
		h.Tensors = append(h.Tensors, tensor)
	}
	out := Requantize(h, RequantizeOptions{})
	var names []string
	for i := range out.Tensors {
		names = append(names, out.Tensors[i].Name)
		require.Equal(t, 1, out.Tensors[i].Dims)
	}
	require.Equal(t, []string{"a", "blk.x.y", "output.weight", "v.blk.1.x", "blk.2.a", "blk.2.b", "blk.10.a"}, names)
	h.Tensors[0].Shard, h.Tensors[2].Offset = 1, 7
	order := QuantizeOrder(h.Tensors, true)
	require.Equal(t, []int{1, 3, 4, 5, 6, 2, 0}, order)
}

func TestBlockNumber(t *testing.T) {
	for name, want := range map[string]int{"blk.0.a": 0, "blk.127.attn_q.weight": 127, "blk..a": -1, "blk.-1.a": -1, "blk.1": -1, "xblk.1.a": -1, "blk.99999999999.a": -1, "blk.1x.a": -1} {
		n, ok := BlockNumber(name)
		if !ok {
			n = -1
		}
		require.Equal(t, want, n, name)
	}
}
