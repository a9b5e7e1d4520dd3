package parquet

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
)

// Paths into the footer of a built file.
var (
	rowsAt   = []int{3}
	groupsAt = []int{4}
	groupAt  = []int{4, 0}
	chunkAt  = append(groupAt, 1, 0)
	columnAt = append(chunkAt, 3)
)

func at(path []int, more ...int) []int { return append(append([]int(nil), path...), more...) }

// spoil changes one field of a sound file's footer.
func spoil(f fileOf, v any, path ...int) fileOf {
	f.meta = set(f.meta, v, path...).(st)
	return f
}

// spoilPage changes one field of a page header, keeping the chunk's size right.
func spoilPage(f fileOf, page int, v any, path ...int) fileOf {
	pages := append([]pageOf(nil), f.pages...)
	before := len(thriftBytes(pages[page].header))
	pages[page].header = set(pages[page].header, v, path...).(st)
	grown := len(thriftBytes(pages[page].header)) - before
	f.pages = pages
	size := f.meta[3].v.(list)[0].(st)[1].v.(int64) + int64(grown)
	return spoil(f, size, at(columnAt, 7)...)
}

func withTail(f fileOf, tail func([]byte) []byte) fileOf { f.tail = tail; return f }

// onePage is a file of a single page of text with the given body behind one run of definition levels.
func onePage(codec, values, encoding int, body []byte) fileOf {
	return build(textSchema, list{"text"}, typeByteArray, codec, int64(values), int64(values),
		dataPage(codec, values, encoding, join(withLength(rleRun(values, 1, 1)), body)))
}

func nested(depth int) list {
	out := list{groupElem("schema", 0, 1)}
	for i := range depth {
		out = append(out, groupElem(fmt.Sprint("g", i), required, 1))
	}
	return append(out, leafElem("text", typeByteArray, required))
}

