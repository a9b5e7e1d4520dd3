// Package safeiotest helps tests of file readers: an allocation meter that every fuzz target runs under.
package safeiotest

import (
	"runtime"
	"testing"
)

// Meter limits what parsing may allocate, garbage included: 8 bytes per input byte plus 16 MiB.
const (
	meterFactor = 8
	meterSlack  = 16 << 20
)

// CheckAllocation fails the test when f allocates more than the meter allows for an input of that many bytes.
// Other goroutines of the process count too; the slack covers them.
func CheckAllocation(t testing.TB, input int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > uint64(meterFactor*input+meterSlack) {
		t.Fatalf("%d bytes allocated for an input of %d bytes", got, input)
	}
}
