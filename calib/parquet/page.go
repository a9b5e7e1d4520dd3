package parquet

import (
	"errors"
	"hash/crc32"
	"io"

	"github.com/llmquant/quantize/formats/safeio"
)

// Types of pages.
const (
	pageData       = 0
	pageIndex      = 1
	pageDictionary = 2
	pageDataV2     = 3
)

// Encodings of values and levels.
const (
	encPlain       = 0
	encPlainDict   = 2
	encRLE         = 3
	encDelta       = 5
	encDeltaLength = 6
	encDeltaBytes  = 7
	encRLEDict     = 8
)

// header is a page header of any type.
type header struct {
	typ                int64
	size, compressed   int64 // bytes when decompressed; bytes in the file behind the header
	crc                int64 // -1: none
	values             int64
	encoding           int64
	defEnc, repEnc     int64
	defBytes, repBytes int64 // version 2
	plain              bool  // version 2: the values are not compressed
	length             int64 // of the header itself
}

const (
	// maxHeader bounds a page header; statistics may hold long strings.
	maxHeader = 1 << 20
	// firstHeader is read at first; most headers have fifty bytes.
	firstHeader = 4 << 10
	// maxValues bounds the values of a page, nulls included: Arrow keeps four bytes for some.
	maxValues = 16 << 20
)

// readHeader reads the page header at off, of which at most limit bytes belong to the chunk.
func readHeader(r io.ReaderAt, off, limit int64) (header, error) {
	for n := int64(firstHeader); ; n *= 16 {
		n = min(n, limit, maxHeader)
		buf := make([]byte, n)
		if err := safeio.ReadFullAt(r, buf, off); err != nil {
			return header{}, err
		}
		t := &thrift{b: buf}
		h, err := parseHeader(t)
		switch {
		case err == nil:
			h.length = int64(t.i)
			return h, h.check(limit)
		case !errors.Is(err, errShort):
			return h, err
		case n == limit:
			return h, safeio.Corruptf("a page header runs past the end of its column")
		case n == maxHeader:
			return h, safeio.Limitf("a page header has more than %d bytes", maxHeader)
		}
	}
}

// parseHeader walks PageHeader. Levels count as run-length encoded unless it says otherwise: version 2 has no field for it.
func parseHeader(t *thrift) (header, error) {
	h := header{typ: -1, size: -1, compressed: -1, crc: -1, values: -1, encoding: -1, defEnc: encRLE, repEnc: encRLE}
	body := int64(-1) // which of the type-specific headers is there
	err := t.structure(func(id int64, typ byte) (done bool, err error) {
		switch id {
		case 1:
			h.typ, err = t.integer(typ)
		case 2:
			h.size, err = t.integer(typ)
		case 3:
			h.compressed, err = t.integer(typ)
		case 4:
			h.crc, err = t.integer(typ)
			h.crc = int64(uint32(h.crc))
		case 5, 7, 8:
			if body >= 0 || typ != tStruct {
				return false, safeio.Corruptf("a page has two headers")
			}
			body = id
			err = h.parseBody(t, id)
		default:
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return h, err
	}
	if want := map[int64]int64{pageData: 5, pageDictionary: 7, pageDataV2: 8}[h.typ]; want != 0 && want != body {
		return h, safeio.Corruptf("a page of type %d has no header of its type", h.typ)
	}
	return h, nil
}

// parseBody walks DataPageHeader (5), DictionaryPageHeader (7) or DataPageHeaderV2 (8): the first two fields of the
// former are the whole of the second.
func (h *header) parseBody(t *thrift, kind int64) error {
	fields := map[int64]*int64{1: &h.values, 2: &h.encoding}
	switch kind {
	case 5:
		fields[3], fields[4] = &h.defEnc, &h.repEnc
	case 8:
		fields = map[int64]*int64{1: &h.values, 4: &h.encoding, 5: &h.defBytes, 6: &h.repBytes}
	}
	return t.structure(func(id int64, typ byte) (done bool, err error) {
		if kind == 8 && id == 7 {
			if typ != tTrue && typ != tFalse {
				return false, wrongType(typ)
			}
			h.plain = typ == tFalse
			return true, nil
		}
		p, ok := fields[id]
		if !ok {
			return false, nil
		}
		*p, err = t.integer(typ)
		return true, err
	})
}

// check bounds everything a page declares, before any of its bytes is read. limit is what the chunk has left.
func (h *header) check(limit int64) error {
	switch {
	case h.typ < 0:
		return safeio.Corruptf("a page has no type")
	case h.size < 0 || h.compressed < 0 || h.compressed > limit-h.length:
		return safeio.Corruptf("a page claims %d bytes, its column has %d left", h.compressed, limit-h.length)
	case h.typ != pageData && h.typ != pageDataV2 && h.typ != pageDictionary:
		return nil // skipped
	case h.values < 0 || h.values > maxValues:
		return safeio.Limitf("a page claims %d values, over the limit of %d", h.values, maxValues)
	case h.defBytes < 0 || h.repBytes < 0 || h.defBytes+h.repBytes > min(h.size, h.compressed):
		return safeio.Corruptf("the levels of a page (%d and %d bytes) are longer than the page", h.repBytes, h.defBytes)
	}
	return checkPageSize(h.compressed, h.size)
}

// page is a decompressed page.
type page struct {
	header
	data []byte // version 2: levels, then values
}

// readPage reads and decompresses the body of a page.
func readPage(r io.ReaderAt, off int64, h header, c *codec) (*page, error) {
	raw, err := safeio.ReadBytes(io.NewSectionReader(r, off+h.length, h.compressed), h.compressed)
	if err != nil {
		return nil, err
	}
	if h.crc >= 0 && int64(crc32.ChecksumIEEE(raw)) != h.crc {
		return nil, safeio.Corruptf("the checksum of a page is wrong")
	}
	levels := h.defBytes + h.repBytes
	use := c
	if h.plain {
		use = &codec{id: codecNone}
	}
	data := make([]byte, 0, h.size)
	data = append(data, raw[:levels]...)
	if h.size == levels && h.compressed == levels {
		return &page{h, data}, nil // nothing but levels
	}
	data, err = use.decode(data, raw[levels:], int(h.size-levels))
	if err != nil {
		return nil, err
	}
	return &page{h, data}, nil
}
