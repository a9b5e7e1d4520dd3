package calib

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
)

// TestFormats reads the same two documents from every kind of file.
func TestFormats(t *testing.T) {
	const a, b = "first \"one\" é", "second\nline"
	lines := `{"text":"first \"one\" é","n":1}` + "\n" + `{"n":2,"text":"second\nline"}` + "\n"
	array := `[ {"text": "first \"one\" \u00e9"} ,{"text":"second\nline"} ]` + "\n"
	for name, content := range map[string]string{
		"a.jsonl": lines, "a.ndjson": lines, "A.JSONL": lines,
		"crlf.jsonl":      strings.ReplaceAll(lines, "\n", "\r\n"),
		"bom.jsonl":       "\ufeff" + lines,
		"blank.jsonl":     "\n" + strings.ReplaceAll(lines, "\n", "\n \n\n"),
		"no-end.jsonl":    strings.TrimSuffix(lines, "\n"),
		"strings.jsonl":   `"first \"one\" é"` + "\n" + `"second\nline"`,
		"a.json":          array,
		"lines.json":      lines,
		"adjacent.json":   strings.ReplaceAll(lines, "\n", ""),
		"strings.json":    `["first \"one\" é","second\nline"]`,
		"a.jsonl.gz":      gz(lines),
		"a.jsonl.zst":     zst(lines),
		"a.json.gz":       gz(array),
		"members.json.gz": gz(array[:20]) + gz(array[20:]),
		"frames.json.zst": zst(array[:20]) + zst(array[20:]),
		"hidden.jsonl":    zst(lines), // compressed without saying so
	} {
		path := one(t, name, content)
		docs, files, err := documents(Options{}, path)
		require.NoError(t, err, name)
		require.Equal(t, []string{a, b}, texts(docs), name)
		sum := sha256.Sum256([]byte(content))
		require.Equal(t, []FileStat{{Name: name, SHA256: hex.EncodeToString(sum[:]), Bytes: int64(len(content)), Documents: 2}}, files, name)
	}
	for name, content := range map[string]string{"a.txt": "whole\nfile\n", "a.md": "whole\nfile\n", "a.txt.gz": gz("whole\nfile\n"), "bom.txt": "\ufeffwhole\nfile\n"} {
		docs, _, err := documents(Options{}, one(t, name, content))
		require.NoError(t, err, name)
		require.Equal(t, []string{"whole\nfile\n"}, texts(docs), name)
		require.Zero(t, docs[0].Row)
	}
}

