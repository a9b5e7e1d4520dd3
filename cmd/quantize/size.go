package main

import (
	"fmt"
	"strconv"
	"strings"
)

// units of --memory and --max-shard-size: decimal as checkpoints' tools use them, binary with an i.
var units = []struct {
	suffix string
	bytes  float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"B", 1}, {"", 1},
}

// parseSize reads "5GB", "512MiB" or plain bytes.
func parseSize(flag, s string) (int64, error) {
	for _, u := range units {
		number, ok := strings.CutSuffix(strings.ToUpper(s), strings.ToUpper(u.suffix))
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(v > 0) || v*u.bytes > 1<<62 {
			break
		}
		return int64(v * u.bytes), nil
	}
	return 0, usagef("--%s %q is not a size; write for example 5GB or 512MiB", flag, s)
}

// humanBytes spells a size with three significant digits, decimal units.
func humanBytes(n int64) string {
	v := float64(n)
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	units := []string{"B", "kB", "MB", "GB", "TB"}
	for len(units) > 1 && v >= 999.5 {
		v, units = v/1000, units[1:]
	}
	if v >= 999.5 {
		return fmt.Sprintf("%.0f %s", v, units[0])
	}
	return fmt.Sprintf("%.3g %s", v, units[0])
}
