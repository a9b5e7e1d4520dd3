package hf

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/llmquant/quantize/formats/safeio"
)

// locate finds the directory of a checkpoint behind what the user named, and the root its links may not leave. In the
// Hub's cache (models--org--name/{blobs,refs,snapshots/<revision>}) files are links to ../../blobs, so there the root is
// the cached repository; everywhere else it is the directory itself.
func locate(path string) (*safeio.Root, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	if real, err = filepath.Abs(real); err != nil {
		return nil, err
	}
	if isDir(filepath.Join(real, "snapshots")) && !isFile(filepath.Join(real, ConfigName)) {
		revision, err := cachedRevision(real)
		if err != nil {
			return nil, err
		}
		return safeio.OpenRoot(real, filepath.Join("snapshots", revision))
	}
	snapshots, revision := filepath.Split(real)
	snapshots = filepath.Clean(snapshots)
	repository := filepath.Dir(snapshots)
	if filepath.Base(snapshots) == "snapshots" && (isDir(filepath.Join(repository, "blobs")) || strings.HasPrefix(filepath.Base(repository), "models--")) {
		return safeio.OpenRoot(repository, filepath.Join("snapshots", revision))
	}
	return safeio.OpenRoot(real, ".")
}

// cachedRevision picks the snapshot of a cached repository: what refs/main names, else the newest.
func cachedRevision(repository string) (string, error) {
	const longestRevision = 256
	ref, err := safeio.ReadFile(filepath.Join(repository, "refs", "main"), longestRevision)
	if err == nil {
		revision := strings.TrimSpace(string(ref))
		if err := safeio.CheckName(revision); err != nil {
			return "", &safeio.Error{Op: "open", Path: filepath.Join(repository, "refs", "main"), Off: -1, Err: err}
		}
		if isDir(filepath.Join(repository, "snapshots", revision)) {
			return revision, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	entries, err := os.ReadDir(filepath.Join(repository, "snapshots"))
	if err != nil {
		return "", err
	}
	var newest string
	var when time.Time
	for _, e := range entries { // in order of name: equal times give the last one, on every machine
		info, err := e.Info()
		if err == nil && info.IsDir() && !info.ModTime().Before(when) {
			newest, when = e.Name(), info.ModTime()
		}
	}
	if newest == "" {
		return "", &safeio.Error{Op: "open", Path: repository, Off: -1, Hint: "download the model again",
			Err: safeio.Corruptf("the cached repository has no snapshot")}
	}
	return newest, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
