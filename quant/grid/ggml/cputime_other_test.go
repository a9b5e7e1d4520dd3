//go:build !unix

package ggml

import "time"

func cpuTime() time.Duration { return 0 }
