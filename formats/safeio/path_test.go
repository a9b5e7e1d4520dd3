package safeio

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckName(t *testing.T) {
	for _, name := range []string{"model.safetensors", "model-00001-of-00002.safetensors", "LICENSE", "a", ".gitattributes", "Modèle 7B (v2)", "console.txt",
		"com.json", "com10", "lpt", "nulls", "a..b", strings.Repeat("n", MaxName)} {
		require.NoError(t, CheckName(name), name)
	}
	for _, name := range []string{"", ".", "..", "../a", "a/b", "/a", `a\b`, `..\a`, "C:", "c:a", `\\host\share`, "a\x00b", "a\nb", "a\x7f", "a*", "a?", `"a"`, "<a", "a|b",
		"a:stream", "a.", "a ", " a", "CON", "con", "nul.safetensors", "Aux.json", "COM1", "com9.txt", "LPT¹", "prn .txt", "conin$", "\xff", "a\xc0\xaf",
		strings.Repeat("n", MaxName+1)} {
		err := CheckName(name)
		require.True(t, errors.Is(err, ErrCorrupt) || errors.Is(err, ErrLimit), "%q: %v", name, err)
	}
}

func TestCheckNames(t *testing.T) {
	require.NoError(t, CheckNames([]string{"a", "b", "ab"}))
	for _, names := range [][]string{{"a", "a"}, {"Model", "model"}, {"ÄÖ", "äö"}, {"ok", ".."}} {
		require.ErrorIs(t, CheckNames(names), ErrCorrupt, "%q", names)
	}
}

// FuzzCheckName: an accepted name stays inside its directory under the rules of every operating system.
func FuzzCheckName(f *testing.F) {
	for _, s := range []string{"a", "..", "a/b", "c:", "nul", "\\", "a.", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if CheckName(name) != nil {
			return
		}
		require.NotEmpty(t, strings.Trim(name, "."))
		require.False(t, strings.ContainsAny(name, "/\\:\x00"))
		require.LessOrEqual(t, len(name), MaxName)
	})
}