func deltaHead(block, minis, total, first uint64) []byte {
	var b []byte
	for _, v := range []uint64{block, minis, total, first << 1} {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// hostileFiles are files with one defect each and the class of error it must give. The name says what is wrong.
func hostileFiles() map[string]struct {
	file  fileOf
	class error
} {
	text, dict, v2, ids := textFile(codecNone), dictFile(codecSnappy), v2File(codecZstd), idsFile(codecNone)
	huge := int64(1) << 40
	type c = struct {
		file  fileOf
		class error
	}
	corrupt, limit, unsupported := safeio.ErrCorrupt, safeio.ErrLimit, safeio.ErrUnsupported
	return map[string]c{
		"footer-length-over-file": {withTail(text, func(b []byte) []byte { binary.LittleEndian.PutUint32(b[len(b)-8:], 1<<31); return b }), corrupt},
		"footer-length-zero":      {withTail(text, func(b []byte) []byte { binary.LittleEndian.PutUint32(b[len(b)-8:], 0); return b }), corrupt},
		"footer-shifted":          {withTail(text, func(b []byte) []byte { binary.LittleEndian.PutUint32(b[len(b)-8:], 50); return b }), corrupt},
		"no-magic-in-front":       {withTail(text, func(b []byte) []byte { b[0] = 'X'; return b }), corrupt},
		"no-magic-at-end":         {withTail(text, func(b []byte) []byte { b[len(b)-1] = 'X'; return b }), corrupt},
		"cut-off":                 {withTail(text, func(b []byte) []byte { return b[:len(b)/2] }), corrupt},
		"empty-file":              {withTail(text, func(b []byte) []byte { return nil }), corrupt},
		"magic-alone":             {withTail(text, func(b []byte) []byte { return []byte("PAR1") }), corrupt},
		"encrypted-footer":        {withTail(text, func(b []byte) []byte { return append(b[:len(b)-4], "PARE"...) }), unsupported},
		"encryption-algorithm":    {spoil(text, st{{1, st{}}}, 8), unsupported},
		"encrypted-column":        {spoil(text, st{{1, st{}}}, at(chunkAt, 8)...), unsupported},
		"external-column":         {spoil(text, "/etc/passwd", at(chunkAt, 1)...), unsupported},

		"schema-missing":           {spoil(text, nil, 2), corrupt},
		"schema-empty":             {spoil(text, list{}, 2), corrupt},
		"schema-root-is-leaf":      {spoil(text, list{leafElem("x", typeByteArray, 0)}, 2), corrupt},
		"schema-too-few-elements":  {spoil(text, list{groupElem("s", 0, 2), leafElem("text", typeByteArray, 1)}, 2), corrupt},
		"schema-left-over":         {spoil(text, list{groupElem("s", 0, 1), leafElem("text", typeByteArray, 1), leafElem("y", 1, 1)}, 2), corrupt},
		"schema-children-huge":     {spoil(text, list{groupElem("s", 0, math.MaxInt32), leafElem("text", typeByteArray, 1)}, 2), corrupt},
		"schema-children-negative": {spoil(text, list{groupElem("s", 0, -1)}, 2), corrupt},
		"schema-unknown-type":      {spoil(text, list{groupElem("s", 0, 1), leafElem("text", 99, 1)}, 2), corrupt},
		"schema-negative-type":     {spoil(text, list{groupElem("s", 0, 1), leafElem("text", -5, 1)}, 2), corrupt},
		"schema-bad-repetition":    {spoil(text, list{groupElem("s", 0, 1), leafElem("text", typeByteArray, 7)}, 2), corrupt},
		"schema-unnamed":           {spoil(text, list{groupElem("s", 0, 1), st{{1, int32(typeByteArray)}, {3, int32(1)}}}, 2), corrupt},
		"schema-name-not-utf8":     {spoil(text, list{groupElem("s", 0, 1), leafElem("\xff", typeByteArray, 1)}, 2), corrupt},
		"schema-name-long":         {spoil(text, list{groupElem("s", 0, 1), leafElem(strings.Repeat("n", 5000), typeByteArray, 1)}, 2), corrupt},
		"schema-twins":             {spoil(text, list{groupElem("s", 0, 2), leafElem("text", typeByteArray, 1), leafElem("text", typeByteArray, 1)}, 2), corrupt},
		"schema-deep":              {spoil(text, nested(60), 2), corrupt},
		"schema-type-and-children": {spoil(text, list{groupElem("s", 0, 1), append(leafElem("text", typeByteArray, 1), fld{5, int32(1)})}, 2), corrupt},

		"rows-negative":          {spoil(text, int64(-1), at(groupAt, 3)...), corrupt},
		"rows-differ":            {spoil(text, int64(9), rowsAt...), corrupt},
		"rows-not-values":        {spoil(spoil(text, int64(7), at(groupAt, 3)...), int64(7), rowsAt...), corrupt},
		"groups-before-schema":   {fileOf{meta: st{{4, text.meta[3].v}, {2, textSchema}, {3, int64(4)}}}, corrupt},
		"groups-not-structs":     {spoil(text, list{int64(1)}, groupsAt...), corrupt},
		"columns-missing":        {spoil(text, list{}, at(groupAt, 1)...), corrupt},
		"columns-too-many":       {spoil(text, list{text.meta[3].v.(list)[0].(st)[0].v.(list)[0], text.meta[3].v.(list)[0].(st)[0].v.(list)[0]}, at(groupAt, 1)...), corrupt},
		"column-without-meta":    {spoil(text, nil, columnAt...), corrupt},
		"column-other-type":      {spoil(text, int32(typeInt64), at(columnAt, 1)...), corrupt},
		"column-other-path":      {spoil(text, list{"other"}, at(columnAt, 3)...), corrupt},
		"column-long-path":       {spoil(text, list{"text", "x"}, at(columnAt, 3)...), corrupt},
		"column-values-negative": {spoil(text, int64(-4), at(columnAt, 5)...), corrupt},
		"column-offset-negative": {spoil(text, int64(-4), at(columnAt, 9)...), corrupt},
		"column-offset-zero":     {spoil(text, int64(0), at(columnAt, 9)...), corrupt},
		"column-offset-far":      {spoil(text, huge, at(columnAt, 9)...), corrupt},
		"column-size-huge":       {spoil(text, huge, at(columnAt, 7)...), corrupt},
		"column-size-wraps":      {spoil(text, int64(math.MaxInt64), at(columnAt, 7)...), corrupt},
		"column-size-negative":   {spoil(text, int64(-1), at(columnAt, 7)...), corrupt},
		"column-size-short":      {spoil(text, int64(20), at(columnAt, 7)...), corrupt},
		"codec-lzo":              {spoil(text, int32(3), at(columnAt, 4)...), unsupported},
		"codec-lz4":              {spoil(text, int32(7), at(columnAt, 4)...), unsupported},
		"codec-unknown":          {spoil(text, int32(77), at(columnAt, 4)...), unsupported},
		"codec-other":            {spoil(text, int32(codecZstd), at(columnAt, 4)...), corrupt},

		"list-count-huge":           {withFooter(append([]byte{0x15, 2, 0x19, 0xfc}, bytes.Repeat([]byte{0xff}, 4)...), 0x7f), corrupt},
		"string-length-huge":        {withFooter(binary.AppendUvarint([]byte{0x68}, 1<<62)), corrupt},
		"varint-endless":            {withFooter([]byte{0x15}, bytes.Repeat([]byte{0xff}, 30)...), corrupt},
		"structures-endless":        {withFooter(nil, bytes.Repeat([]byte{0x1c}, 5000)...), corrupt},
		"lists-endless":             {withFooter([]byte{0x19}, bytes.Repeat([]byte{0x19}, 5000)...), corrupt},
		"field-twice":               {withFooter([]byte{0x15, 2, 0x05, 2, 2, 0}), corrupt},
		"field-type-unknown":        {withFooter([]byte{0x1f, 0}), corrupt},
		"integer-wrong-type":        {spoil(text, "four", rowsAt...), corrupt},
		"page-type-missing":         {spoilPage(text, 0, nil, 1), corrupt},
		"page-size-negative":        {spoilPage(text, 0, int32(-1), 2), corrupt},
		"page-size-over-chunk":      {spoilPage(text, 0, int32(math.MaxInt32), 3), corrupt},
		"page-uncompressed-differs": {spoilPage(text, 0, int32(20), 2), corrupt},
		"page-claims-gigabytes":     {spoilPage(textFile(codecZstd), 0, int32(2000<<20), 2), limit},
		"page-claims-ratio":         {spoilPage(textFile(codecGzip), 0, int32(60<<20), 2), limit},
		"page-header-missing":       {spoilPage(text, 0, nil, 5), corrupt},
		"page-two-headers":          {spoilPage(text, 0, st{{1, int32(1)}, {2, int32(0)}}, 7), corrupt},
		"page-values-negative":      {spoilPage(text, 0, int32(-3), 5, 1), limit},
		"page-values-huge":          {spoilPage(text, 0, int32(math.MaxInt32), 5, 1), limit},
		"page-values-too-many":      {spoilPage(text, 0, int32(5), 5, 1), corrupt},
		"page-values-too-few":       {spoilPage(text, 0, int32(2), 5, 1), corrupt},
		"page-levels-bit-packed":    {spoilPage(text, 0, int32(4), 5, 3), unsupported},
		"page-encoding-unknown":     {spoilPage(text, 0, int32(55), 5, 2), unsupported},
		"page-encoding-delta-bytes": {spoilPage(text, 0, int32(encDeltaBytes), 5, 2), unsupported},
		"page-checksum-wrong":       {spoilPage(text, 0, int32(12345), 4), corrupt},
		"dictionary-missing":        {onePage(codecNone, 2, encRLEDict, join([]byte{1}, rleRun(2, 0, 1))), corrupt},
		"dictionary-twice":          {fileOf{}, nil}, // replaced below
		"dictionary-behind":         {fileOf{}, nil},
		"dictionary-too-few":        {spoilPage(dict, 0, int32(9), 7, 1), corrupt},
		"dictionary-huge-count":     {spoilPage(dict, 0, int32(math.MaxInt32), 7, 1), limit},
		"dictionary-encoding":       {spoilPage(dict, 0, int32(encDelta), 7, 2), unsupported},
		"v2-levels-over-page":       {spoilPage(v2, 0, int32(math.MaxInt32), 8, 5), corrupt},
		"v2-levels-negative":        {spoilPage(v2, 0, int32(-1), 8, 6), corrupt},
		"v2-not-compressed":         {spoilPage(v2, 0, false, 8, 7), corrupt},
		"ids-levels-end":            {spoilPage(ids, 0, int32(400), 5, 1), corrupt},
	}
}

// withFooter is a file whose footer is these bytes.
func withFooter(b []byte, more ...byte) fileOf {
	return fileOf{tail: func([]byte) []byte {
		b = append(append([]byte(nil), b...), more...)
		out := append([]byte(magic), b...)
		out = binary.LittleEndian.AppendUint32(out, uint32(len(b)))
		return append(out, magic...)
	}}
}

// hostileContent are files whose headers are sound and whose pages are not.
func hostileContent() map[string]struct {
	file  fileOf
	class error
} {
	type c = struct {
		file  fileOf
		class error
	}
	corrupt, limit := safeio.ErrCorrupt, safeio.ErrLimit
	levels := func(l []byte, n int) fileOf {
		return build(textSchema, list{"text"}, typeByteArray, codecNone, int64(n), int64(n), dataPage(codecNone, n, encPlain, join(withLength(l), plainText("a", "b", "c"))))
	}
	dictOf := func(dict pageOf, n int, index []byte) fileOf {
		return build(textSchema, list{"text"}, typeByteArray, codecNone, int64(n), int64(n), dict, dataPage(codecNone, n, encRLEDict, join(withLength(rleRun(n, 1, 1)), index)))
	}
	delta := func(n int, body []byte) fileOf {
		return build(list{groupElem("s", 0, 1), leafElem("input_ids", typeInt32, repeated)}, list{"input_ids"}, typeInt32, codecNone, 1, int64(n),
			dataPage(codecNone, n, encDelta, join(withLength(join(rleRun(1, 0, 1), rleRun(n-1, 1, 1))), withLength(rleRun(n, 1, 1)), body)))
	}
	return map[string]c{
		"levels-missing":            {onePageRaw(nil), corrupt},
		"levels-over-page":          {onePageRaw([]byte{255, 255, 255, 127, 1}), corrupt},
		"levels-end-early":          {levels(rleRun(2, 1, 1), 3), corrupt},
		"levels-over-maximum":       {levels(rleRun(3, 3, 8), 3), corrupt},
		"levels-empty-run":          {levels([]byte{0, 1}, 3), corrupt},
		"levels-packed-short":       {levels([]byte{99<<1 | 1, 0xff}, 30), corrupt},
		"levels-endless-run":        {levels(binary.AppendUvarint(nil, math.MaxUint64), 3), corrupt},
		"text-ends-early":           {onePage(codecNone, 5, encPlain, plainText("a", "b")), corrupt},
		"text-length-over-page":     {onePage(codecNone, 1, encPlain, []byte{255, 255, 255, 127, 'a'}), corrupt},
		"text-length-negative":      {onePage(codecNone, 1, encPlain, []byte{255, 255, 255, 255, 'a'}), corrupt},
		"text-no-length":            {onePage(codecNone, 1, encPlain, []byte{1, 0}), corrupt},
		"index-over-dictionary":     {dictOf(dictPage(codecNone, 2, plainText("a", "b")), 3, join([]byte{2}, rleRun(3, 3, 2))), corrupt},
		"index-in-empty-dictionary": {dictOf(dictPage(codecNone, 0, nil), 3, join([]byte{1}, rleRun(3, 0, 1))), corrupt},
		"index-width-64":            {dictOf(dictPage(codecNone, 1, plainText("a")), 3, join([]byte{64}, rleRun(3, 0, 64))), corrupt},
		"index-missing":             {dictOf(dictPage(codecNone, 1, plainText("a")), 3, nil), corrupt},
		"index-ends-early":          {dictOf(dictPage(codecNone, 1, plainText("a")), 3, join([]byte{1}, rleRun(2, 0, 1))), corrupt},
		"dictionary-ends-early":     {dictOf(dictPage(codecNone, 3, plainText("a")), 3, join([]byte{2}, rleRun(3, 0, 2))), corrupt},
		"snappy-own-length":         {rawBody(codecSnappy, 30, append(binary.AppendUvarint(nil, 1<<32-1), 1, 2, 3)), corrupt},
		"snappy-garbage":            {rawBody(codecSnappy, 30, append([]byte{30}, bytes.Repeat([]byte{0xfe}, 20)...)), corrupt},
		"gzip-garbage":              {rawBody(codecGzip, 30, bytes.Repeat([]byte{7}, 40)), corrupt},
		"gzip-longer":               {rawBody(codecGzip, 30, compressBody(codecGzip, make([]byte, 31))), corrupt},
		"gzip-shorter":              {rawBody(codecGzip, 30, compressBody(codecGzip, make([]byte, 29))), corrupt},
		"gzip-bomb":                 {rawBody(codecGzip, 30, compressBody(codecGzip, make([]byte, 50<<20))), corrupt},
		"zstd-garbage":              {rawBody(codecZstd, 30, bytes.Repeat([]byte{9}, 40)), corrupt},
		"zstd-bomb":                 {rawBody(codecZstd, 30, compressBody(codecZstd, make([]byte, 200<<20))), corrupt},
		"zstd-claims-8-gib":         {rawBody(codecZstd, 30, []byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0}), corrupt},
		"zstd-window-huge":          {rawBody(codecZstd, 30, []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf8, 1, 0, 0}), corrupt},
		"brotli-garbage":            {rawBody(codecBrotli, 30, bytes.Repeat([]byte{0xff}, 40)), corrupt},
		"delta-block-zero":          {delta(100, deltaHead(0, 4, 100, 1)), corrupt},
		"delta-block-huge":          {delta(100, deltaHead(1<<40, 4, 100, 1)), corrupt},
		"delta-miniblocks-huge":     {delta(100, deltaHead(128, 1<<40, 100, 1)), corrupt},
		"delta-miniblocks-zero":     {delta(100, deltaHead(128, 0, 100, 1)), corrupt},
		"delta-total-huge":          {delta(100, deltaHead(128, 4, 1<<40, 1)), corrupt},
		"delta-width-over-type":     {delta(100, join(deltaHead(128, 4, 100, 1), []byte{0, 200, 200, 200, 200})), corrupt},
		"delta-ends-early":          {delta(100, join(deltaHead(128, 4, 100, 1), []byte{0, 8, 8, 8, 8, 1, 2})), corrupt},
		"delta-id-negative":         {delta(2, join(deltaHead(128, 4, 2, 0), []byte{1, 0, 0, 0, 0})), corrupt},
		"delta-length-negative":     {onePage(codecNone, 2, encDeltaLength, join(deltaHead(128, 4, 2, 0), []byte{1, 0, 0, 0, 0})), corrupt},
		"delta-length-over-page":    {onePage(codecNone, 1, encDeltaLength, deltaHead(128, 4, 1, 1<<30)), corrupt},
		"delta-length-many":         {onePage(codecNone, 5<<20, encDeltaLength, deltaHead(128, 4, 5<<20, 0)), limit},
		"nulls-without-end":         {nullFile(1000), limit},
		"row-begins-in-list":        {idsRaw(join(rleRun(2, 1, 1)), rleRun(2, 3, 2), 1), corrupt},
		"empty-list-goes-on":        {idsRaw(join(rleRun(1, 0, 1), rleRun(1, 1, 1)), join(rleRun(1, 3, 2), rleRun(1, 0, 2)), 1), corrupt},
		"null-id":                   {idsRaw(rleRun(2, 0, 1), join(rleRun(1, 3, 2), rleRun(1, 2, 2)), 2), corrupt},
		"fewer-rows":                {idsRaw(join(rleRun(1, 0, 1), rleRun(1, 1, 1)), rleRun(2, 3, 2), 2), corrupt},
		"more-rows":                 {idsRaw(rleRun(2, 0, 1), rleRun(2, 3, 2), 1), corrupt},
	}
}

