package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestFilesAreCurrent fails if the committed assembly is not what this generator writes.
func TestFilesAreCurrent(t *testing.T) {
	dir := t.TempDir()
	for _, f := range files {
		if err := write(dir, f.name, f.fill); err != nil {
			t.Fatal(err)
		}
		for _, suffix := range []string{"_amd64.s", "_amd64.go"} {
			want, err := os.ReadFile(filepath.Join(dir, f.name+suffix))
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join("..", f.name+suffix))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s%s is stale: run make generate", f.name, suffix)
			}
		}
	}
}
