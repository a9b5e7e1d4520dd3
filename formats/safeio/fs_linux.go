package safeio

import (
	"errors"
	"os"
	"syscall"
)

// preallocate reserves blocks, so that a full disk shows before any work is done.
func preallocate(f *os.File, size int64) error {
	for {
		err := syscall.Fallocate(int(f.Fd()), 0, 0, size)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
