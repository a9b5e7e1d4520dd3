package safeio

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Both kinds of lock let one in, name it to the others, and let the next one in when it is gone.
func TestLocks(t *testing.T) {
	for name, take := range map[string]func(string) (func() error, error){"flock": lock, "existence": lockByExistence} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "lock")
			for range 20 {
				var wg sync.WaitGroup
				var mu sync.Mutex
				var won []func() error
				for range 8 {
					wg.Go(func() {
						unlock, err := take(path)
						mu.Lock()
						defer mu.Unlock()
						if err == nil {
							won = append(won, unlock)
						} else if !errors.Is(err, ErrLocked) {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				require.Len(t, won, 1)
				_, err := take(path)
				require.ErrorContains(t, err, fmt.Sprintf("pid %d on ", os.Getpid()))
				require.NoError(t, won[0]())
			}
			_, err := take(filepath.Join(t.TempDir(), "none", "lock"))
			require.ErrorIs(t, err, os.ErrNotExist)
		})
	}
}

// A lock that a killed process left behind on a file system without flock is taken over; one of another host never is.
func TestStaleLock(t *testing.T) {
	host, err := os.Hostname()
	require.NoError(t, err)
	const gone = 1 << 30 // above every pid limit
	path := filepath.Join(t.TempDir(), "lock.owner")
	leave := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o644)) }
	leave(fmt.Sprintf("pid %d on %s\n", gone, host))
	unlock, err := lockByExistence(path)
	require.NoError(t, err)
	require.NoError(t, unlock())
	for _, text := range []string{fmt.Sprintf("pid %d on elsewhere\n", gone), "", "nonsense", fmt.Sprintf("pid -1 on %s", host), fmt.Sprintf("pid %d on %s", os.Getpid(), host)} {
		leave(text)
		_, err := lockByExistence(path)
		require.ErrorIs(t, err, ErrLocked, text)
		require.FileExists(t, path)
	}
	leave("a successor's")
	removeStale(path, "the stale one's")
	require.FileExists(t, path, "a lock that changed meanwhile is put back")
}

func TestFS(t *testing.T) {
	dir := t.TempDir()
	f := OS()
	path := filepath.Join(dir, "a")
	file, err := f.Create(path, 100_000)
	require.NoError(t, err)
	defer file.Close()
	info, err := file.Stat()
	require.NoError(t, err)
	require.EqualValues(t, 100_000, info.Size())
	require.NoError(t, f.WriteFull(file, []byte("xyz"), 99_997))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("\x00", 99_997)+"xyz", string(data))
	_, err = f.Create(path, 0)
	require.ErrorIs(t, err, os.ErrExist)
	require.NoError(t, f.Sync(file))
	require.NoError(t, f.SyncDir(dir))
	require.NoError(t, f.Rename(path, path+"b"))
	free, err := f.Free(dir)
	require.NoError(t, err)
	require.Positive(t, free)
	_, err = f.Create(filepath.Join(dir, "huge"), 1<<62)
	require.Error(t, err, "the file system has a limit, and it shows before anything is written")
	require.NoFileExists(t, filepath.Join(dir, "huge"))

	f.WriteAt = func(_ *os.File, p []byte, _ int64) (int, error) { return len(p) - 1, nil }
	require.ErrorIs(t, f.WriteFull(file, []byte("xyz"), 0), io.ErrShortWrite)
	require.True(t, NotSupported(&os.PathError{Err: syscall.ENOTSUP}))
	require.False(t, NotSupported(syscall.EIO))
	require.False(t, NotSupported(nil))
	require.True(t, NoSpace(&os.PathError{Err: syscall.EDQUOT}))
	require.False(t, NoSpace(syscall.EIO))
}
