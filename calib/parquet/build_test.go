package parquet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// The builder writes files byte by byte, so that a test can spoil any field of them. A Thrift structure is a list of
// fields with Go values: int32, int64, bool, string, []byte (already encoded), st, or a list of one of them.
type (
	fld struct {
		id int
		v  any
	}
	st   []fld
	list []any
)

// set returns the structure with a value at a path of field ids and list positions; nil removes the field.
func set(tree any, v any, path ...int) any {
	if len(path) == 0 {
		return v
	}
	switch t := tree.(type) {
	case st:
		var out st
		found := false
		for _, f := range t {
			if f.id == path[0] {
				found = true
				if f.v = set(f.v, v, path[1:]...); f.v == nil {
					continue
				}
			}
			out = append(out, f)
		}
		if !found {
			out = append(out, fld{path[0], v})
		}
		return out
	case list:
		out := append(list(nil), t...)
		out[path[0]] = set(out[path[0]], v, path[1:]...)
		return out
	}
	panic(fmt.Sprintf("no path %v in %T", path, tree))
}

func encode(b *bytes.Buffer, v any) {
	switch v := v.(type) {
	case int32:
		b.Write(binary.AppendVarint(nil, int64(v)))
	case int64:
		b.Write(binary.AppendVarint(nil, v))
	case string:
		b.Write(binary.AppendUvarint(nil, uint64(len(v))))
		b.WriteString(v)
	case []byte:
		b.Write(v)
	case st:
		for _, f := range v {
			b.WriteByte(typeOf(f.v))
			b.Write(binary.AppendVarint(nil, int64(f.id)))
			if _, flag := f.v.(bool); !flag {
				encode(b, f.v)
			}
		}
		b.WriteByte(0)
	case list:
		elem := byte(tStruct)
		if len(v) > 0 {
			elem = typeOf(v[0])
		}
		b.WriteByte(15<<4 | elem)
		b.Write(binary.AppendUvarint(nil, uint64(len(v))))
		for _, x := range v {
			encode(b, x)
		}
	}
}

func typeOf(v any) byte {
	switch v := v.(type) {
	case bool:
		if v {
			return tTrue
		}
		return tFalse
	case int32:
		return tI32
	case int64:
		return tI64
	case string, []byte:
		return tBinary
	case list:
		return tList
	}
	return tStruct
}

func thriftBytes(v any) []byte {
	var b bytes.Buffer
	encode(&b, v)
	return b.Bytes()
}

// pageOf is a page with its header; body is what stands in the file.
type pageOf struct {
	header st
	body   []byte
}

// fileOf is a file of one column.
type fileOf struct {
	pages []pageOf
	meta  st // the footer; its offsets are for pages as built
	tail  func(file []byte) []byte
}

func (f fileOf) bytes() []byte {
	var b bytes.Buffer
	b.WriteString(magic)
	for _, p := range f.pages {
		encode(&b, p.header)
		b.Write(p.body)
	}
	meta := thriftBytes(f.meta)
	b.Write(meta)
	b.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(meta))))
	b.WriteString(magic)
	if f.tail != nil {
		return f.tail(b.Bytes())
	}
	return b.Bytes()
}

// Parts of pages.

