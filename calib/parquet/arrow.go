package parquet

import (
	"errors"
	"fmt"

	"github.com/apache/arrow/go/v17/arrow/memory"
	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"github.com/llmquant/quantize/formats/safeio"
)

// source hands proven pages to Arrow. It is a file.PageReader.
type source struct {
	pages *pages
	cur   file.Page
}

// Next fetches a page for Arrow. It reports no error itself: Arrow asks Err when there is no page.
func (s *source) Next() bool {
	s.cur = nil
	p := s.pages.next()
	if p == nil {
		return false
	}
	// Every page has memory of its own: the strings Arrow returns point into it and outlive the page.
	buf, n := memory.NewBufferBytes(p.data), int32(p.values)
	switch enc := pq.Encoding(p.encoding); p.typ {
	case pageDictionary:
		s.cur = file.NewDictionaryPage(buf, n, pq.Encodings.Plain)
	case pageData:
		s.cur = file.NewDataPageV1(buf, n, enc, pq.Encodings.RLE, pq.Encodings.RLE, int32(p.size))
	default:
		s.cur = file.NewDataPageV2(buf, n, 0, 0, enc, int32(p.defBytes), int32(p.repBytes), int32(p.size), false)
	}
	return true
}

func (s *source) Page() file.Page          { return s.cur }
func (s *source) Err() error               { return s.pages.err }
func (s *source) SetMaxPageHeaderSize(int) {}
func (s *source) Reset(pq.BufferedReader, int64, compress.Compression, *file.CryptoContext) {
}

// batch is how many levels Arrow decodes at a time.
const batch = 1024

// leafReader reads the entries of one column chunk: levels, and a value where the definition level is full.
type leafReader struct {
	leaf  *node
	group int
	src   *source
	rdr   file.ColumnChunkReader

	strings  []pq.ByteArray
	int32s   []int32
	int64s   []int64
	def, rep []int16

	n, i int   // entries of the batch, next entry
	v    int   // next value of the batch
	left int64 // entries of the chunk not yet in a batch
}

// leafReader prepares reading; nothing of the file is touched before the first fill.
func (f *File) leafReader(group int, leaf *node) *leafReader {
	l := &leafReader{leaf: leaf, group: group, src: &source{pages: f.pages(group, leaf)}, left: f.groups[group].chunks[leaf.leaf].values}
	l.def, l.rep = make([]int16, batch), make([]int16, batch)
	switch leaf.typ {
	case typeByteArray:
		l.strings = make([]pq.ByteArray, batch)
	case typeInt32:
		l.int32s = make([]int32, batch)
	case typeInt64:
		l.int64s = make([]int64, batch)
	}
	return l
}

func (l *leafReader) close() { l.src.pages.codec.close() }

// fill decodes the next batch. This is the boundary to Arrow: a panic in there becomes a corrupt file.
func (l *leafReader) fill() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = safeio.Corruptf("the values cannot be decoded: %v", p)
		}
		if err != nil {
			err = inChunk(l.group, l.leaf, err)
		}
	}()
	if l.rdr == nil {
		if l.rdr, err = l.open(); err != nil {
			return err
		}
	}
	var total int64
	var values int
	want := min(batch, l.left)
	switch r := l.rdr.(type) {
	case *file.ByteArrayColumnChunkReader:
		total, values, err = r.ReadBatch(want, l.strings, l.def, l.rep)
	case *file.Int32ColumnChunkReader:
		total, values, err = r.ReadBatch(want, l.int32s, l.def, l.rep)
	case *file.Int64ColumnChunkReader:
		total, values, err = r.ReadBatch(want, l.int64s, l.def, l.rep)
	}
	if err == nil {
		err = l.rdr.Err()
	}
	if err != nil {
		return corrupt(err)
	}
	return l.accept(int(total), values, int(want))
}

// accept checks what a batch returned against what its levels say.
func (l *leafReader) accept(total, values, want int) error {
	if total != want {
		return safeio.Corruptf("%d of %d values could be decoded", total, want)
	}
	l.n, l.i, l.v = total, 0, 0
	l.left -= int64(total)
	present := total
	if l.leaf.maxDef > 0 {
		present = 0
		for _, d := range l.def[:total] {
			if int(d) == l.leaf.maxDef {
				present++
			}
		}
	}
	if present != values {
		return safeio.Corruptf("%d values were decoded, %d are there", values, present)
	}
	return nil
}

// open makes Arrow's reader from the leaf alone. Arrow never sees the schema of the file.
func (l *leafReader) open() (file.ColumnChunkReader, error) {
	var n *schema.PrimitiveNode
	switch l.leaf.typ {
	case typeInt32:
		n = schema.NewInt32Node(l.leaf.name, pq.Repetition(l.leaf.repetition), -1)
	case typeInt64:
		n = schema.NewInt64Node(l.leaf.name, pq.Repetition(l.leaf.repetition), -1)
	default:
		n = schema.NewByteArrayNode(l.leaf.name, pq.Repetition(l.leaf.repetition), -1)
	}
	col := schema.NewColumn(n, int16(l.leaf.maxDef), int16(l.leaf.maxRep))
	r := file.NewColumnReader(col, l.src, memory.NewGoAllocator(), nil)
	if r == nil {
		return nil, fmt.Errorf("no reader for type %s", typeNames[l.leaf.typ])
	}
	return r, nil
}

// corrupt gives an error of Arrow a class; ours have one.
func corrupt(err error) error {
	for _, class := range []error{safeio.ErrCorrupt, safeio.ErrLimit, safeio.ErrUnsupported} {
		if errors.Is(err, class) {
			return err
		}
	}
	return safeio.Corruptf("%v", err)
}
