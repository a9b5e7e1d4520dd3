//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package safeio

import (
	"errors"
	"os"
	"syscall"
)

// lock takes an flock on the file path, which it creates. The kernel releases it when the process ends, however it ends,
// so there are no stale locks. The file itself stays until its owner removes it.
func lock(path string) (unlock func() error, err error) {
	for range lockAttempts {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EWOULDBLOCK):
			f.Close()
			return nil, lockedBy(path, readOwner(path), "wait for it to end")
		case NotSupported(err) || errors.Is(err, syscall.ENOLCK):
			f.Close()
			return lockByExistence(path + ".owner")
		case err != nil:
			f.Close()
			return nil, &os.PathError{Op: "flock", Path: path, Err: err}
		}
		// The owner before us may have removed the file between our open and our lock: then this is a lock on nothing.
		if !current(f, path) {
			f.Close()
			continue
		}
		if err := f.Truncate(0); err == nil {
			_, _ = f.WriteString(owner() + "\n") // for messages alone: the lock holds without it
		}
		return f.Close, nil
	}
	return nil, lockedBy(path, "", "try again")
}

func current(f *os.File, path string) bool {
	opened, err1 := f.Stat()
	named, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(opened, named)
}

func alive(pid int) bool {
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
