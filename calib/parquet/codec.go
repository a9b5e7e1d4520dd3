package parquet

import (
	"bytes"
	"io"

	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"

	"github.com/llmquant/quantize/formats/safeio"
)

// Page sizes that are believed. Text compresses four- to tenfold; what claims more must be small.
const (
	smallPage = 64 << 20  // any page may have so many bytes at up to maxRatio times its compressed size,
	largePage = 512 << 20 // and so many at up to largeRatio: long documents make such pages
	maxRatio  = 1024
	largeRate = 32
	// maxWindow bounds the history of a zstd frame.
	maxWindow = 32 << 20
)

// checkPageSize bounds what a page may decompress to.
func checkPageSize(compressed, uncompressed int64) error {
	switch {
	case uncompressed > largePage, uncompressed > smallPage && uncompressed > largeRate*compressed:
		return safeio.Limitf("a page of %d bytes claims to hold %d", compressed, uncompressed)
	case uncompressed > maxRatio*(compressed+64):
		return safeio.Limitf("a page of %d bytes claims to hold %d, over %d times as many", compressed, uncompressed, maxRatio)
	}
	return nil
}

// codec decompresses pages to exactly the size they declare.
type codec struct {
	id   int32
	zstd *zstd.Decoder // made at first use, kept for the next page
}

var codecNames = [...]string{"none", "snappy", "gzip", "LZO", "brotli", "LZ4", "zstd", "LZ4_RAW"}

const (
	codecNone   = 0
	codecSnappy = 1
	codecGzip   = 2
	codecBrotli = 4
	codecZstd   = 6
)

// checkCodec refuses what cannot be decompressed, by name.
func checkCodec(id int32) error {
	switch id {
	case codecNone, codecSnappy, codecGzip, codecBrotli, codecZstd:
		return nil
	}
	name := "unknown"
	if id >= 0 && int(id) < len(codecNames) {
		name = codecNames[id]
	}
	return safeio.Unsupportedf("compression %s (%d); supported are none, snappy, gzip, brotli and zstd", name, id)
}

func (c *codec) close() {
	if c.zstd != nil {
		c.zstd.Close()
	}
}

// decode appends size decompressed bytes of src to dst.
func (c *codec) decode(dst, src []byte, size int) ([]byte, error) {
	if c.id == codecNone {
		if len(src) != size {
			return nil, safeio.Corruptf("an uncompressed page has %d bytes and claims %d", len(src), size)
		}
		return append(dst, src...), nil
	}
	if c.id == codecSnappy {
		return decodeSnappy(dst, src, size)
	}
	r, err := c.reader(src)
	if err != nil {
		return nil, safeio.Corruptf("the page does not decompress: %v", err)
	}
	start := len(dst)
	dst = append(dst, make([]byte, size)...)
	if n, err := io.ReadFull(r, dst[start:]); err != nil {
		return nil, safeio.Corruptf("the page does not decompress after %d of %d bytes: %v", n, size, err)
	}
	var more [1]byte
	if n, err := io.ReadFull(r, more[:]); n != 0 || err != io.EOF {
		return nil, safeio.Corruptf("the page decompresses to more than its %d bytes, or is damaged at its end", size)
	}
	return dst, nil
}

// reader starts a decompressor on a page. Streams give back exactly as much as is asked for, where the one-shot
// functions of these packages would follow the data as far as it goes.
func (c *codec) reader(src []byte) (io.Reader, error) {
	switch c.id {
	case codecGzip:
		return gzip.NewReader(bytes.NewReader(src))
	case codecZstd:
		if c.zstd != nil {
			return c.zstd, c.zstd.Reset(bytes.NewReader(src))
		}
		var err error
		// One thread: decompression then happens in this goroutine, frame by frame.
		c.zstd, err = zstd.NewReader(bytes.NewReader(src), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow))
		return c.zstd, err
	}
	brotli, err := compress.GetCodec(compress.Codecs.Brotli)
	if err != nil {
		return nil, err
	}
	return brotli.NewReader(bytes.NewReader(src)), nil
}

// decodeSnappy trusts the block's own length only after comparing it with the page's.
func decodeSnappy(dst, src []byte, size int) ([]byte, error) {
	n, err := snappy.DecodedLen(src)
	if err != nil || n != size {
		return nil, safeio.Corruptf("the snappy block claims %d bytes, the page %d", n, size)
	}
	start := len(dst)
	dst = append(dst, make([]byte, size)...)
	out, err := snappy.Decode(dst[start:], src)
	if err != nil || len(out) != size {
		return nil, safeio.Corruptf("the page does not decompress: %v", err)
	}
	return dst, nil
}
