package formats

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
)

// openTiny starts a job that these tests leave unfinished.
func openTiny(t *testing.T, fsys *safeio.FS) *Job {
	r := tinyRun{out: filepath.Join(memDir(t), "out"), fs: fsys}
	j, err := OpenJob(context.Background(), r.options(t))
	require.NoError(t, err)
	t.Cleanup(func() { j.Close() })
	return j
}

// blobsIn lists the files of blobs that a work directory holds.
func blobsIn(t *testing.T, j *Job) []string {
	files, err := filepath.Glob(filepath.Join(j.WorkDir(), blobPrefix+"-*"))
	require.NoError(t, err)
	return files
}

// What is committed is what was written last, in whatever order the pieces came, and is found by another run.
func TestBlobHoldsWhatWasWrittenLast(t *testing.T) {
	j := openTiny(t, fast())
	b, err := j.NewBlob(6)
	require.NoError(t, err)
	for _, w := range []struct {
		text string
		off  int64
	}{{"abc", 0}, {"def", 3}, {"XY", 2}, {"q", 0}, {"", 6}} {
		_, err := b.WriteAt([]byte(w.text), w.off)
		require.NoError(t, err)
	}
	require.NoError(t, b.Commit("state"))
	require.NoError(t, b.Close())
	require.NoError(t, b.Close(), "closing twice does no harm")
	require.NoError(t, j.Close())

	again, err := OpenJob(context.Background(), tinyRun{out: j.out, fs: fast()}.options(t))
	require.NoError(t, err)
	defer again.Close()
	b, err = again.OpenBlob("state")
	require.NoError(t, err)
	defer b.Close()
	got := make([]byte, 6)
	_, err = b.ReadAt(got, 0)
	require.NoError(t, err)
	require.Equal(t, "qbXYef", string(got))
	_, err = b.ReadAt(got, 1)
	require.Error(t, err, "past the end")
	_, err = b.ReadAt(got[:1], -1)
	require.Error(t, err)

	_, err = b.WriteAt(got, 0)
	require.ErrorIs(t, err, safeio.ErrVerify, "a promise is not overwritten")
	require.NoError(t, b.Reuse())
	_, err = again.OpenBlob("state")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = b.WriteAt([]byte("second"), 0)
	require.NoError(t, err)
	require.NoError(t, b.Commit("state"))
	require.ErrorIs(t, b.Commit("twice"), safeio.ErrVerify)
}

// A blob takes its space when it is made, no more than that, and gives it back unless it is promised.
func TestBlobSpace(t *testing.T) {
	j := openTiny(t, safeio.OS())
	b, err := j.NewBlob(1 << 20)
	require.NoError(t, err)
	require.Len(t, blobsIn(t, j), 1)
	info, err := os.Stat(blobsIn(t, j)[0])
	require.NoError(t, err)
	require.EqualValues(t, 1<<20, info.Size())
	for _, off := range []int64{-1, 1<<20 - 1, 1 << 21} {
		_, err := b.WriteAt([]byte("ab"), off)
		require.ErrorIs(t, err, safeio.ErrVerify, "%d", off)
	}
	require.ErrorIs(t, b.Commit(""), safeio.ErrVerify)
	require.NoError(t, b.Close())
	require.Empty(t, blobsIn(t, j))

	b, err = j.NewBlob(3)
	require.NoError(t, err)
	require.NoError(t, b.Commit("zeros"))
	require.NoError(t, b.Close())
	require.Len(t, blobsIn(t, j), 1)
	j.DropBlob("zeros")
	require.Empty(t, blobsIn(t, j))
}

// A disk that is full shows when the blob is made, and ends the job with what was finished kept.
func TestBlobOnFullDisk(t *testing.T) {
	fsys := fast()
	j := openTiny(t, fsys)
	fsys.Create = func(string, int64) (*os.File, error) { return nil, syscall.ENOSPC }
	_, err := j.NewBlob(5)
	require.ErrorIs(t, err, syscall.ENOSPC)
	_, err = j.NewBlob(5)
	require.ErrorIs(t, err, syscall.ENOSPC, "a failed job takes no more data")
}

// Damage to the file, and another kind of file in its place, are told from a sound blob.
func TestDamagedBlob(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"gone":      os.Remove,
		"truncated": func(path string) error { return os.Truncate(path, 2) },
		"changed":   func(path string) error { return os.WriteFile(path, []byte("abX"), 0o644) },
		"a link": func(path string) error {
			if err := os.Rename(path, path+"x"); err != nil {
				return err
			}
			return os.Symlink(path+"x", path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := openTiny(t, fast())
			b, err := j.NewBlob(3)
			require.NoError(t, err)
			_, err = b.WriteAt([]byte("abc"), 0)
			require.NoError(t, err)
			require.NoError(t, b.Commit("state"))
			require.NoError(t, b.Close())
			require.NoError(t, damage(blobsIn(t, j)[0]))
			_, err = j.OpenBlob("state")
			require.ErrorIs(t, err, fs.ErrNotExist)
		})
	}
}
