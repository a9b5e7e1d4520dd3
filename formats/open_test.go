package formats

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOpenModel(t *testing.T) {
	for _, path := range []string{"../testdata/golm-llama", "../testdata/golm-llama/model.safetensors"} {
		c, err := Open(context.Background(), path)
		require.NoError(t, err)
		defer c.Close()
		m := c.Meta()
		require.Equal(t, "hf", m.Kind)
		require.Nil(t, m.Quant)
		require.Contains(t, string(m.Config), "LlamaForCausalLM")
		info, ok := c.Lookup("model.embed_tokens.weight")
		require.True(t, ok)
		n, _ := info.Bytes()
		require.NoError(t, c.ReadTensor(info.Name, make([]byte, n), 0))
		require.Error(t, c.ReadTensor(info.Name, make([]byte, n), 1))
		require.Len(t, m.Files, 1)
		require.NoError(t, m.Unchanged())
	}
}
