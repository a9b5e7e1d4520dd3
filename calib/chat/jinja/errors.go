package jinja

import (
	"errors"
	"fmt"
)

// SyntaxError says that the source is not a Jinja template.
type SyntaxError struct {
	Line int
	Msg  string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Msg) }

// UnsupportedError names a part of Jinja that this package leaves out on purpose.
type UnsupportedError struct {
	Line int
	What string
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("line %d: %s is not supported", e.Line, e.What)
}

// RaisedError carries the message of a template that refused its input through raise_exception.
type RaisedError struct{ Msg string }

func (e *RaisedError) Error() string { return e.Msg }

// RuntimeError is what Python would raise while rendering: wrong types, undefined values, unknown attributes.
type RuntimeError struct {
	Line int
	Msg  string
}

func (e *RuntimeError) Error() string {
	if e.Line == 0 {
		return e.Msg
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Msg)
}

// LimitError says which budget of Limits a template used up.
type LimitError struct{ What string }

func (e *LimitError) Error() string { return "the template exceeds the limit of " + e.What }

// Control flow of loops travels as errors and never leaves the package: the parser refuses both outside of a loop.
var (
	errBreak    = errors.New("break")
	errContinue = errors.New("continue")
)

// typeErrorf is the error Python would raise; the node that runs into it adds its line.
func typeErrorf(format string, args ...any) error {
	return &RuntimeError{Msg: fmt.Sprintf(format, args...)}
}

// at gives a runtime error the line of the node that caused it, unless an inner node has done so.
func at(line int, err error) error {
	switch e := err.(type) {
	case *RuntimeError:
		if e.Line == 0 {
			return &RuntimeError{Line: line, Msg: e.Msg}
		}
	case *UnsupportedError:
		if e.Line == 0 {
			return &UnsupportedError{Line: line, What: e.What}
		}
	}
	return err
}
