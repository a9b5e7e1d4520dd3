package safeio

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// lockAttempts bounds the races that taking a lock can lose to owners that finish at that moment.
const lockAttempts = 16

// owner is what a lock file says about its holder: "pid 4711 on host7".
func owner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("pid %d on %s", os.Getpid(), host)
}

// lockedBy is the error of a loser. It names the holder as far as the lock file tells.
func lockedBy(path, holder, hint string) error {
	if holder == "" {
		holder = "another process"
	}
	return &Error{Op: "lock", Path: path, Off: -1, Hint: hint, Err: classed(ErrLocked, "%s is working on this output", holder)}
}

// readOwner returns the first line of a lock file, "" when it cannot be read.
func readOwner(path string) string {
	const longest = 1024
	text, err := ReadFile(path, longest)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.ToValidUTF8(line, "?")
}

// lockByExistence is the lock for file systems without flock: the file exists while the lock is held. A process that is
// killed leaves it behind; on the same host that is noticed and the file is taken over.
func lockByExistence(path string) (unlock func() error, err error) {
	for range lockAttempts {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err == nil {
			_, err = f.WriteString(owner() + "\n")
			if err = errors.Join(err, f.Close()); err != nil {
				os.Remove(path)
				return nil, err
			}
			return func() error { return os.Remove(path) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		holder := readOwner(path)
		if !dead(holder) {
			return nil, lockedBy(path, holder, "wait for it; if it is gone, remove "+path)
		}
		removeStale(path, holder)
	}
	return nil, lockedBy(path, "", "try again")
}

// dead reports whether a holder certainly no longer runs: its host is this one and has no such process.
func dead(holder string) bool {
	pid, host, ok := strings.Cut(strings.TrimPrefix(holder, "pid "), " on ")
	n, err := strconv.Atoi(pid)
	here, herr := os.Hostname()
	return ok && err == nil && herr == nil && n > 0 && host == here && !alive(n)
}

// removeStale takes a stale lock file away so that of several processes that found it stale only one removes it, and
// none removes a successor's: the file is moved aside, and put back when it is not the one that was judged.
func removeStale(path, holder string) {
	aside := path + ".stale." + strconv.Itoa(os.Getpid())
	if os.Rename(path, aside) != nil {
		return
	}
	if readOwner(aside) != holder && os.Link(aside, path) != nil {
		return // a successor's lock that could not be put back: leave its text for the user to see
	}
	os.Remove(aside)
}
