//go:build !linux

package quant

import "runtime"

// peakMemory returns what the runtime took from the system, the closest that is known portably to a peak.
func peakMemory() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys)
}
