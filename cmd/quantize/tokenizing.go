package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/urfave/cli/v2"

	"github.com/llmquant/quantize/calib/chat"
	"github.com/llmquant/quantize/calib/tokenizer"
	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/hf"
	"github.com/llmquant/quantize/formats/safeio"
)

// textFiles finds the files of a model that say how text becomes ids: in its directory, the snapshot of a Hub cache
// directory or beside a weight file, or, without a directory, out of a GGUF file's metadata.
func textFiles(path string) (dir string, inside map[string][]byte, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", nil, err
	}
	if !info.IsDir() {
		return besideOrInside(path)
	}
	for _, name := range []string{"tokenizer.json", "tokenizer.model"} {
		if _, err := os.Stat(filepath.Join(path, name)); err == nil {
			return path, nil, nil
		}
	}
	c, err := hf.Open(path, formats.DefaultLimits()) // a Hub cache directory knows which snapshot is meant
	if err != nil {
		return "", nil, err
	}
	defer c.Close()
	return c.Dir(), nil, nil
}

func besideOrInside(path string) (dir string, inside map[string][]byte, err error) {
	src, err := formats.Open(context.Background(), path)
	if err != nil {
		return "", nil, err
	}
	defer src.Close()
	f, ok := formats.GGUF(src)
	if !ok {
		return filepath.Dir(path), nil, nil
	}
	m, err := f.ToHF()
	if err != nil {
		return "", nil, err
	}
	return "", m.Files, nil
}

// openTokenizer finds the tokenizer of a model.
func openTokenizer(path string) (*tokenizer.Tokenizer, error) {
	dir, inside, err := textFiles(path)
	switch text, ok := inside["tokenizer.json"]; {
	case err != nil:
		return nil, err
	case dir != "":
		return tokenizer.Open(dir)
	case ok:
		return tokenizer.Parse(text)
	}
	return nil, safeio.Unsupportedf("the file holds no tokenizer that can be read")
}

// chatFiles reads the files in which a model's chat template is, once a conversation asks for it.
func chatFiles(path string) chat.Files {
	open := sync.OnceValues(func() (chat.Files, error) {
		dir, inside, err := textFiles(path)
		if err != nil || dir != "" {
			return chat.Dir(dir), err
		}
		return func(name string) ([]byte, error) {
			text, ok := inside[name]
			if !ok {
				return nil, fs.ErrNotExist
			}
			return text, nil
		}, nil
	})
	return func(name string) ([]byte, error) {
		files, err := open()
		if err != nil {
			return nil, err
		}
		return files(name)
	}
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
