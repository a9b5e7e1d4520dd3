package quant

import (
	"context"
	"errors"
	"fmt"

	"github.com/llmquant/quantize/calib"
)

// Options are everything about a run that is not the recipe.
type Options struct {
	Out      string     // directory to create (a file for single-file formats)
	Calib    *calib.Set // calibration windows; may be nil when the recipe needs none
	Threads  int        // 0: all cores
	Memory   int64      // bytes the run may use; 0: no limit of its own. Never changes a result byte
	Before   int64      // bytes that the program needs before the run, for a measurement: part of the plan's peak
	MaxShard int64      // bytes of tensors per file; 0: 5 GB
	Strict   bool       // every fallback is an error
	Force    bool       // replace an existing Out
	NaNZero  bool       // non-finite weights become 0 instead of an error
	Version  string     // of the program, for the report and the job's key
	Events   func(Event)
}

// ErrOptions is the class of mistakes in a recipe or in options that show only against the model: a pattern that matches
// nothing, windows longer than the context.
var ErrOptions = errors.New("options")

// optionsError is a sentence of class ErrOptions.
type optionsError struct{ text string }

func (o *optionsError) Error() string { return o.text }
func (o *optionsError) Unwrap() error { return ErrOptions }

func optionsf(format string, args ...any) error { return &optionsError{fmt.Sprintf(format, args...)} }

const defaultShard = 5_000_000_000

func (o *Options) maxShard() int64 {
	if o.MaxShard > 0 {
		return o.MaxShard
	}
	return defaultShard
}

// eventKey is where Run keeps the event callback for transforms and rounders.
type eventKey struct{}

// Emit reports a finding or fallback from inside a Transform or Rounder.
func Emit(ctx context.Context, e Event) {
	if emit, ok := ctx.Value(eventKey{}).(func(Event)); ok {
		emit(e)
	}
}
