package calib

import (
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// byteEncoder gives every byte its own id and puts 256 in front of a text that wants special tokens.
type byteEncoder struct{}

func (byteEncoder) EncodeAppend(dst []int32, text string, special bool) []int32 {
	if special {
		dst = append(dst, 256)
	}
	for i := range len(text) {
		dst = append(dst, int32(text[i]))
	}
	return dst
}

// write puts files into a new directory and returns it.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

func one(t testing.TB, name, text string) string {
	return filepath.Join(write(t, map[string]string{name: text}), name)
}

func gz(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(text))
	w.Close()
	return b.String()
}

func zst(text string) string {
	var b bytes.Buffer
	w, _ := zstd.NewWriter(&b)
	w.Write([]byte(text))
	w.Close()
	return b.String()
}

// documents reads everything.
func documents(o Options, paths ...string) ([]Document, []FileStat, error) {
	s, err := OpenSource(paths, o)
	if err != nil {
		return nil, nil, err
	}
	var docs []Document
	for d, err := range s.Documents(context.Background()) {
		if err != nil {
			return docs, s.Files(), err
		}
		docs = append(docs, d)
	}
	return docs, s.Files(), nil
}

func texts(docs []Document) []string {
	var out []string
	for _, d := range docs {
		out = append(out, d.Text)
	}
	return out
}

// allocated runs f and returns the bytes it allocated in all.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
