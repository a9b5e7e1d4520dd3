package formats

import "github.com/llmquant/quantize/formats/safeio"

// Limits bounds what is accepted from files; see safeio.Limits, where the readers below this package find it.
type Limits = safeio.Limits

// DefaultLimits returns the limits that Open uses.
func DefaultLimits() Limits { return safeio.DefaultLimits() }
