package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/llmquant/quantize/quant"
)

// console is where a command talks: results to out, everything else to err.
type console struct {
	out, err   *os.File
	args       []string // the command line, for the resume hint
	json       bool
	quiet      bool
	noProgress bool
	resumable  bool // an interrupted run continues from where it is

	bar      *progressbar.ProgressBar
	lastLine time.Time
	findings int
}

const (
	lineEvery   = 5 * time.Second // plain progress lines, where stderr is no terminal
	maxFindings = 20              // findings shown on the terminal; the report holds all
)

// event shows one event of a run: JSON lines on stdout with --json, otherwise a bar on a terminal and plain lines
// elsewhere.
func (c *console) event(e quant.Event) {
	if c.json {
		_ = c.printJSON(e)
		return
	}
	switch e.Kind {
	case quant.EventProgress:
		c.progress(e)
	case quant.EventStage:
		if !c.quiet && !c.terminal() {
			fmt.Fprintf(c.err, "%s\n", e.Message)
		}
		if c.bar != nil {
			c.bar.Describe(e.Message)
		}
	default:
		c.finding(e)
	}
}

// finding prints fallbacks and numeric findings, the first few of them.
func (c *console) finding(e quant.Event) {
	c.findings++
	if c.quiet || c.findings > maxFindings {
		return
	}
	c.endProgress()
	if c.findings == maxFindings {
		fmt.Fprintf(c.err, "note: more findings are in the report\n")
		return
	}
	if e.Tensor != "" {
		fmt.Fprintf(c.err, "note: %s: %s\n", e.Tensor, e.Message)
		return
	}
	fmt.Fprintf(c.err, "note: %s\n", e.Message)
}

func (c *console) progress(e quant.Event) {
	if c.quiet || c.noProgress {
		return
	}
	if !c.terminal() {
		now := time.Now()
		if c.lastLine.IsZero() {
			c.lastLine = now
		}
		if now.Sub(c.lastLine) >= lineEvery {
			c.lastLine = now
			line := fmt.Sprintf("%3.0f %%  %s", 100*e.Done, e.Stage)
			if e.LeftSecs > 0 {
				line += fmt.Sprintf(", about %s left", duration(e.LeftSecs))
			}
			fmt.Fprintln(c.err, line)
		}
		return
	}
	if c.bar == nil {
		c.bar = progressbar.NewOptions(1000, progressbar.OptionSetWriter(c.err), progressbar.OptionSetWidth(24),
			progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(100*time.Millisecond))
	}
	c.bar.Describe(e.Stage)
	_ = c.bar.Set(int(1000 * e.Done))
}

// endProgress clears the bar so that text does not run into it.
func (c *console) endProgress() {
	if c.bar != nil {
		_ = c.bar.Clear()
		c.bar = nil
	}
}

// terminal reports whether progress may redraw a line.
func (c *console) terminal() bool {
	return term.IsTerminal(int(c.err.Fd())) && os.Getenv("TERM") != "dumb"
}

// printJSON writes one line of JSON to stdout.
func (c *console) printJSON(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = c.out.Write(append(line, '\n'))
	return err
}

func duration(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}