// onePageRaw is a text page of one value with this body.
func onePageRaw(body []byte) fileOf {
	return build(textSchema, list{"text"}, typeByteArray, codecNone, 1, 1, dataPage(codecNone, 1, encPlain, body))
}

// rawBody is a page whose compressed bytes are given.
func rawBody(codec, size int, body []byte) fileOf {
	p := dataPage(codecNone, 1, encPlain, body)
	p.header = set(p.header, int32(size), 2).(st)
	return build(textSchema, list{"text"}, typeByteArray, codec, 1, 1, p)
}

// idsRaw is a page of two list entries.
func idsRaw(rep, def []byte, rows int64) fileOf {
	return build(idsSchema, list{"input_ids", "list", "element"}, typeInt32, codecNone, rows, 2,
		dataPage(codecNone, 2, encPlain, join(withLength(rep), withLength(def), make([]byte, 8))))
}

// nullFile claims millions of nulls in each of many small pages.
func nullFile(pages int) fileOf {
	const per = 10 << 20
	p := dataPage(codecNone, per, encPlain, withLength(rleRun(per, 0, 1)))
	all := make([]pageOf, pages)
	for i := range all {
		all[i] = p
	}
	return build(textSchema, list{"text"}, typeByteArray, codecNone, int64(pages)*per, int64(pages)*per, all...)
}

