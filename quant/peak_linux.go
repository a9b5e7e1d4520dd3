package quant

import "github.com/llmquant/quantize/internal/proc"

// peakMemory returns the largest resident size of the process so far, in bytes, 0 when the system does not say.
func peakMemory() int64 { return proc.Bytes("/proc/self/status", "VmHWM") }
