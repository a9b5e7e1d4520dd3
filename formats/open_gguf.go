package formats

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/llmquant/quantize/formats/gguf"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// ggufCheckpoint shows a GGUF file as it is stored: its own names, shapes in PyTorch order. A tensor in a block format
// reads as bytes, U8 with the bytes of a row as its last dimension; Dense shows the model behind them.
type ggufCheckpoint struct {
	file  *gguf.File
	meta  Meta
	infos []tensor.Info
	index map[string]int
	stats []fs.FileInfo
	dense tensor.Source // the same model in Hugging Face names; nil when denseErr says why not
	err   error
}

// GGUF returns the GGUF file behind a checkpoint that Open returned, for its types and metadata.
func GGUF(c Checkpoint) (*gguf.File, bool) {
	g, ok := c.(*ggufCheckpoint)
	if !ok {
		return nil, false
	}
	return g.file, true
}

func isGGUF(head []byte, dir bool) bool { return !dir && len(head) >= 4 && string(head[:4]) == "GGUF" }

func openGGUF(path string, limits Limits) (Checkpoint, error) {
	f, err := gguf.OpenLimits(path, limits)
	if err != nil {
		return nil, err
	}
	c := &ggufCheckpoint{file: f, index: make(map[string]int, len(f.Tensors))}
	c.meta = Meta{Path: path, Kind: "gguf", place: c.place, unchanged: c.unchanged}
	if err := c.describe(); err != nil {
		f.Close()
		return nil, err
	}
	// An architecture without a counterpart in Transformers can still be inspected; Dense will say what is missing.
	c.meta.Config, c.dense, c.err = f.HF()
	return c, nil
}

// describe lists tensors and files.
func (c *ggufCheckpoint) describe() error {
	for i, t := range c.file.Tensors {
		info := tensor.Info{Name: t.Name, DType: t.Type.DType(), Shape: t.Shape()}
		if info.DType == tensor.Invalid {
			row, ok := t.Type.RowBytes(t.NE[0])
			if !ok || len(info.Shape) == 0 {
				return &safeio.Error{Op: "open", Path: c.meta.Path, Tensor: t.Name, Off: -1, Err: safeio.Corruptf("%s of shape %v has no rows", t.Type, info.Shape)}
			}
			info.DType, info.Shape[len(info.Shape)-1] = tensor.U8, row
			c.meta.Quant = &QuantConfig{Method: "gguf", Source: filepath.Base(c.meta.Path)}
		}
		c.infos = append(c.infos, info)
		c.index[t.Name] = i
	}
	for i, s := range c.file.Shards() {
		stat, err := os.Stat(c.beside(s.Name))
		if err != nil {
			return err
		}
		c.stats = append(c.stats, stat)
		c.meta.Files = append(c.meta.Files, FileInfo{Name: s.Name, Size: s.Size,
			Open: func() (io.ReadCloser, error) { return io.NopCloser(c.file.OpenShard(i)), nil }})
	}
	return nil
}

// Meta describes the checkpoint.
func (c *ggufCheckpoint) Meta() *Meta { return &c.meta }

// Close closes every file of the set.
func (c *ggufCheckpoint) Close() error { return c.file.Close() }

// Tensors lists the stored tensors in file order.
func (c *ggufCheckpoint) Tensors() []tensor.Info { return c.infos }

// Lookup finds a tensor by its stored name.
func (c *ggufCheckpoint) Lookup(name string) (tensor.Info, bool) {
	i, ok := c.index[name]
	if !ok {
		return tensor.Info{}, false
	}
	return c.infos[i], true
}

// ReadTensor fills dst with stored bytes.
func (c *ggufCheckpoint) ReadTensor(name string, dst []byte, off int64) error {
	t, ok := c.file.Lookup(name)
	if !ok {
		return &safeio.Error{Op: "read", Path: c.meta.Path, Tensor: name, Off: -1, Err: safeio.Corruptf("no such tensor")}
	}
	return c.file.ReadAt(t, dst, off)
}

func (c *ggufCheckpoint) place(name string) (file string, offset, bytes int64, ok bool) {
	t, ok := c.file.Lookup(name)
	if !ok {
		return "", 0, 0, false
	}
	s := c.file.Shards()[t.Shard]
	return s.Name, s.Data + t.Offset, t.Bytes, true
}

// beside returns the path of another file of the set.
func (c *ggufCheckpoint) beside(name string) string {
	return filepath.Join(filepath.Dir(c.meta.Path), name)
}

func (c *ggufCheckpoint) unchanged() error {
	var errs []error
	for i, s := range c.file.Shards() {
		now, err := os.Stat(c.beside(s.Name))
		if err == nil {
			err = safeio.Unchanged(c.beside(s.Name), c.stats[i], now)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
