//go:build unix

package calib

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
)

// TestPipes must end at once: opening a pipe without a writer would wait forever.
func TestPipes(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "a.jsonl")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	for _, path := range []string{fifo, "/dev/zero"} {
		done := make(chan error, 1)
		go func() {
			_, _, err := documents(Options{}, path)
			done <- err
		}()
		select {
		case err := <-done:
			require.ErrorIs(t, err, safeio.ErrCorrupt)
			require.ErrorContains(t, err, "not a regular file")
		case <-time.After(20 * time.Second):
			t.Fatalf("reading %s hangs", path)
		}
	}
	// In a directory a pipe is no data file.
	_, err := OpenSource([]string{filepath.Dir(fifo)}, Options{})
	require.ErrorContains(t, err, "no data files")
}