// readAll reads everything there is to read and returns the first error.
func readAll(data []byte) error {
	f, err := openBytes(data)
	if err != nil {
		return err
	}
	for _, c := range f.Columns() {
		if c.Kind == Other {
			err = c.Err()
			continue
		}
		for _, err := range f.Read(context.Background(), c) {
			if err != nil {
				return err
			}
		}
	}
	return err
}

// allocated runs f and returns the bytes it allocated in all.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestHostile(t *testing.T) {
	cases := hostileFiles()
	for name, c := range hostileContent() {
		cases[name] = c
	}
	text, dict := textFile(codecNone), dictFile(codecNone)
	twice, behind := dict, dict
	twice.pages = []pageOf{dict.pages[0], dict.pages[0], dict.pages[1]}
	behind.pages = []pageOf{text.pages[0], dict.pages[0], dict.pages[1]}
	for name, f := range map[string]fileOf{"dictionary-twice": twice, "dictionary-behind": behind} {
		rebuilt := build(textSchema, list{"text"}, typeByteArray, codecNone, 8, 8, f.pages...)
		cases[name] = struct {
			file  fileOf
			class error
		}{rebuilt, safeio.ErrCorrupt}
	}
	require.Greater(t, len(cases), 110)
	for name, c := range cases {
		data := c.file.bytes()
		start := time.Now()
		var err error
		used := allocated(func() { err = readAll(data) })
		require.ErrorIs(t, err, c.class, "%s: %v", name, err)
		require.Less(t, used, uint64(8*len(data)+64<<20), "%s allocates", name)
		t.Logf("%-28s %8d bytes %9d allocated %6v  %v", name, len(data), used, time.Since(start).Round(time.Millisecond), err)
	}
}

