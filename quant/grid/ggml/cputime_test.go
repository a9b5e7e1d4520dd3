//go:build unix

package ggml

import (
	"syscall"
	"time"
)

// cpuTime returns the processor time of this process, which other load on the machine hardly changes.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
