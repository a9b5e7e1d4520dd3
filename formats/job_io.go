package formats

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/llmquant/quantize/formats/safeio"
)

// fail records the first failure; the job is over from then on.
func (j *Job) fail(op, path string, err error) error {
	hint := "run the same command again: finished work is kept"
	if safeio.NoSpace(err) {
		hint = "free some space and run the same command again: finished work is kept"
	}
	err = &safeio.Error{Op: op, Path: path, Off: -1, Hint: hint, Err: err}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed == nil {
		j.failed = err
	}
	return err
}

// broken returns why the job takes no more data: it failed, was closed, or is published.
func (j *Job) broken() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.published {
		return &safeio.Error{Op: "write", Path: j.out, Off: -1, Err: classedVerify("the output is published already")}
	}
	return j.failed
}

// sync makes a file durable. A file system that has no sync is tolerated and reported; a sync that failed is fatal.
func (j *Job) sync(f *os.File) error {
	return j.tolerate("sync", f.Name(), j.fs.Sync(f))
}

// syncDir makes the entries of a directory durable.
func (j *Job) syncDir(path string) error {
	return j.tolerate("sync", path, j.fs.SyncDir(path))
}

func (j *Job) tolerate(op, path string, err error) error {
	if err == nil {
		return nil
	}
	if !safeio.NotSupported(err) {
		return j.fail(op, path, err)
	}
	const warning = "the file system does not support sync: the output may be lost when power fails soon after the run"
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Contains(j.warnings, warning) {
		j.warnings = append(j.warnings, warning)
	}
	return nil
}

// create makes a file of the work directory anew: whatever a crash left under its name is no longer promised to anybody.
func (j *Job) create(path string, size int64) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, j.fail("create", path, err)
	}
	f, err := j.fs.Create(path, size)
	if err != nil {
		return nil, j.fail("create", path, err)
	}
	return f, nil
}

// write writes all of p or ends the job.
func (j *Job) write(f *os.File, p []byte, off int64) error {
	if err := j.fs.WriteFull(f, p, off); err != nil {
		return j.fail("write", f.Name(), err)
	}
	return nil
}

// writeFile makes a small file durable; its directory is for the caller to sync.
func (j *Job) writeFile(path string, data []byte) error {
	f, err := j.create(path, int64(len(data)))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := j.write(f, data, 0); err != nil {
		return err
	}
	return j.sync(f)
}

// exists reports whether something, a dangling link included, has that name.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// classedVerify builds a cause of class ErrVerify.
func classedVerify(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{safeio.ErrVerify}, args...)...)
}
