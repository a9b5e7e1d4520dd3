package ggml

import "fmt"

// NonFiniteError reports the first NaN, infinity or (for importance) negative number of an input.
type NonFiniteError struct {
	What  string // "weight", "importance" or "scale"
	Index int    // element of the input, or block of the encoded data
	Value float32
}

func (e *NonFiniteError) Error() string {
	return fmt.Sprintf("ggml: %s %d is %v", e.What, e.Index, e.Value)
}

// OverflowError reports a block whose scale does not fit the number format that stores it: the weights are too large
// for this type.
type OverflowError struct {
	Type  string
	Row   int
	Block int // within the row
}

func (e *OverflowError) Error() string {
	return fmt.Sprintf("ggml: row %d, block %d: weights are too large for %s, its scale overflows", e.Row, e.Block, e.Type)
}
