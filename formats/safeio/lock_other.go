//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package safeio

import "os"

func lock(path string) (unlock func() error, err error) { return lockByExistence(path + ".owner") }

// alive: where FindProcess cannot tell it succeeds, and a lock is then never taken for stale.
func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	_ = p.Release()
	return true
}
