//go:build unix

package safeio

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
)

// Everything that is not a regular file is refused at once: opening a pipe would wait for a writer for ever.
func TestOpenRegularRefuses(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, syscall.Mkfifo(at("fifo"), 0o644))
	require.NoError(t, os.Mkdir(at("dir"), 0o755))
	require.NoError(t, os.Symlink(at("fifo"), at("link")))
	socket, err := net.Listen("unix", at("s"))
	require.NoError(t, err)
	defer socket.Close()
	paths := []string{at("fifo"), at("dir"), at("link"), at("s"), os.DevNull}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, path := range paths {
			_, _, err := OpenRegular(path)
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: %v", path, err)
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("opening blocks")
	}
	_, _, err = OpenRegular(at("none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// Names of a Root stay below it, whatever links say; links within it work.
func TestRoot(t *testing.T) {
	base := t.TempDir()
	dir, blobs := filepath.Join(base, "repo", "snapshots", "abc"), filepath.Join(base, "repo", "blobs")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.MkdirAll(blobs, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(blobs, "1234"), []byte("blob"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(base, "secret"), []byte("secret"), 0o644))
	require.NoError(t, os.Symlink("../../blobs/1234", filepath.Join(dir, "inside")))
	require.NoError(t, os.Symlink("../../../secret", filepath.Join(dir, "outside")))
	require.NoError(t, os.Symlink(filepath.Join(base, "secret"), filepath.Join(dir, "absolute")))
	require.NoError(t, os.Symlink("../../blobs", filepath.Join(dir, "directory")))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644))

	r, err := OpenRoot(filepath.Join(base, "repo"), filepath.Join("snapshots", "abc"))
	require.NoError(t, err)
	defer r.Close()
	data, err := r.ReadFile("inside", 4)
	require.NoError(t, err)
	require.Equal(t, "blob", string(data))
	_, err = r.ReadFile("inside", 3)
	require.ErrorIs(t, err, ErrLimit)
	for _, name := range []string{"outside", "absolute", "directory", "fifo", "..", "../../blobs/1234", "/etc/passwd", ""} {
		_, err := r.ReadFile(name, 100)
		require.ErrorIs(t, err, ErrCorrupt, name)
	}
	for _, name := range []string{"outside", "absolute"} {
		_, err := r.Stat(name)
		require.ErrorIs(t, err, ErrCorrupt, name)
		require.ErrorContains(t, err, "leads out of")
	}
	for _, name := range []string{"dangling", "none"} {
		_, _, err := r.Open(name)
		require.ErrorIs(t, err, fs.ErrNotExist, name)
	}
	names, err := r.Names()
	require.NoError(t, err)
	require.Equal(t, []string{"absolute", "dangling", "directory", "fifo", "inside", "outside"}, names)

	plain, err := OpenRoot(dir, ".")
	require.NoError(t, err)
	defer plain.Close()
	_, err = plain.ReadFile("inside", 100)
	require.ErrorContains(t, err, "leads out of", "a plain directory is its own root")
}

func TestReadBytes(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 300_000)
	for _, n := range []int64{0, 1, chunk - 1, chunk, chunk + 1, int64(len(data))} {
		got, err := ReadBytes(iotest.OneByteReader(bytes.NewReader(data[:min(n, 4000)])), min(n, 4000))
		require.NoError(t, err)
		require.Len(t, got, int(min(n, 4000)))
		got, err = ReadBytes(bytes.NewReader(data), n)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data[:n], got))
		_, err = ReadBytes(bytes.NewReader(data[:n]), n+1)
		require.ErrorIs(t, err, ErrCorrupt)
	}
	_, err := ReadBytes(bytes.NewReader(data), -1)
	require.ErrorIs(t, err, ErrCorrupt)
	_, err = ReadBytes(iotest.ErrReader(io.ErrClosedPipe), 5)
	require.ErrorIs(t, err, io.ErrClosedPipe)
	before := testing.AllocsPerRun(1, func() {
		_, err := ReadBytes(bytes.NewReader(data[:10]), 1<<60) // claims an exabyte
		require.ErrorIs(t, err, ErrCorrupt)
	})
	require.Less(t, before, 100.0)
}

func TestReadFullAt(t *testing.T) {
	r := bytes.NewReader([]byte("abcdef"))
	buf := make([]byte, 3)
	require.NoError(t, ReadFullAt(r, buf, 3))
	require.Equal(t, "def", string(buf))
	require.ErrorIs(t, ReadFullAt(r, buf, 4), ErrCorrupt)
	require.ErrorIs(t, ReadFullAt(r, buf, 100), ErrCorrupt)
}

func TestParseFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"a":1,"a":2}`), 0o644))
	_, err := ParseFile(path, 100)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, path, e.Path)
	require.EqualValues(t, 7, e.Off)
	_, err = ParseFile(path, 5)
	require.ErrorIs(t, err, ErrLimit)
}
