// Package safeio holds what every reader and writer of the project shares: typed errors, bounded reads, strict JSON,
// path rules and atomic file operations. Nothing here trusts a length that a file declares.
package safeio

import (
	"errors"
	"fmt"
	"strings"
)

// The classes of failure. Every error that reaches a user wraps exactly one of them or a plain I/O error.
var (
	ErrCorrupt     = errors.New("corrupt")             // the bytes are wrong: exit code 3
	ErrUnsupported = errors.New("unsupported")         // the bytes are legal, this tool does not do that: exit code 4
	ErrLimit       = errors.New("limit exceeded")      // a limit of limits.go: exit code 3
	ErrExists      = errors.New("already exists")      // the output exists: exit code 6
	ErrLocked      = errors.New("locked")              // another run holds the output: exit code 6
	ErrVerify      = errors.New("verification failed") // written data or a quality gate failed: exit code 7
)

// Error says what failed, where and why.
type Error struct {
	Op     string // "open", "read", "parse", …
	Path   string // file
	Tensor string // tensor or key, "" when none
	Off    int64  // byte offset in the file, -1 when unknown
	Hint   string // what the user can do, "" when nothing better than the class's own hint
	Err    error  // the cause; errors.Is finds the class
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Path != "" {
		fmt.Fprintf(&b, " %s", e.Path)
	}
	if e.Tensor != "" {
		fmt.Fprintf(&b, ": tensor %q", e.Tensor)
	}
	if e.Off >= 0 && e.Off != 0 {
		fmt.Fprintf(&b, " at offset %d", e.Off)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// Corruptf builds a cause of class ErrCorrupt with a reason.
func Corruptf(format string, args ...any) error { return classed(ErrCorrupt, format, args...) }

// Unsupportedf builds a cause of class ErrUnsupported with a reason.
func Unsupportedf(format string, args ...any) error { return classed(ErrUnsupported, format, args...) }

// Limitf builds a cause of class ErrLimit with a reason.
func Limitf(format string, args ...any) error { return classed(ErrLimit, format, args...) }

func classed(class error, format string, args ...any) error {
	return &reason{class: class, text: fmt.Sprintf(format, args...)}
}

// reason is a sentence that belongs to a class without repeating its name twice.
type reason struct {
	class error
	text  string
}

func (r *reason) Error() string { return r.text }
func (r *reason) Unwrap() error { return r.class }
