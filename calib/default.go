package calib

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// builtInText is default/text.zst: documents separated by a line with a form feed. default/README.md says where it
// comes from and under which licence.
//
//go:embed default/text.zst
var builtInText []byte

// separator stands between two documents of the built-in text.
const separator = "\n\f\n"

// defaultDocuments unpacks the built-in text.
func defaultDocuments() ([]string, error) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	text, err := z.DecodeAll(builtInText, nil)
	if err != nil {
		return nil, fmt.Errorf("the built-in text: %w", err)
	}
	return strings.Split(string(text), separator), nil
}

// DefaultText returns the text built into the program, its documents joined by blank lines: varied prose, dialogue,
// code and data, more than 262,144 tokens (128 windows of 2048) even for large vocabularies.
func DefaultText() (string, error) {
	docs, err := defaultDocuments()
	return strings.Join(docs, "\n\n"), err
}

// readDefault yields the built-in text as if it were a file; its hash is that of the embedded bytes.
func (r *fileReader) readDefault() error {
	docs, err := defaultDocuments()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(builtInText)
	r.stat.SHA256, r.stat.Bytes = hex.EncodeToString(sum[:]), int64(len(builtInText))
	for i, d := range docs {
		if err := r.emit(Document{Text: d, Row: int64(i + 1)}); err != nil {
			return err
		}
	}
	return nil
}
