package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/quant"
)

// The exit codes of the command line contract.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitCorrupt     = 3
	exitUnsupported = 4
	exitIO          = 5
	exitExists      = 6
	exitVerify      = 7
	exitRequeue     = 75
	exitInterrupted = 130
)

// interruption is the cause of a cancelled context: which signal stopped the run.
type interruption struct{ signal os.Signal }

func (i *interruption) Error() string { return "stopped by " + i.signal.String() }

// usageError is a mistake in the command line itself.
type usageError struct{ text, hint string }

func (u *usageError) Error() string { return u.text }

func usagef(format string, args ...any) error { return &usageError{text: fmt.Sprintf(format, args...)} }

// classes maps error classes to exit codes and to what the user can do, first match wins.
var classes = []struct {
	is   error
	code int
	hint string
}{
	{safeio.ErrVerify, exitVerify, "the file differs from what was written or the limit is exceeded; nothing was published"},
	{safeio.ErrExists, exitExists, "choose another --out, or give --force to replace it"},
	{safeio.ErrLocked, exitExists, "wait for the other run, or choose another --out"},
	{quant.ErrOptions, exitUsage, "see `quantize help`"},
	{safeio.ErrLimit, exitCorrupt, "the file claims more than any known model needs; check where it came from"},
	{safeio.ErrCorrupt, exitCorrupt, "download or write the file again and compare its checksum"},
	{safeio.ErrUnsupported, exitUnsupported, "see `quantize list` for what is supported"},
	{syscall.ENOSPC, exitIO, "free some space and give the same command again: the run continues where it stopped"},
	{syscall.EDQUOT, exitIO, "raise the quota and give the same command again: the run continues where it stopped"},
	{fs.ErrNotExist, exitIO, "check the path"},
	{fs.ErrPermission, exitIO, "check the permissions"},
}

// finish prints err as one line and a hint, and returns the exit code.
func (c *console) finish(ctx context.Context, err error) int {
	c.endProgress()
	if err == nil {
		return 0
	}
	var stopped *interruption
	if errors.As(context.Cause(ctx), &stopped) {
		fmt.Fprintf(c.err, "quantize: %v\n", stopped)
		if c.resumable {
			fmt.Fprintf(c.err, "  continue with: %s\n", strings.Join(quoted(c.args), " "))
		}
		if stopped.signal == syscall.SIGTERM {
			return exitRequeue
		}
		return exitInterrupted
	}
	code, hint := classify(err)
	fmt.Fprintf(c.err, "quantize: %v\n", err)
	if hint != "" {
		fmt.Fprintf(c.err, "  %s\n", hint)
	}
	return code
}

// classify finds the exit code and the hint of an error.
func classify(err error) (code int, hint string) {
	var usage *usageError
	if errors.As(err, &usage) {
		if usage.hint == "" {
			return exitUsage, "see `quantize help`"
		}
		return exitUsage, usage.hint
	}
	for _, c := range classes {
		if errors.Is(err, c.is) {
			code, hint = c.code, c.hint
			break
		}
	}
	var pathErr *fs.PathError
	if code == 0 {
		code, hint = exitFailure, "run the same command again; if it fails again, report it together with this message"
		if errors.As(err, &pathErr) {
			code, hint = exitIO, "check the path and the disk"
		}
	}
	var located *safeio.Error
	if errors.As(err, &located) && located.Hint != "" {
		hint = located.Hint
	}
	return code, hint
}

// quoted spells arguments so that a shell reads them back unchanged.
func quoted(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		if a == "" || strings.ContainsAny(a, " \t\n'\"\\$`*?[](){}<>|&;!#~") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		out[i] = a
	}
	return out
}
