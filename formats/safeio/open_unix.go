//go:build unix

package safeio

import "syscall"

// nonblock keeps an open from waiting for the other end of a pipe; it changes nothing for regular files.
const nonblock = syscall.O_NONBLOCK
