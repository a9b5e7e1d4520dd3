package arch

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRopeAgainstTransformers compares frequencies with LlamaRotaryEmbedding of Transformers 5.24 for the configs in
// testdata/rope.json. They agree to the last bit except where torch's pow is not correctly rounded.
func TestRopeAgainstTransformers(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "rope.json"))
	require.NoError(t, err)
	var cases []struct {
		Name             string
		Config           json.RawMessage
		AttentionScaling float64   `json:"attention_scaling"`
		InvFreq          []float64 `json:"inv_freq"`
	}
	require.NoError(t, json.Unmarshal(text, &cases))
	require.Greater(t, len(cases), 10)
	equal, total := 0, 0
	for _, c := range cases {
		var s settings
		require.NoError(t, json.Unmarshal(c.Config, &s))
		m, err := Resolve(c.Config, s.tensors())
		require.NoError(t, err, c.Name)
		require.InDelta(t, c.AttentionScaling, m.Rope.AttentionScale, 1e-7, c.Name)
		require.Len(t, m.Rope.InvFreq, len(c.InvFreq), c.Name)
		for i, want := range c.InvFreq {
			got := m.Rope.InvFreq[i]
			require.LessOrEqual(t, math.Abs(got-want), 4e-7*want, "%s: %d", c.Name, i)
			require.Equal(t, got, float64(float32(got)), c.Name)
			total++
			if got == want {
				equal++
			}
		}
	}
	t.Logf("%d of %d frequencies equal to the last bit", equal, total)
	require.Greater(t, equal, total*9/10)
}

// TestRopeParametersInEveryPlace: both generations of config.json, and which place wins.
func TestRopeParametersInEveryPlace(t *testing.T) {
	s := tiny(familyNamed(t, "llama")).with("rope_theta", absent)
	for _, c := range []struct {
		keys  []any
		kind  string
		theta float64
		orig  int
	}{
		{nil, "default", 10000, 128},
		{[]any{"rope_scaling", nil}, "default", 10000, 128},
		{[]any{"rope_theta", 5e5}, "default", 5e5, 128},
		{[]any{"rope_theta", 5e5, "rope_scaling", settings{"type": "linear", "factor": 2}}, "linear", 5e5, 128},
		{[]any{"rope_theta", 5e5, "rope_parameters", settings{"rope_type": "default", "rope_theta": 7e3}}, "default", 7e3, 128},
		{[]any{"rope_scaling", settings{"rope_type": "linear", "type": "yarn", "factor": 2}}, "linear", 10000, 128},
		{[]any{"rope_scaling", settings{"type": "linear", "factor": 2}, "rope_parameters", settings{"rope_type": "default"}}, "linear", 10000, 128},
		{[]any{"rope_scaling", settings{"type": "yarn", "factor": 2, "original_max_position_embeddings": 64}}, "yarn", 10000, 64},
		{[]any{"rope_scaling", settings{"type": "yarn", "factor": 2, "original_max_position_embeddings": 64}, "original_max_position_embeddings", 32}, "yarn", 10000, 32},
	} {
		m, err := Resolve(s.with(c.keys...).text(), s.tensors())
		require.NoError(t, err, "%v", c.keys)
		require.Equal(t, c.kind, m.Rope.Type, "%v", c.keys)
		require.Equal(t, c.theta, m.Rope.Theta, "%v", c.keys)
		require.Equal(t, c.orig, m.Rope.OriginalMaxPos, "%v", c.keys)
	}
}
