// Command quantize makes trained language models smaller: one static binary, no Python, no GPU needed.
//
// See `quantize help` and the README for what it does; docs of the library are in package quant.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run(os.Args, os.Stdout, os.Stderr))
}

// run is main without the process: it returns the exit code. The first SIGINT or SIGTERM cancels the context, the run
// stops at its next chunk; the second one ends the process at once.
func run(args []string, stdout, stderr *os.File) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		for first := true; ; first = false {
			s, ok := <-signals
			if !ok {
				return
			}
			if !first {
				os.Exit(exitInterrupted)
			}
			cancel(&interruption{signal: s})
		}
	}()
	c := &console{out: stdout, err: stderr, args: args}
	return c.finish(ctx, app(c).RunContext(ctx, arrange(args)))
}