// TestChecksum accepts the right one.
func TestChecksum(t *testing.T) {
	f := textFile(codecNone)
	f = spoilPage(f, 0, int32(crc32.ChecksumIEEE(f.pages[0].body)), 4)
	require.NoError(t, readAll(f.bytes()))
}

// TestRowBounds keeps what repeats for free from growing without end: a long dictionary entry said a thousand times,
// a list of the same id.
func TestRowBounds(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	schema := list{groupElem("s", 0, 1), groupElem("messages", optional, 1), groupElem("list", repeated, 1), groupElem("element", optional, 2),
		leafElem("role", typeByteArray, optional), leafElem("content", typeByteArray, optional)}
	n := 1000
	page := func() []pageOf {
		return []pageOf{dictPage(codecNone, 1, plainText(long)), dataPage(codecNone, n, encRLEDict,
			join(withLength(join(rleRun(1, 0, 1), rleRun(n-1, 1, 1))), withLength(rleRun(n, 4, 3)), []byte{1}, rleRun(n, 0, 1)))}
	}
	f := build(schema, list{"messages", "list", "element", "role"}, typeByteArray, codecNone, 1, int64(n), append(page(), page()...)...)
	half := int64(0)
	for _, p := range page() {
		half += int64(len(thriftBytes(p.header)) + len(p.body))
	}
	role := f.meta[3].v.(list)[0].(st)[0].v.(list)[0].(st)
	role = set(role, half, 3, 7).(st)
	content := set(set(set(role, list{"messages", "list", "element", "content"}, 3, 3), half+4, 3, 11), half+4+int64(len(thriftBytes(page()[0].header))+len(page()[0].body)), 3, 9)
	f = spoil(f, list{role, content}, at(groupAt, 1)...)
	err := readAll(f.bytes())
	require.ErrorIs(t, err, safeio.ErrLimit)
	require.ErrorContains(t, err, "a conversation has more than")

	n = 9 << 20
	ids := build(list{groupElem("s", 0, 1), leafElem("input_ids", typeInt32, repeated)}, list{"input_ids"}, typeInt32, codecNone, 1, int64(n),
		dictPage(codecNone, 1, []byte{5, 0, 0, 0}), dataPage(codecNone, n, encRLEDict,
			join(withLength(join(rleRun(1, 0, 1), rleRun(n-1, 1, 1))), withLength(rleRun(n, 1, 1)), []byte{1}, rleRun(n, 0, 1))))
	require.ErrorContains(t, readAll(ids.bytes()), "a row has more than")
}

// FuzzRead: whatever passes the checks here neither kills nor hangs Arrow, and memory stays bounded by the input.
func FuzzRead(f *testing.F) {
	for _, codec := range []int{codecNone, codecSnappy, codecGzip, codecZstd} {
		for _, file := range []fileOf{textFile(codec), dictFile(codec), v2File(codec), idsFile(codec)} {
			f.Add(file.bytes())
		}
	}
	for _, c := range hostileContent() {
		if data := c.file.bytes(); len(data) < 4096 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		start := time.Now()
		used := allocated(func() { _ = readAll(data) })
		if used > uint64(64<<20+64*len(data)) {
			t.Errorf("%d bytes of input allocate %d", len(data), used)
		}
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("%d bytes of input take %v", len(data), d)
		}
	})
}
