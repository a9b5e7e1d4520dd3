package formats

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/llmquant/quantize/formats/safeio"
)

// Blob is a file of the work directory for a large state, for instance the hidden states in front of a layer. It may be
// written anywhere and any number of times until Commit makes its content durable under a name. One goroutine uses it at
// a time.
type Blob struct {
	job    *Job
	f      *os.File
	file   string // base name in the work directory
	name   string // under which the content is promised; "" while it may change
	size   int64
	check  checksum // of the first prefix bytes: what is written from the start in order is summed up on the way
	prefix int64
}

// NewBlob makes a blob of size bytes, all zero, and reserves its space, so that a full disk shows before the work that
// would fill it.
func (j *Job) NewBlob(size int64) (*Blob, error) {
	if err := j.broken(); err != nil {
		return nil, err
	}
	file := j.blobFile()
	f, err := j.create(filepath.Join(j.work, file), size)
	if err != nil {
		return nil, err
	}
	return &Blob{job: j, f: f, file: file, size: size}, nil
}

// OpenBlob opens a committed blob after comparing it with its checksum. A blob that was never committed, was dropped, or
// is damaged gives fs.ErrNotExist: the caller computes it again.
func (j *Job) OpenBlob(name string) (*Blob, error) {
	j.mu.Lock()
	record, ok := j.blobs[name]
	j.mu.Unlock()
	if !ok {
		return nil, &fs.PathError{Op: "load", Path: name, Err: fs.ErrNotExist}
	}
	path := filepath.Join(j.work, record.File)
	damaged := &fs.PathError{Op: "load", Path: path, Err: fmt.Errorf("the blob is damaged: %w", fs.ErrNotExist)}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() != record.Size {
		return nil, damaged
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	b := &Blob{job: j, f: f, file: record.File, name: name, size: record.Size}
	sum, err := b.sum()
	if err == nil && sum != record.Sum {
		err = damaged
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return b, nil
}

// DropBlob removes a committed blob that is not needed any more.
func (j *Job) DropBlob(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if b, ok := j.blobs[name]; ok {
		os.Remove(filepath.Join(j.work, b.File)) // it only takes space
		delete(j.blobs, name)
	}
}

// blobFile returns a name that no line of the journal uses.
func (j *Job) blobFile() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	used := map[string]bool{}
	for _, b := range j.blobs {
		used[b.File] = true
	}
	for {
		j.blobSeq++
		if name := fmt.Sprintf("%s-%06d", blobPrefix, j.blobSeq); !used[name] {
			return name
		}
	}
}

// ReadAt implements io.ReaderAt.
func (b *Blob) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > b.size || int64(len(p)) > b.size-off {
		return 0, io.ErrUnexpectedEOF
	}
	if err := safeio.ReadFullAt(b.f, p, off); err != nil {
		return 0, b.job.fail("read", b.f.Name(), err)
	}
	return len(p), nil
}

// WriteAt implements io.WriterAt within the blob's size.
func (b *Blob) WriteAt(p []byte, off int64) (int, error) {
	switch err := b.job.broken(); {
	case err != nil:
		return 0, err
	case b.name != "":
		return 0, b.job.misuse("", "the blob %q is committed", b.name)
	case off < 0 || off > b.size || int64(len(p)) > b.size-off:
		return 0, b.job.misuse("", "bytes %d to %d of a blob of %d were written", off, off+int64(len(p)), b.size)
	}
	if err := b.job.write(b.f, p, off); err != nil {
		return 0, err
	}
	if off < b.prefix { // what was summed up changes
		b.check, b.prefix = checksum{}, 0
	}
	if off == b.prefix {
		b.check.Write(p)
		b.prefix += int64(len(p))
	}
	return len(p), nil
}

// Commit makes the content durable and promises it under a name: a later run finds it there. It replaces an earlier blob
// of that name.
func (b *Blob) Commit(name string) error {
	j := b.job
	j.appendMu.Lock()
	defer j.appendMu.Unlock()
	if err := j.broken(); err != nil {
		return err
	}
	if b.name != "" || name == "" {
		return j.misuse("", "a blob is committed twice or without a name")
	}
	sum, err := b.sum()
	if err != nil {
		return err
	}
	if err := j.sync(b.f); err != nil {
		return err
	}
	if err := j.syncDir(j.work); err != nil {
		return err
	}
	r := blobRecord{Name: name, File: b.file, Size: b.size, Sum: sum}
	if err := j.append(record{Blob: &r}); err != nil {
		return err
	}
	j.DropBlob(name)
	j.mu.Lock()
	j.blobs[name] = r
	j.mu.Unlock()
	b.name = name
	return nil
}

// sum returns the checksum of the whole content; what was not summed up while it was written is read back.
func (b *Blob) sum() (string, error) {
	rest := io.NewSectionReader(b.f, b.prefix, b.size-b.prefix)
	n, err := io.Copy(&b.check, rest)
	if err == nil && n < b.size-b.prefix {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return "", b.job.fail("read", b.f.Name(), err)
	}
	b.prefix = b.size
	return b.check.String(), nil
}

// Reuse breaks the promise of a committed blob and lets it be written again, without giving its space back. It takes
// another file name, so that the journal's line points at nothing.
func (b *Blob) Reuse() error {
	if b.name == "" {
		return nil
	}
	j := b.job
	if err := j.broken(); err != nil {
		return err
	}
	file := j.blobFile()
	if err := j.fs.Rename(filepath.Join(j.work, b.file), filepath.Join(j.work, file)); err != nil {
		return j.fail("rename", filepath.Join(j.work, b.file), err)
	}
	if err := j.syncDir(j.work); err != nil {
		return err
	}
	j.mu.Lock()
	if j.blobs[b.name].File == b.file {
		delete(j.blobs, b.name)
	}
	j.mu.Unlock()
	b.file, b.name = file, ""
	err := b.f.Close() // an open file keeps its old name
	if err == nil {
		b.f, err = os.OpenFile(filepath.Join(j.work, file), os.O_RDWR, 0)
	}
	if err != nil {
		return j.fail("open", filepath.Join(j.work, file), err)
	}
	return nil
}

// Close closes the file; a blob that is not committed is removed, unless Publish has removed it already.
func (b *Blob) Close() error {
	if b == nil || b.f == nil {
		return nil
	}
	err := b.f.Close()
	b.f = nil
	if b.name == "" {
		if gone := os.Remove(filepath.Join(b.job.work, b.file)); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}
