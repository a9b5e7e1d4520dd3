// Package proc reads the files in which Linux says how much memory there is and how much a process takes. On other systems
// they are missing, and every answer is 0.
package proc

import (
	"bytes"
	"os"
	"strconv"
)

// Bytes returns a field of a file like /proc/meminfo or /proc/self/status, which has lines of the form "Name: 123 kB", in
// bytes. It is 0 when the system does not say.
func Bytes(path, field string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		words := bytes.Fields(line)
		if len(words) != 3 || string(words[0]) != field+":" || string(words[2]) != "kB" {
			continue
		}
		if kb, err := strconv.ParseInt(string(words[1]), 10, 64); err == nil && kb < 1<<53 {
			return kb << 10
		}
	}
	return 0
}