func TestColumns(t *testing.T) {
	read := func(column, text string) ([]Document, []FileStat, error) {
		return documents(Options{Column: column}, one(t, "a.jsonl", text))
	}
	docs, _, err := read("", `{"prompt":"p","content":"c"}`)
	require.NoError(t, err)
	require.Equal(t, "c", docs[0].Text)
	docs, _, err = read("prompt", `{"prompt":"p","content":"c"}`)
	require.NoError(t, err)
	require.Equal(t, "p", docs[0].Text)
	docs, _, err = read("", `{"text":"t","input_ids":[1,2,3]}`)
	require.NoError(t, err)
	require.Equal(t, []int32{1, 2, 3}, docs[0].IDs)
	docs, _, err = read("meta.body", `{"meta":{"body":"in"}}`)
	require.NoError(t, err)
	require.Equal(t, "in", docs[0].Text)
	docs, _, err = read("meta.body", `{"meta.body":"flat","meta":{"body":"in"}}`)
	require.NoError(t, err)
	require.Equal(t, "flat", docs[0].Text)
	docs, _, err = read("", `{"messages":[{"role":"user","content":"x"}]}`)
	require.NoError(t, err)
	require.Equal(t, "x", docs[0].Messages[0].Content)
	docs, _, err = read("", `{"id":"1","conversations":[{"from":"human","value":"x"},{"from":"gpt","value":"y"}]}`)
	require.NoError(t, err)
	require.Equal(t, "assistant", docs[0].Messages[1].Role)
	docs, _, err = read("", `[5,6]`+"\n"+`[7]`)
	require.NoError(t, err)
	require.Equal(t, []int32{7}, docs[1].IDs)
	require.EqualValues(t, 2, docs[1].Row)

	// Rows without a value are counted, not dropped in silence.
	docs, files, err := read("text", `{"n":1}`+"\n"+`{"text":"a"}`+"\n"+`{"text":null}`+"\n"+`{"text":""}`+"\n"+`{"text":"b"}`)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, texts(docs))
	require.EqualValues(t, 3, files[0].Skipped)

	// Whoever wants to keep step with the file gets a document for each of them.
	docs, files, err = documents(Options{Column: "text", KeepEmpty: true},
		one(t, "a.jsonl", `{"text":"a"}`+"\n"+`{"text":null}`+"\n"+`{"text":""}`+"\n"+`{"n":1}`+"\n"+`{"text":"b"}`))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "", "", "", "b"}, texts(docs))
	require.EqualValues(t, 5, docs[4].Row)
	require.Zero(t, files[0].Skipped)

	for _, c := range []struct{ column, text, message string }{
		{"body", `{"a":1,"b":2}`, `there is no column "body"; the columns are: a, b`},
		{"", `{"a":1,"b":2}`, `none of the columns input_ids, text, content, prompt, messages, conversations, conversation is there; the columns are: a, b`},
		{"", `{}`, `the columns are: none`},
		{"", `{"text":5}`, "line 1: column text: a number is no document"},
		{"", `{"text":"a"}` + "\n" + `{"text":{"x":1}}`, "line 2: column text: an object is no document"},
		{"", `{"text":["a","b"]}`, "an array that holds a string is no document"},
		{"", `{"input_ids":[1.5]}`, "expected an integer, found a number 1.5"},
		{"", `{"input_ids":[-1]}`, "-1 is no token id"},
		{"", `{"input_ids":[4294967296]}`, "4294967296 is no token id"},
		{"", `{"messages":[{"role":"user"},3]}`, "a message is an object with role and content, not a number"},
		{"", `true`, "a boolean is no document"},
	} {
		_, _, err := read(c.column, c.text)
		require.ErrorContains(t, err, c.message, c.text)
		require.ErrorContains(t, err, "a.jsonl")
	}
	_, _, err = read("body", `{"a":1}`)
	var e *safeio.Error
	require.ErrorAs(t, err, &e)
	require.Contains(t, e.Hint, "--calib-column")
}

func TestParquet(t *testing.T) {
	docs, files, err := documents(Options{}, "../testdata/data/golm-calib.parquet")
	require.NoError(t, err)
	require.Len(t, docs, 602)
	data, err := os.ReadFile("../testdata/data/golm-calib.parquet")
	require.NoError(t, err)
	sum := sha256.Sum256(data)
	require.Equal(t, hex.EncodeToString(sum[:]), files[0].SHA256)
	require.EqualValues(t, len(data), files[0].Bytes)

	docs, _, err = documents(Options{}, "parquet/testdata/arrow-messages.parquet")
	require.NoError(t, err)
	require.Equal(t, "hello", docs[0].Messages[1].Content)
	docs, _, err = documents(Options{Column: "conversations"}, "parquet/testdata/arrow-messages.parquet")
	require.NoError(t, err)
	require.Equal(t, "user", docs[0].Messages[0].Role)
	docs, _, err = documents(Options{}, "parquet/testdata/polars.parquet")
	require.NoError(t, err)
	require.Equal(t, []int32{1, 2, 3}, docs[0].IDs, "input_ids come before text")
	_, _, err = documents(Options{Column: "nothing"}, "parquet/testdata/polars.parquet")
	require.ErrorContains(t, err, `there is no column "nothing"; the columns are: text, input_ids`)
	_, _, err = documents(Options{}, "parquet/testdata/arrow-struct.parquet")
	require.ErrorContains(t, err, "the columns are: doc, n, flags, nested")
	_, _, err = documents(Options{Column: "n"}, "parquet/testdata/arrow-struct.parquet")
	require.ErrorIs(t, err, safeio.ErrUnsupported)

	// By content, whatever the name; by name, when the content is something else.
	raw, err := os.ReadFile("parquet/testdata/arrow-none.parquet")
	require.NoError(t, err)
	docs, _, err = documents(Options{}, one(t, "blob", string(raw)))
	require.NoError(t, err)
	require.Equal(t, "first", docs[0].Text)
	_, _, err = documents(Options{}, one(t, "a.parquet", "no parquet at all"))
	require.ErrorIs(t, err, safeio.ErrCorrupt)
	_, _, err = documents(Options{}, one(t, "a.parquet.gz", gz(string(raw))))
	require.ErrorContains(t, err, "decompress it first")
}

