package formats

import (
	"io"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// Checkpoint is an opened model: its stored tensors and what is known about them. Implementations are safe for
// concurrent use and everything they return was checked when they were opened.
type Checkpoint interface {
	tensor.Source
	Meta() *Meta
	Close() error
}

// Meta describes a checkpoint.
type Meta struct {
	Path    string       // as the user gave it
	Kind    string       // "hf" or "gguf"
	Config  []byte       // config.json as stored; for GGUF reconstructed in Transformers' spelling
	Quant   *QuantConfig // nil for a dense checkpoint
	Files   []FileInfo   // weight files
	Side    []SideFile   // files an output carries over
	Skipped []string     // names that are neither: reports mention them, so that nothing is dropped silently

	place     func(name string) (file string, offset, bytes int64, ok bool)
	unchanged func() error
}

// QuantConfig is a checkpoint's own statement of how its weights are stored.
type QuantConfig struct {
	Method string       // "awq", "gptq", "compressed-tensors", "fp8", "modelopt", "bitsandbytes", "exl2", "gguf", …
	Raw    safeio.Value // the object that says so, as stored; the zero Value for GGUF
	Source string       // the file it stands in
}

// FileInfo is a weight file that can be streamed, for hashing.
type FileInfo struct {
	Name string // base name
	Size int64
	Open func() (io.ReadCloser, error)
}

// SideFile is a file that is carried over unchanged.
type SideFile struct {
	Name string // base name
	Size int64
	Open func() (io.ReadCloser, error)
}

// Place returns the base name of the file that stores a tensor and the bytes it takes there.
func (m *Meta) Place(name string) (file string, offset, bytes int64, ok bool) {
	if m.place == nil {
		return "", 0, 0, false
	}
	return m.place(name)
}

// Unchanged fails when a file of the checkpoint was changed or replaced since it was opened. Ask before publishing what
// was computed from it.
func (m *Meta) Unchanged() error {
	if m.unchanged == nil {
		return nil
	}
	return m.unchanged()
}
