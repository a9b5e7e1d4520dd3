package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/urfave/cli/v2"

	"github.com/llmquant/quantize/calib/tokenizer"
	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/hf"
	"github.com/llmquant/quantize/formats/safeio"
)

// openTokenizer finds the tokenizer of a model.
func openTokenizer(path string) (*tokenizer.Tokenizer, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.IsDir():
		return fileTokenizer(path)
	}
	for _, name := range []string{"tokenizer.json", "tokenizer.model"} {
		if _, err := os.Stat(filepath.Join(path, name)); err == nil {
			return tokenizer.Open(path)
		}
	}
	c, err := hf.Open(path, formats.DefaultLimits()) // a Hub cache directory knows which snapshot is meant
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return tokenizer.Open(c.Dir())
}

// fileTokenizer is the tokenizer beside a safetensors file or inside a GGUF file.
func fileTokenizer(path string) (*tokenizer.Tokenizer, error) {
	src, err := formats.Open(context.Background(), path)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	f, ok := formats.GGUF(src)
	if !ok {
		return tokenizer.Open(filepath.Dir(path))
	}
	m, err := f.ToHF()
	if err != nil {
		return nil, err
	}
	text, ok := m.Files["tokenizer.json"]
	if !ok {
		return nil, safeio.Unsupportedf("the file holds no tokenizer that can be read")
	}
	return tokenizer.Parse(text)
}

// lazyTokenizer opens a model's tokenizer when the first text needs it, so that data made of token ids works with
// tokenizers that this program refuses. A refusal shows in check, after the data was read.
type lazyTokenizer struct {
	path string
	once sync.Once
	tok  *tokenizer.Tokenizer
	err  error
}

func (l *lazyTokenizer) open() (*tokenizer.Tokenizer, error) {
	l.once.Do(func() { l.tok, l.err = openTokenizer(l.path) })
	return l.tok, l.err
}

// EncodeAppend implements calib.Encoder.
func (l *lazyTokenizer) EncodeAppend(dst []int32, text string, special bool) []int32 {
	t, err := l.open()
	if err != nil {
		return dst
	}
	return t.EncodeAppend(dst, text, special)
}

// check returns the tokenizer's own failure, which is the cause of any other.
func (l *lazyTokenizer) check(err error) error {
	if l.err != nil {
		return fmt.Errorf("tokenizer of %s: %w", l.path, l.err)
	}
	return err
}

func threads(ctx *cli.Context) int {
	if n := ctx.Int("threads"); n > 0 {
		return n
	}
	return runtime.GOMAXPROCS(0)
}
