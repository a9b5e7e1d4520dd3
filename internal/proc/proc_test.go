package proc

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meminfo")
	require.NoError(t, os.WriteFile(path, []byte("MemTotal:  200 kB\nMemFree: x kB\nMem:\nHuge: 99999999999999999 kB\nPages: 5\nLast:\t 7 kB"), 0o644))
	for field, want := range map[string]int64{"MemTotal": 200 << 10, "Last": 7 << 10, "MemFree": 0, "Mem": 0, "Huge": 0, "Pages": 0, "Total": 0} {
		require.Equal(t, want, Bytes(path, field), field)
	}
	require.Zero(t, Bytes(path+"x", "MemTotal"))
}
