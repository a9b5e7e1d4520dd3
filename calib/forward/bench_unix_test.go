//go:build unix

package forward

import "syscall"

// cpuSeconds is the processor time of this process, which other processes on the machine do not distort as they do
// the clock.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
