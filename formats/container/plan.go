// Package container describes an output before a byte of it is computed: every file, every tensor's final offset.
// Container codecs (safetensors, gguf) produce a Plan; the job in package formats fills and publishes it.
package container

// Plan is a complete output: files in order and where each tensor's bytes go.
type Plan struct {
	Files   []File
	Tensors []Tensor
}

// File is one output file. Size is exact; Header occupies the first len(Header) bytes. Bytes covered neither by
// Header nor by a tensor are zero (GGUF padding).
type File struct {
	Name   string
	Header []byte
	Size   int64
}

// Tensor places the stored bytes of one output tensor.
type Tensor struct {
	Name   string
	File   int   // index into Files
	Offset int64 // from the start of the file
	Bytes  int64
}
