package gguf

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// goldenConversion is one file of convert-MODEL.json.
type goldenConversion struct {
	Bytes      int64
	SHA256     string `json:"sha256"`
	DataOffset int64  `json:"data_offset"`
	KV         json.RawMessage
	Tensors    [][]any
}

// The whole file equals the one convert_hf_to_gguf.py of llama.cpp 34af94cd9 writes.
func TestConversionEqualsReference(t *testing.T) {
	for _, model := range []string{"golm-llama", "golm-qwen2", "golm-qwen3moe", "golm-llama-outlier"} {
		t.Run(model, func(t *testing.T) {
			c := openModel(t, modelDir(t, model))
			var want map[string]goldenConversion
			if model == "golm-llama-outlier" { // only beside the repository
				text, err := os.ReadFile(shared(t, "golden", "llamacpp", "convert-"+model+".json"))
				require.NoError(t, err)
				require.NoError(t, json.Unmarshal(text, &want))
			} else {
				goldenJSON(t, "convert-"+model+".json.gz", &want)
			}
			for name, typ := range map[string]Type{"F32": F32, "F16": F16, "BF16": BF16} {
				got := c.convert(t, typ)
				require.Equal(t, want[name].Bytes, int64(len(got)), name)
				if name == "BF16" && model != "golm-llama-outlier" {
					header := golden(t, "header-"+model+"-BF16.gz")
					require.True(t, bytes.Equal(header, got[:len(header)]), "the headers differ")
				}
				require.Equal(t, want[name].SHA256, sum(got), name)
			}
		})
	}
}
