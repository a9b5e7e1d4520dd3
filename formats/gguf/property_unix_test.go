//go:build unix

package gguf

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/stretchr/testify/require"
)

// A pipe or a device under the name of a model is refused without waiting for its other end.
func TestPipesAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	for _, open := range []func(string) error{
		func(p string) error { _, err := Open(p); return err },
		func(p string) error { _, err := OpenImatrix(p); return err },
	} {
		require.ErrorIs(t, open(path), safeio.ErrCorrupt)
		require.ErrorIs(t, open(filepath.Dir(path)), safeio.ErrCorrupt)
		require.ErrorIs(t, open(path+".none"), os.ErrNotExist)
	}
}
