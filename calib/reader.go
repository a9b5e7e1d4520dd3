package calib

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"os"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/llmquant/quantize/formats/safeio"
)

// fileReader reads one input and yields its documents.
type fileReader struct {
	src   *Source
	ctx   context.Context
	in    input
	stat  FileStat
	yield func(Document, error) bool
	pick  picker
	text  int64 // bytes of documents so far
}

// emit passes a document on; one without content is counted as skipped, unless the caller wants it.
func (r *fileReader) emit(d Document) error {
	if d.Text == "" && len(d.IDs) == 0 && len(d.Messages) == 0 && !r.src.opts.KeepEmpty {
		r.stat.Skipped++
		return nil
	}
	if err := r.ctx.Err(); err != nil {
		return err
	}
	r.stat.Documents++
	d.File = r.in.name
	if !r.yield(d, nil) {
		return errStop
	}
	return nil
}

// grow counts text taken out of the file and guards against files that hold far more text than bytes.
func (r *fileReader) grow(n int) error {
	r.text += int64(n)
	l := r.src.opts.Limits
	if r.text > l.Free && (r.text-l.Free)/l.Ratio > r.stat.Bytes {
		return safeio.Limitf("%d bytes of file hold more than %d bytes of text", r.stat.Bytes, r.text)
	}
	return nil
}

var (
	gzipMagic    = []byte{0x1f, 0x8b}
	zstdMagic    = []byte{0x28, 0xb5, 0x2f, 0xfd}
	parquetMagic = []byte("PAR1")
)

// read opens the input and goes by its content where that speaks for itself, by its ending otherwise.
func (r *fileReader) read() error {
	if r.in.format == builtIn {
		return r.readDefault()
	}
	f, info, err := safeio.OpenRegular(r.in.path)
	if err != nil {
		return err
	}
	defer f.Close()
	r.stat.Bytes = info.Size()
	var head [4]byte
	if n, err := f.ReadAt(head[:], 0); err != nil && err != io.EOF {
		return err
	} else if n == 0 {
		return safeio.Corruptf("the file is empty")
	}
	if bytes.Equal(head[:], parquetMagic) || r.in.format == parquetFile && !r.in.compressed {
		return r.readParquet(f, info.Size())
	}
	if r.in.format == parquetFile {
		return safeio.Unsupportedf("a compressed parquet file; decompress it first")
	}
	if r.in.format == unknown {
		return safeio.Unsupportedf("the ending tells no data format; %s", known)
	}
	return r.readStream(f, head[:])
}

// readStream reads a file front to back, hashing its bytes as they pass.
func (r *fileReader) readStream(f *os.File, head []byte) error {
	raw := &counter{r: f, hash: sha256.New()}
	stream, closer, err := r.decompress(raw, head)
	if err != nil {
		return err
	}
	defer closer()
	body := bufio.NewReaderSize(stream, 64<<10)
	if bom, _ := body.Peek(3); string(bom) == "\ufeff" {
		body.Discard(3)
	}
	switch r.in.format {
	case plainText:
		err = r.readText(body)
	case jsonLines:
		err = r.readLines(body)
	default:
		err = r.readJSON(body)
	}
	if err != nil {
		return err
	}
	// The readers end at the end of the stream; what a decompressor left over still belongs to the hash.
	if _, err := io.Copy(io.Discard, raw); err != nil {
		return err
	}
	r.stat.SHA256 = hex.EncodeToString(raw.hash.Sum(nil))
	r.stat.Bytes = raw.n
	return nil
}

// counter counts and hashes what passes.
type counter struct {
	r    io.Reader
	n    int64
	hash hash.Hash
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.hash != nil {
		c.hash.Write(p[:n])
	}
	return n, err
}

// maxWindow bounds the memory of a zstd stream: the largest window of its command line without extra flags.
const maxWindow = 128 << 20

// decompress recognises gzip and zstd by content; the name only says what to expect.
func (r *fileReader) decompress(raw *counter, head []byte) (io.Reader, func(), error) {
	nothing := func() {}
	switch {
	case bytes.HasPrefix(head, gzipMagic):
		z, err := gzip.NewReader(bufio.NewReaderSize(raw, 64<<10))
		if err != nil {
			return nil, nil, safeio.Corruptf("the gzip stream cannot be read: %v", err)
		}
		return &inflated{r: z, raw: raw, file: r}, nothing, nil
	case bytes.HasPrefix(head, zstdMagic):
		z, err := zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxWindow), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, safeio.Corruptf("the zstd stream cannot be read: %v", err)
		}
		return &inflated{r: z, raw: raw, file: r}, z.Close, nil
	case r.in.compressed:
		return nil, nil, safeio.Corruptf("the file is neither gzip nor zstd, as its name says")
	}
	return raw, nothing, nil
}

// inflated is a decompressed stream under the guards against bombs: a total over all inputs, and a ratio.
type inflated struct {
	r    io.Reader
	raw  *counter
	file *fileReader
	n    int64
}

// Read passes decompressed bytes on. The guards look at what has come out, not at what a header announces.
func (z *inflated) Read(p []byte) (int, error) {
	n, err := z.r.Read(p)
	z.n += int64(n)
	l := z.file.src.opts.Limits
	if z.file.src.total += int64(n); z.file.src.total > l.Total {
		return 0, safeio.Limitf("the compressed inputs decompress to more than %d bytes", l.Total)
	}
	if z.n > l.Free && (z.n-l.Free)/l.Ratio > z.raw.n {
		return 0, safeio.Limitf("%d compressed bytes decompress to more than %d", z.raw.n, z.n)
	}
	if err != nil && err != io.EOF {
		err = safeio.Corruptf("the compressed stream is damaged after %d bytes: %v", z.n, err)
	}
	return n, err
}

// readText takes the whole file as one document.
func (r *fileReader) readText(body *bufio.Reader) error {
	limit := r.src.opts.Limits.Document
	data, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err != nil {
		return err
	}
	if int64(len(data)) > limit {
		return safeio.Limitf("the text has more than %d bytes; split it, or give it as one JSON string per line", limit)
	}
	if i := invalidUTF8(data); i >= 0 {
		return safeio.Corruptf("the text is not UTF-8: byte %d is 0x%02x", i, data[i])
	}
	return r.emit(Document{Text: string(data)})
}

// invalidUTF8 returns the offset of the first byte that is not UTF-8, -1 when there is none.
func invalidUTF8(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	for i := 0; i < len(data); {
		c, w := utf8.DecodeRune(data[i:])
		if c == utf8.RuneError && w == 1 {
			return i
		}
		i += w
	}
	return -1
}
