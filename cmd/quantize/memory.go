package main

import (
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmquant/quantize/internal/proc"
)

// memoryShare is how much of the memory that the process may take a run plans with.
const memoryShare = 0.8

// memoryLimit is --memory, or the default.
func memoryLimit(ctx *cli.Context) (int64, error) {
	if s := ctx.String("memory"); s != "" {
		return parseSize("memory", s)
	}
	return defaultMemory(), nil
}

// defaultMemory is 80 % of what is available to the process: of the machine's free memory or of its control group's
// limit, whichever is less. 0 when the system does not say.
func defaultMemory() int64 {
	available := proc.Bytes("/proc/meminfo", "MemAvailable") // Linux's own estimate of what can be taken without swapping
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && (available == 0 || limit < available) {
			available = limit
		}
	}
	return int64(memoryShare * float64(available))
}
