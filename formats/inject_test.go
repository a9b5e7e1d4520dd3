package formats

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
)

// failing returns a file system whose n-th call (from 1) fails with err, and a counter of the calls made. A failing write
// leaves half of its bytes behind; io.ErrShortWrite stands for a write that says so itself.
func failing(n int, err error) (*safeio.FS, *int) {
	real, calls := fast(), new(int)
	hit := func() bool { *calls++; return *calls == n }
	return &safeio.FS{
		Create: func(path string, size int64) (*os.File, error) {
			if hit() {
				return nil, &os.PathError{Op: "open", Path: path, Err: err}
			}
			return real.Create(path, size)
		},
		WriteAt: func(f *os.File, p []byte, off int64) (int, error) {
			if hit() {
				k, _ := real.WriteAt(f, p[:len(p)/2], off)
				if err == io.ErrShortWrite {
					return k, nil
				}
				return k, &os.PathError{Op: "write", Path: f.Name(), Err: err}
			}
			return real.WriteAt(f, p, off)
		},
		Sync: func(f *os.File) error {
			if hit() {
				return &os.PathError{Op: "sync", Path: f.Name(), Err: err}
			}
			return real.Sync(f)
		},
		Rename: func(from, to string) error {
			if hit() {
				return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
			}
			return real.Rename(from, to)
		},
		SyncDir: func(path string) error {
			if hit() {
				return &os.PathError{Op: "sync", Path: path, Err: err}
			}
			return real.SyncDir(path)
		},
		Lock: func(path string) (func() error, error) {
			if hit() {
				return nil, &os.PathError{Op: "flock", Path: path, Err: err}
			}
			return real.Lock(path)
		},
		Free: func(dir string) (int64, error) {
			if hit() {
				return 0, err
			}
			return real.Free(dir)
		},
	}, calls
}

// Every call of a run fails once with every error, alone and again while the run is being resumed. After each failure the
// final name is as it was, the error says what happened, and one more run ends in the golden tree.
func TestEveryCallFailsOnce(t *testing.T) {
	for _, v := range []struct {
		name   string
		single bool
		force  bool
	}{{"directory", false, false}, {"replaced directory", false, true}, {"file", true, false}, {"replaced file", true, true}} {
		want := golden(t, v.single)
		complete := goldenOut(t, v.single)
		for _, injected := range []error{syscall.ENOSPC, syscall.EIO, syscall.EDQUOT, syscall.EINTR, io.ErrShortWrite} {
			t.Run(fmt.Sprintf("%s/%v", v.name, injected), func(t *testing.T) {
				t.Parallel()
				failures := 0
				for n := 1; ; n++ {
					r := tinyRun{out: filepath.Join(memDir(t), "golden", "out"), single: v.single, force: v.force}
					if v.force {
						replaceable(t, r)
					}
					before := digestOut(t, r.out)
					var calls *int
					r.fs, calls = failing(n, injected)
					err := r.do(t)
					if *calls < n {
						require.NoError(t, err)
						break
					}
					failures++
					require.Error(t, err, "call %d", n)
					require.ErrorIs(t, err, injected, "call %d", n)
					if now := digestOut(t, r.out); now != before {
						// Between its two renames a replaced output is aside, and a published one is complete.
						require.True(t, now == "" || now == complete, "call %d left something else under the final name", n)
					}
					if injected == syscall.EIO {
						r.fs, calls = failing(1+n/3, injected)
						if err := r.do(t); *calls > n/3 {
							require.Error(t, err, "call %d while resuming after call %d", 1+n/3, n)
						}
					}
					r.fs = fast()
					if err := r.do(t); v.force || digestOut(t, r.out) != complete { // a published output refuses another run
						require.NoError(t, err, "call %d", n)
					}
					require.Equal(t, want, digestTree(t, filepath.Dir(r.out)), "call %d", n)
				}
				require.Greater(t, failures, 60, "the run makes that many calls")
			})
		}
	}
}

// replaceable puts an older output where the run will publish.
func replaceable(t *testing.T, r tinyRun) {
	if r.single {
		require.NoError(t, os.MkdirAll(filepath.Dir(r.out), 0o755))
		require.NoError(t, os.WriteFile(r.out, []byte("old"), 0o644))
		return
	}
	require.NoError(t, os.MkdirAll(r.out, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(r.out, "config.json"), []byte("old"), 0o644))
}

// digestOut digests what lies under the final name, "" when nothing does.
func digestOut(t *testing.T, out string) string {
	if !exists(out) {
		return ""
	}
	return digestTree(t, out)
}
