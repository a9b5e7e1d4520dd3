package ggml

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDecodeKernelsStayInside decodes blocks that end where readable memory ends: neither the race detector nor a canary
// sees a load beyond.
func TestDecodeKernelsStayInside(t *testing.T) {
	page := syscall.Getpagesize()
	memory, err := syscall.Mmap(-1, 0, 3*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	defer func() { _ = syscall.Munmap(memory) }()
	for _, guard := range [][]byte{memory[:page], memory[2*page:]} {
		require.NoError(t, syscall.Mprotect(guard, syscall.PROT_NONE))
	}
	readable := memory[page : 2*page]
	eachKernelSet(t, func(_ *testing.T, set *kernels) {
		for _, ty := range Types() {
			for _, blocks := range []int{1, 2} {
				dst := make([]float32, blocks*ty.Elems)
				ty.decodeWith(set, dst, readable[:blocks*ty.Bytes])
				ty.decodeWith(set, dst, readable[page-blocks*ty.Bytes:])
			}
		}
	})
}
