//go:build !amd64 || noasm

package ggml

// kernelSets is empty: the portable code does everything.
var kernelSets map[string]*kernels
