//go:build !amd64 || noasm

package kernel

func available() []*set { return []*set{generic} }
