package hf

import (
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// Config returns config.json; the zero Value when a single file was opened that has none beside it.
func (c *Checkpoint) Config() safeio.Value { return c.config }

// Quantization tells how the checkpoint is quantized, nil for a dense one.
func (c *Checkpoint) Quantization() *Quantization { return c.quant }

// Tensors lists the tensors of all shards in storage order.
func (c *Checkpoint) Tensors() []tensor.Info { return c.infos }

// Lookup finds a tensor by name.
func (c *Checkpoint) Lookup(name string) (tensor.Info, bool) {
	shard, ok := c.home[name]
	if !ok {
		return tensor.Info{}, false
	}
	return c.shards[shard].Lookup(name)
}

// ReadTensor fills dst with bytes of the tensor from byte offset off.
func (c *Checkpoint) ReadTensor(name string, dst []byte, off int64) error {
	shard, ok := c.home[name]
	if !ok {
		return &safeio.Error{Op: "read", Path: c.root.Path("."), Tensor: name, Off: -1, Err: safeio.Corruptf("no such tensor")}
	}
	return c.shards[shard].ReadTensor(name, dst, off)
}

// Place returns the base name of the file that holds a tensor, and where in it.
func (c *Checkpoint) Place(name string) (file string, offset, bytes int64, ok bool) {
	shard, ok := c.home[name]
	if !ok {
		return "", 0, 0, false
	}
	offset, bytes, ok = c.shards[shard].Place(name)
	return c.names[shard], offset, bytes, ok
}

// Weights lists the weight files in order of name.
func (c *Checkpoint) Weights() []File {
	files := make([]File, len(c.names))
	for i, name := range c.names {
		files[i] = c.file(name, c.stats[i])
	}
	return files
}

// Side lists the files that an output must carry over: tokenizer, templates, generation settings, code, licence.
func (c *Checkpoint) Side() []File { return c.side }

// Skipped names what lies in the directory and is neither part of the model nor carried over: other weight formats,
// directories. Version control and caches are not worth a mention.
func (c *Checkpoint) Skipped() []string { return c.skipped }

// Unchanged fails when a weight or side file was changed, replaced or removed since Open. A job asks before it publishes.
func (c *Checkpoint) Unchanged() error {
	for i, name := range c.names {
		now, err := c.root.Stat(name)
		if err != nil {
			return err
		}
		if err := safeio.Unchanged(c.root.Path(name), c.stats[i], now); err != nil {
			return err
		}
	}
	return nil
}