func plainText(texts ...string) []byte {
	var b []byte
	for _, s := range texts {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	return b
}

// rleRun is a run of n times v in width bits.
func rleRun(n, v, width int) []byte {
	b := binary.AppendUvarint(nil, uint64(n)<<1)
	for i := 0; i < (width+7)/8; i++ {
		b = append(b, byte(v>>(8*i)))
	}
	return b
}

func withLength(b []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...)
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// compressBody compresses with a codec of the format.
func compressBody(codec int, body []byte) []byte {
	var b bytes.Buffer
	switch codec {
	case codecSnappy:
		return snappy.Encode(nil, body)
	case codecGzip:
		w := gzip.NewWriter(&b)
		w.Write(body)
		w.Close()
	case codecZstd:
		w, _ := zstd.NewWriter(&b)
		w.Write(body)
		w.Close()
	default:
		return body
	}
	return b.Bytes()
}

// dataPage is a version 1 page; body is compressed with the codec.
func dataPage(codec, values, encoding int, body []byte) pageOf {
	comp := compressBody(codec, body)
	return pageOf{st{{1, int32(pageData)}, {2, int32(len(body))}, {3, int32(len(comp))}, {5, st{
		{1, int32(values)}, {2, int32(encoding)}, {3, int32(encRLE)}, {4, int32(encRLE)},
	}}}, comp}
}

func dataPageV2(codec, values, encoding int, rep, def, body []byte) pageOf {
	comp := compressBody(codec, body)
	n := len(rep) + len(def)
	return pageOf{st{{1, int32(pageDataV2)}, {2, int32(n + len(body))}, {3, int32(n + len(comp))}, {8, st{
		{1, int32(values)}, {2, int32(0)}, {3, int32(values)}, {4, int32(encoding)}, {5, int32(len(def))}, {6, int32(len(rep))},
		{7, codec != codecNone},
	}}}, join(rep, def, comp)}
}

func dictPage(codec, values int, body []byte) pageOf {
	comp := compressBody(codec, body)
	return pageOf{st{{1, int32(pageDictionary)}, {2, int32(len(body))}, {3, int32(len(comp))}, {7, st{
		{1, int32(values)}, {2, int32(encPlain)},
	}}}, comp}
}

// Schemas: element lists in depth-first order.

func leafElem(name string, typ, repetition int) st {
	return st{{1, int32(typ)}, {3, int32(repetition)}, {4, name}}
}

func groupElem(name string, repetition, children int) st {
	return st{{3, int32(repetition)}, {4, name}, {5, int32(children)}}
}

var (
	textSchema = list{groupElem("schema", 0, 1), leafElem("text", typeByteArray, optional)}
	idsSchema  = list{groupElem("schema", 0, 1), groupElem("input_ids", optional, 1), groupElem("list", repeated, 1), leafElem("element", typeInt32, optional)}
)

// file assembles pages under a schema of one leaf.
func build(schema list, path list, typ, codec int, rows, values int64, pages ...pageOf) fileOf {
	size := int64(0)
	for _, p := range pages {
		size += int64(len(thriftBytes(p.header)) + len(p.body))
	}
	column := st{
		{1, int32(typ)}, {2, list{int32(encPlain)}}, {3, path}, {4, int32(codec)}, {5, values},
		{6, size}, {7, size}, {9, int64(len(magic))},
	}
	if len(pages) > 0 {
		if kind := pages[0].header[0].v; kind == int32(pageDictionary) {
			first := int64(len(thriftBytes(pages[0].header)) + len(pages[0].body))
			column = append(column[:7:7], fld{9, int64(len(magic)) + first}, fld{11, int64(len(magic))})
		}
	}
	meta := st{
		{1, int32(1)}, {2, schema}, {3, rows},
		{4, list{st{{1, list{st{{2, int64(4)}, {3, column}}}}, {2, size}, {3, rows}}}},
		{6, "builder of the tests"},
	}
	return fileOf{pages: pages, meta: meta}
}

// textFile is a sound file: four rows in two pages, one null.
func textFile(codec int) fileOf {
	return build(textSchema, list{"text"}, typeByteArray, codec, 4, 4,
		dataPage(codec, 3, encPlain, join(withLength(join(rleRun(1, 1, 1), rleRun(1, 0, 1), rleRun(1, 1, 1))), plainText("one", "two"))),
		dataPage(codec, 1, encPlain, join(withLength(rleRun(1, 1, 1)), plainText("three"))))
}

// dictFile is a sound file with a dictionary.
func dictFile(codec int) fileOf {
	return build(textSchema, list{"text"}, typeByteArray, codec, 5, 5,
		dictPage(codec, 3, plainText("a", "bb", "ccc")),
		dataPage(codec, 5, encRLEDict, join(withLength(rleRun(5, 1, 1)), []byte{2}, rleRun(2, 0, 2), rleRun(2, 2, 2), rleRun(1, 1, 2))))
}

// v2File is a sound file with a version 2 page.
func v2File(codec int) fileOf {
	return build(textSchema, list{"text"}, typeByteArray, codec, 3, 3,
		dataPageV2(codec, 3, encPlain, nil, join(rleRun(2, 1, 1), rleRun(1, 0, 1)), plainText("x", "yy")))
}

// idsFile is a sound file of lists: [1 2], null, [3].
func idsFile(codec int) fileOf {
	body := join(withLength([]byte{1<<1 | 1, 0b0010}), // repetition 0 1 0 0, bit-packed
		withLength(join(rleRun(2, 3, 2), rleRun(1, 0, 2), rleRun(1, 3, 2))),
		[]byte{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0})
	return build(idsSchema, list{"input_ids", "list", "element"}, typeInt32, codec, 3, 4, dataPage(codec, 4, encPlain, body))
}

func openBytes(data []byte) (*File, error) { return Open(bytes.NewReader(data), int64(len(data))) }

// TestBuilder makes sure that the files which the hostile ones are made from are sound.
func TestBuilder(t *testing.T) {
	for _, codec := range []int{codecNone, codecSnappy, codecGzip, codecZstd} {
		for _, c := range []struct {
			file fileOf
			want []any
		}{
			{textFile(codec), []any{"one", nil, "two", "three"}},
			{dictFile(codec), []any{"a", "a", "ccc", "ccc", "bb"}},
			{v2File(codec), []any{"x", "yy", nil}},
			{idsFile(codec), []any{[]any{1., 2.}, nil, []any{3.}}},
		} {
			f, err := openBytes(c.file.bytes())
			require.NoError(t, err)
			require.Equal(t, c.want, readColumn(t, f, f.Columns()[0]))
		}
	}
}
