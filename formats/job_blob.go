package formats

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/llmquant/quantize/formats/safeio"
)

// blobBuffer is the size of writes to a blob.
const blobBuffer = 256 << 10

// SaveBlob makes a large state durable under a name, for instance the hidden states in front of the next layer. It
// replaces an earlier blob of that name only once the new one is complete.
func (j *Job) SaveBlob(name string, write func(io.Writer) error) error {
	j.appendMu.Lock()
	defer j.appendMu.Unlock()
	if err := j.broken(); err != nil {
		return err
	}
	b := blobRecord{Name: name, File: j.blobFile()}
	path := filepath.Join(j.work, b.File)
	f, err := j.create(path, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	sink := &blobWriter{job: j, f: f, hash: sha256.New()}
	buffered := bufio.NewWriterSize(sink, blobBuffer)
	if err := write(buffered); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	b.Size, b.Sum = sink.size, hex.EncodeToString(sink.hash.Sum(nil))
	if err := j.sync(f); err != nil {
		return err
	}
	if err := j.syncDir(j.work); err != nil {
		return err
	}
	if err := j.append(record{Blob: &b}); err != nil {
		return err
	}
	j.mu.Lock()
	old, replaced := j.blobs[name]
	j.blobs[name] = b
	j.mu.Unlock()
	if replaced {
		os.Remove(filepath.Join(j.work, old.File)) // it only takes space
	}
	return nil
}

// blobFile returns a name that no line of the journal uses.
func (j *Job) blobFile() string {
	used := map[string]bool{}
	j.mu.Lock()
	for _, b := range j.blobs {
		used[b.File] = true
	}
	j.mu.Unlock()
	for {
		j.blobSeq++
		if name := fmt.Sprintf("%s-%06d", blobPrefix, j.blobSeq); !used[name] {
			return name
		}
	}
}

// LoadBlob opens a blob after comparing it with its checksum. A blob that was never saved, was dropped, or is damaged
// gives fs.ErrNotExist: the caller computes it again.
func (j *Job) LoadBlob(name string) (io.ReadCloser, error) {
	j.mu.Lock()
	b, ok := j.blobs[name]
	j.mu.Unlock()
	if !ok {
		return nil, &fs.PathError{Op: "load", Path: name, Err: fs.ErrNotExist}
	}
	path := filepath.Join(j.work, b.File)
	f, info, err := safeio.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	if info.Size() == b.Size {
		if _, err := io.Copy(h, f); err != nil {
			f.Close()
			return nil, err
		}
	}
	if info.Size() != b.Size || hex.EncodeToString(h.Sum(nil)) != b.Sum {
		f.Close()
		return nil, &fs.PathError{Op: "load", Path: path, Err: fmt.Errorf("the blob is damaged: %w", fs.ErrNotExist)}
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// DropBlob removes a blob that is not needed any more.
func (j *Job) DropBlob(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if b, ok := j.blobs[name]; ok {
		os.Remove(filepath.Join(j.work, b.File)) // it only takes space
		delete(j.blobs, name)
	}
}

// blobWriter sends a stream through the job's file system.
type blobWriter struct {
	job  *Job
	f    *os.File
	hash hash.Hash
	size int64
}

func (w *blobWriter) Write(p []byte) (int, error) {
	if err := w.job.write(w.f, p, w.size); err != nil {
		return 0, err
	}
	w.hash.Write(p)
	w.size += int64(len(p))
	return len(p), nil
}