func TestDirectories(t *testing.T) {
	dir := write(t, map[string]string{
		"b.jsonl": `"b"`, "a/2.txt": "a2", "a/1.txt": "a1", "README": "no", ".hidden.txt": "no", ".git/x.txt": "no",
		"c.json": `["c"]`, "dataset_info.json": `{"not":"data"}`, "z.bin": "no",
	})
	docs, files, err := documents(Options{}, dir)
	require.NoError(t, err)
	require.Equal(t, []string{"a1", "a2", "b", "c"}, texts(docs))
	require.Equal(t, "a/1.txt", files[0].Name)

	// Several inputs stay in the order given.
	docs, _, err = documents(Options{}, filepath.Join(dir, "c.json"), filepath.Join(dir, "a"), filepath.Join(dir, "b.jsonl"))
	require.NoError(t, err)
	require.Equal(t, []string{"c", "a1", "a2", "b"}, texts(docs))

	_, err = OpenSource([]string{write(t, map[string]string{"x.bin": "x"})}, Options{})
	require.ErrorContains(t, err, "the directory has no data files; known are .parquet, .jsonl")
	_, err = OpenSource([]string{filepath.Join(dir, "missing.txt")}, Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = OpenSource(nil, Options{})
	require.Error(t, err)
}

// TestRefused are files that cannot be read, with the class of error and what it says.
func TestRefused(t *testing.T) {
	corrupt, limit, unsupported := safeio.ErrCorrupt, safeio.ErrLimit, safeio.ErrUnsupported
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for name, c := range map[string]struct {
		name, content, message string
		class                  error
	}{
		"unknown ending":      {"a.csv", "x", "known are .parquet", unsupported},
		"pickle":              {"a.pkl", "\x80\x04", "known are .parquet", unsupported},
		"unknown in gzip":     {"a.csv.gz", gz("x"), "known are .parquet", unsupported},
		"empty":               {"a.txt", "", "the file is empty", corrupt},
		"not UTF-8":           {"a.txt", "ab\xffc", "byte 2 is 0xff", corrupt},
		"UTF-16":              {"a.txt", "\xff\xfea\x00", "byte 0 is 0xff", corrupt},
		"line not UTF-8":      {"a.jsonl", "\"a\"\n\"\xff\"", "line 2", corrupt},
		"line no JSON":        {"a.jsonl", "\"a\"\nhello", "line 2", corrupt},
		"two values a line":   {"a.jsonl", `"a" "b"`, "line 1", corrupt},
		"line cut off":        {"a.jsonl", `{"text":"a`, "line 1", corrupt},
		"repeated key":        {"a.jsonl", `{"text":"a","text":"b"}`, "line 1", corrupt},
		"deep line":           {"a.jsonl", deep, "line 1", limit},
		"deep json":           {"a.json", deep, "", limit},
		"json empty":          {"a.json", " \n", "holds no JSON value", corrupt},
		"array open":          {"a.json", `["a"`, "the array is not closed", corrupt},
		"array open at comma": {"a.json", `["a",`, "the array is not closed", corrupt},
		"array without comma": {"a.json", `["a" "b"]`, "a comma is missing", corrupt},
		"array extra comma":   {"a.json", `["a",]`, "element 2", corrupt},
		"text behind array":   {"a.json", `["a"]x`, "text follows the array", corrupt},
		"value open":          {"a.json", `{"text":"a"`, "ends inside of a value", corrupt},
		"array of numbers":    {"a.json", `[1,2]`, "a number is no document", unsupported},
		"gzip by name":        {"a.txt.gz", "plain", "neither gzip nor zstd", corrupt},
		"gzip cut off":        {"a.txt.gz", gz(strings.Repeat("abc", 999))[:30], "damaged after", corrupt},
		"gzip bad sum":        {"a.txt.gz", gz("hello")[:20] + "\x00\x00\x00\x00\x05\x00\x00\x00", "damaged after", corrupt},
		"gzip header":         {"a.txt.gz", "\x1f\x8b\xff\xff\xff\xff", "cannot be read", corrupt},
		"gzip trailing":       {"a.txt.gz", gz("hello") + "trailing", "damaged after", corrupt},
		"zstd cut off":        {"a.txt.zst", zst(strings.Repeat("abc", 999))[:14], "damaged after", corrupt},
		"zstd garbage":        {"a.txt.zst", "\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "", corrupt},
		"zstd huge window":    {"a.txt.zst", "\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00", "", corrupt},
		// gzip cannot exceed 1,032 to 1 and is held by the total, see TestLimits.
		"zstd bomb": {"a.jsonl.zst", zst(strings.Repeat("\n", 60<<20)), "decompress to more than", limit},
	} {
		path := one(t, c.name, c.content)
		var err error
		used := allocated(func() { _, _, err = documents(Options{}, path) })
		require.ErrorIs(t, err, c.class, "%s: %v", name, err)
		require.ErrorContains(t, err, c.message, name)
		require.ErrorContains(t, err, path, name)
		require.Less(t, used, uint64(8*len(c.content)+64<<20), name)
	}
}

// TestLimits sets small limits instead of writing large files.
func TestLimits(t *testing.T) {
	long := `"` + strings.Repeat("x", 300_000) + `"`
	for name, c := range map[string]struct {
		limits        Limits
		name, content string
	}{
		"line":           {Limits{Line: 100_000}, "a.jsonl", long},
		"element":        {Limits{Line: 100_000}, "a.json", "[" + long + "]"},
		"single value":   {Limits{Document: 100_000}, "a.json", long},
		"text":           {Limits{Document: 100_000}, "a.txt", long},
		"total":          {Limits{Total: 100_000}, "a.txt.gz", gz(long)},
		"ratio":          {Limits{Free: 1000, Ratio: 10}, "a.txt.gz", gz(long)},
		"ratio of zstd":  {Limits{Free: 1000, Ratio: 10}, "a.txt.zst", zst(long)},
		"ratio in lines": {Limits{Free: 1000, Ratio: 10}, "a.jsonl.gz", gz(long)},
	} {
		_, _, err := documents(Options{Limits: c.limits}, one(t, c.name, c.content))
		require.ErrorIs(t, err, safeio.ErrLimit, name)
		_, _, err = documents(Options{}, one(t, c.name, c.content))
		require.NoError(t, err, name)
	}
	// The total counts all inputs together.
	dir := write(t, map[string]string{"a.txt.gz": gz(long), "b.txt.gz": gz(long)})
	_, _, err := documents(Options{Limits: Limits{Total: 500_000}}, dir)
	require.ErrorIs(t, err, safeio.ErrLimit)
}

func TestStopAndCancel(t *testing.T) {
	path := one(t, "a.jsonl", strings.Repeat("\"x\"\n", 1000))
	s, err := OpenSource([]string{path, path}, Options{})
	require.NoError(t, err)
	n := 0
	for _, err := range s.Documents(context.Background()) {
		require.NoError(t, err)
		if n++; n == 10 {
			break
		}
	}
	require.Equal(t, 10, n)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err = OpenSource([]string{path}, Options{})
	require.NoError(t, err)
	for _, e := range s.Documents(ctx) {
		err = e
		cancel()
	}
	require.ErrorIs(t, err, context.Canceled)
	s, err = OpenSource([]string{"../testdata/data/golm-calib.parquet"}, Options{})
	require.NoError(t, err)
	for _, e := range s.Documents(ctx) {
		err = e
	}
	require.ErrorIs(t, err, context.Canceled)
}
