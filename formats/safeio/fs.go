package safeio

import (
	"errors"
	"io"
	"math"
	"os"
	"syscall"
)

// FS is the seam between a job and the file system: the seven operations whose failure or order decides whether an
// output survives a crash. Tests replace them to inject failures and to record what was durable when; everything else
// (reading, listing, removing) goes to package os directly.
type FS struct {
	// Create makes a new file for reading and writing and reserves size bytes, which read as zeros. An existing file is an error.
	Create func(path string, size int64) (*os.File, error)
	// WriteAt writes all of p at offset off.
	WriteAt func(f *os.File, p []byte, off int64) (int, error)
	// Sync makes the contents of a file durable.
	Sync func(f *os.File) error
	// Rename moves a file or directory within one file system.
	Rename func(from, to string) error
	// SyncDir makes creations, renames and removals in a directory durable.
	SyncDir func(path string) error
	// Lock takes the lock that the file path stands for, without waiting: ErrLocked when somebody has it.
	Lock func(path string) (unlock func() error, err error)
	// Free returns the bytes that can be written to the file system of a directory; FreeUnknown when nobody can tell.
	Free func(dir string) (int64, error)
}

// FreeUnknown is the answer of FS.Free where the system does not say.
const FreeUnknown = math.MaxInt64

// OS returns the real file system.
func OS() *FS {
	return &FS{
		Create:  create,
		WriteAt: func(f *os.File, p []byte, off int64) (int, error) { return f.WriteAt(p, off) },
		Sync:    (*os.File).Sync,
		Rename:  os.Rename,
		SyncDir: syncDir,
		Lock:    lock,
		Free:    free,
	}
}

// WriteFull is WriteAt with a short write made an error.
func (fs *FS) WriteFull(f *os.File, p []byte, off int64) error {
	n, err := fs.WriteAt(f, p, off)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return err
}

func create(path string, size int64) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	if err := reserve(f, size); err != nil {
		f.Close()
		os.Remove(path)
		return nil, &os.PathError{Op: "allocate", Path: path, Err: err}
	}
	return f, nil
}

// reserve gives an empty file its size and, where the file system can, its space.
func reserve(f *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	err := preallocate(f, size)
	if NotSupported(err) {
		err = f.Truncate(size) // a hole: the space is not promised, but the size is right and limits on it show now
	}
	return err
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}

// NotSupported reports whether an operation failed because this file system does not have it (network and FUSE file
// systems without fsync, allocation or locks), as opposed to having failed at it.
func NotSupported(err error) bool {
	for _, unsupported := range [...]error{syscall.ENOTSUP, syscall.EOPNOTSUPP, syscall.EINVAL, syscall.ENOTTY, syscall.ENOSYS} {
		if errors.Is(err, unsupported) {
			return true
		}
	}
	return false
}

// NoSpace reports whether an operation failed because the disk, a quota or a file size limit is exhausted.
func NoSpace(err error) bool {
	for _, full := range [...]error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, full) {
			return true
		}
	}
	return false
}
