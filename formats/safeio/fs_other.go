//go:build !linux

package safeio

import (
	"os"
	"syscall"
)

func preallocate(*os.File, int64) error { return syscall.ENOTSUP }
