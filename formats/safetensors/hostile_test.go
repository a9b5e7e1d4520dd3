package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safeio/safeiotest"
)

// hostile is one malformed (or barely legal) file. The name begins with the class that opening it must end in.
type hostile struct {
	name string
	data []byte
}

// file frames a header with its true length and appends n bytes of data.
func file(header string, n int) []byte { return framed(uint64(len(header)), header, n) }

func framed(claim uint64, header string, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, claim)
	return append(append(b, header...), make([]byte, n)...)
}

// one is a header with a single tensor "t" with these members.
func one(dtype, shape, offsets string) string {
	return fmt.Sprintf(`{"t":{"dtype":%s,"shape":%s,"data_offsets":%s}}`, dtype, shape, offsets)
}

// u8 is a header of U8 vectors with these data_offsets, named a, b, c, …
func u8(offsets ...[2]int) string {
	var parts []string
	for i, o := range offsets {
		parts = append(parts, fmt.Sprintf(`"%c":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}`, 'a'+i, max(0, o[1]-o[0]), o[0], o[1]))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// hostiles is the corpus. Every defect that was ever found in a reader of this format, ours or another, adds one.
func hostiles() []hostile {
	const u, four = `"U8"`, "[4]"
	cases := []hostile{
		// The length in front.
		{"corrupt-empty-file", nil},
		{"corrupt-seven-bytes", make([]byte, 7)},
		{"corrupt-length-only", framed(0, "", 0)},
		{"corrupt-length-zero-with-data", framed(0, "", 16)},
		{"corrupt-length-beyond-file", framed(1000, "{}", 0)},
		{"corrupt-length-one-beyond-file", framed(3, "{}", 0)},
		{"corrupt-length-max-uint64", framed(1<<64-1, "{}", 0)},
		{"corrupt-length-negative-as-signed", framed(1<<63, "{}", 0)},
		{"corrupt-length-wraps-when-added-to-eight", framed(1<<64-8, "{}", 0)},
		{"corrupt-length-cuts-the-header", framed(1, "{}", 0)},
		{"corrupt-big-endian-length", append([]byte{0, 0, 0, 0, 0, 0, 0, 2}, "{}"...)},
		{"limit-length-over-the-cap", nil}, // built sparse, see openHostile
		// The JSON around the tensors.
		{"ok-no-tensors", file("{}", 0)},
		{"ok-padded-with-spaces", file("{}      ", 0)},
		{"ok-padded-with-newline", file("{}\n", 0)},
		{"corrupt-leading-space", file(" {}", 0)},
		{"corrupt-leading-bom", file("\xef\xbb\xbf{}", 0)},
		{"corrupt-array-at-top", file("[]", 0)},
		{"corrupt-null-at-top", file("null", 0)},
		{"corrupt-text-at-top", file("hello", 0)},
		{"corrupt-trailing-garbage", file("{}x", 0)},
		{"corrupt-two-documents", file("{}{}", 0)},
		{"corrupt-trailing-nul", file("{}\x00", 0)},
		{"corrupt-unterminated", file(`{"t":`, 0)},
		{"corrupt-single-quotes", file(`{'t':1}`, 0)},
		{"corrupt-trailing-comma", file(`{"__metadata__":{},}`, 0)},
		{"corrupt-comment", file(`{/* */}`, 0)},
		{"corrupt-duplicate-tensor", file(`{"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"t":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`, 8)},
		{"corrupt-duplicate-tensor-by-escape", file(`{"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"\u0074":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`, 8)},
		{"corrupt-duplicate-metadata", file(`{"__metadata__":{},"__metadata__":{}}`, 0)},
		{"corrupt-duplicate-metadata-key", file(`{"__metadata__":{"a":"1","a":"2"}}`, 0)},
		{"corrupt-duplicate-dtype", file(`{"t":{"dtype":"U8","dtype":"I8","shape":[4],"data_offsets":[0,4]}}`, 4)},
		{"corrupt-duplicate-offsets", file(`{"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"data_offsets":[0,4]}}`, 4)},
		{"corrupt-invalid-utf8-name", file("{\"\xff\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4)},
		{"corrupt-names-equal-after-replacement", file("{\"\xfe\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"\xff\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}", 8)},
		{"corrupt-overlong-utf8-name", file("{\"\xc0\xaf\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4)},
		{"corrupt-half-surrogate-name", file(`{"\ud800":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4)},
		{"corrupt-control-character-in-name", file("{\"a\nb\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4)},
		{"limit-nesting-bomb", file(`{"__metadata__":`+strings.Repeat("[", 100_000), 0)},
		{"limit-object-nesting-bomb", file(strings.Repeat(`{"a":`, 100_000), 0)},
		// Metadata.
		{"ok-metadata", file(`{"__metadata__":{"format":"pt","π":"é"}}`, 0)},
		{"corrupt-metadata-null", file(`{"__metadata__":null}`, 0)},
		{"corrupt-metadata-array", file(`{"__metadata__":[]}`, 0)},
		{"corrupt-metadata-number", file(`{"__metadata__":{"a":1}}`, 0)},
		{"corrupt-metadata-nested", file(`{"__metadata__":{"a":{"b":"c"}}}`, 0)},
		{"corrupt-metadata-is-a-tensor", file(`{"__metadata__":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4)},
		// The description of a tensor.
		{"ok-scalar", file(one(u, "[]", "[0,1]"), 1)},
		{"ok-empty-tensor", file(one(u, "[0]", "[0,0]"), 0)},
		{"ok-many-ones", file(one(u, "[1,1,1,1,1,1,1,1]", "[0,1]"), 1)},
		{"corrupt-tensor-null", file(`{"t":null}`, 0)},
		{"corrupt-tensor-array", file(`{"t":["U8",[4],[0,4]]}`, 4)},
		{"corrupt-tensor-empty-object", file(`{"t":{}}`, 0)},
		{"corrupt-missing-dtype", file(`{"t":{"shape":[4],"data_offsets":[0,4]}}`, 4)},
		{"corrupt-missing-shape", file(`{"t":{"dtype":"U8","data_offsets":[0,4]}}`, 4)},
		{"corrupt-missing-offsets", file(`{"t":{"dtype":"U8","shape":[4]}}`, 4)},
		{"corrupt-unknown-key", file(`{"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"strides":[1]}}`, 4)},
		{"corrupt-upper-case-key", file(`{"t":{"DTYPE":"U8","shape":[4],"data_offsets":[0,4]}}`, 4)},
		{"corrupt-upper-case-key-beside", file(`{"t":{"dtype":"U8","DTYPE":"F64","shape":[4],"data_offsets":[0,4]}}`, 4)},
		{"corrupt-empty-name", file(`{"":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4)},
		{"limit-name-too-long", file(`{"`+strings.Repeat("n", 1025)+`":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4)},
		{"ok-name-just-short-enough", file(`{"`+strings.Repeat("n", 1024)+`":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4)},
		{"corrupt-dtype-unknown", file(one(`"U9"`, four, "[0,4]"), 4)},
		{"corrupt-dtype-lower-case", file(one(`"u8"`, four, "[0,4]"), 4)},
		{"corrupt-dtype-empty", file(one(`""`, four, "[0,4]"), 4)},
		{"corrupt-dtype-invalid-by-name", file(one(`"invalid"`, four, "[0,0]"), 0)},
		{"corrupt-dtype-number", file(one("1", four, "[0,4]"), 4)},
		{"corrupt-dtype-null", file(one("null", four, "[0,4]"), 4)},
		{"unsupported-dtype-f4", file(one(`"F4"`, "[8]", "[0,4]"), 4)},
		{"unsupported-dtype-fnuz", file(one(`"F8_E4M3FNUZ"`, four, "[0,4]"), 4)},
		{"corrupt-shape-null", file(one(u, "null", "[0,1]"), 1)},
		{"corrupt-shape-number", file(one(u, "4", "[0,4]"), 4)},
		{"corrupt-shape-string", file(one(u, `"4"`, "[0,4]"), 4)},
		{"corrupt-shape-nested", file(one(u, "[[4]]", "[0,4]"), 4)},
		{"corrupt-shape-negative", file(one(u, "[-4]", "[0,4]"), 4)},
		{"corrupt-shape-two-negatives", file(one(u, "[-2,-2]", "[0,4]"), 4)},
		{"corrupt-shape-minus-zero", file(one(u, "[-0]", "[0,0]"), 0)},
		{"corrupt-shape-fraction", file(one(u, "[4.0]", "[0,4]"), 4)},
		{"corrupt-shape-exponent", file(one(u, "[4e0]", "[0,4]"), 4)},
		{"corrupt-shape-leading-zero", file(one(u, "[04]", "[0,4]"), 4)},
		{"corrupt-shape-plus", file(one(u, "[+4]", "[0,4]"), 4)},
		{"corrupt-shape-hex", file(one(u, "[0x4]", "[0,4]"), 4)},
		{"corrupt-shape-over-int64", file(one(u, "[9223372036854775808]", "[0,4]"), 4)},
		{"corrupt-shape-over-uint64", file(one(u, "[18446744073709551620]", "[0,4]"), 4)},
		{"corrupt-shape-product-overflows-to-four", file(one(u, "[4611686018427387905,4]", "[0,4]"), 4)},
		{"corrupt-shape-product-overflows-to-zero", file(one(u, "[4294967296,4294967296]", "[0,0]"), 0)},
		{"corrupt-shape-bytes-overflow", file(one(`"F64"`, "[1152921504606846977]", "[0,8]"), 8)},
		{"limit-shape-nine-dimensions", file(one(u, "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1)},
		{"limit-shape-million-dimensions", file(one(u, "["+strings.Repeat("1,", 1_000_000)+"1]", "[0,1]"), 1)},
		{"corrupt-offsets-null", file(one(u, four, "null"), 4)},
		{"corrupt-offsets-one", file(one(u, four, "[4]"), 4)},
		{"corrupt-offsets-three", file(one(u, four, "[0,4,8]"), 4)},
		{"corrupt-offsets-strings", file(one(u, four, `["0","4"]`), 4)},
		{"corrupt-offsets-reversed", file(one(u, four, "[4,0]"), 4)},
		{"corrupt-offsets-negative", file(one(u, four, "[-4,0]"), 4)},
		{"corrupt-offsets-fraction", file(one(u, four, "[0,4.0]"), 4)},
		{"corrupt-offsets-fraction-of-an-empty-tensor", file(one(u, "[0]", "[0,0.0]"), 0)},
		{"corrupt-offsets-null-of-an-empty-tensor", file(one(u, "[0]", "[null,0]"), 0)},
		{"corrupt-offsets-over-int64", file(one(u, four, "[9223372036854775808,9223372036854775812]"), 4)},
		{"corrupt-offsets-max-int64", file(one(u, four, "[9223372036854775803,9223372036854775807]"), 4)},
		{"corrupt-offsets-shorter-than-shape", file(one(u, four, "[0,3]"), 3)},
		{"corrupt-offsets-longer-than-shape", file(one(u, four, "[0,5]"), 5)},
		{"corrupt-offsets-in-elements", file(one(`"F32"`, four, "[0,4]"), 16)},
		// Tensors against each other and the file.
		{"ok-out-of-order", file(u8([2]int{4, 8}, [2]int{0, 4}), 8)},
		{"ok-empty-between", file(u8([2]int{0, 4}, [2]int{4, 4}, [2]int{4, 8}), 8)},
		{"ok-empty-listed-last", file(u8([2]int{0, 4}, [2]int{4, 8}, [2]int{4, 4}), 8)},
		{"corrupt-empty-inside-another", file(u8([2]int{0, 4}, [2]int{2, 2}, [2]int{4, 8}), 8)},
		{"corrupt-overlap", file(u8([2]int{0, 4}, [2]int{3, 7}), 7)},
		{"corrupt-same-bytes-twice", file(u8([2]int{0, 4}, [2]int{0, 4}), 4)},
		{"corrupt-contained", file(u8([2]int{0, 8}, [2]int{2, 4}), 8)},
		{"corrupt-hole-in-front", file(u8([2]int{1, 5}), 5)},
		{"corrupt-hole-between", file(u8([2]int{0, 4}, [2]int{5, 9}), 9)},
		{"corrupt-hole-behind", file(u8([2]int{0, 4}), 5)},
		{"corrupt-data-without-tensors", file("{}", 1)},
		{"corrupt-last-tensor-truncated", file(u8([2]int{0, 4}, [2]int{4, 8}), 7)},
		{"corrupt-no-data", file(u8([2]int{0, 4}), 0)},
		{"corrupt-terabyte-tensor", file(one(u, "[1099511627776]", "[0,1099511627776]"), 4)},
		{"corrupt-amplification", file(u8(repeat([2]int{0, 4}, 26)...), 4)},
		// Other formats under this name.
		{"corrupt-pickle", append([]byte{0x80, 2, '}', 'q', 0}, make([]byte, 32)...)},
		{"corrupt-zip", append([]byte("PK\x03\x04\x14\x00\x00\x00"), make([]byte, 64)...)},
		{"corrupt-gguf", append([]byte("GGUF\x03\x00\x00\x00"), make([]byte, 64)...)},
		{"corrupt-git-lfs-pointer", []byte("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")},
		{"corrupt-html", []byte("<!DOCTYPE html><html><body>404 Not Found</body></html>")},
		{"corrupt-zeros", make([]byte, 4096)},
	}
	return cases
}

func repeat(o [2]int, n int) [][2]int {
	all := make([][2]int, n)
	for i := range all {
		all[i] = o
	}
	return all
}

var classes = map[string]error{"corrupt": safeio.ErrCorrupt, "limit": safeio.ErrLimit, "unsupported": safeio.ErrUnsupported}

func TestHostileFiles(t *testing.T) {
	dir := t.TempDir()
	cases := hostiles()
	require.GreaterOrEqual(t, len(cases), 80)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(dir, c.name+".safetensors")
			require.NoError(t, os.WriteFile(path, c.data, 0o644))
			if c.name == "limit-length-over-the-cap" { // a sparse file that really has that many bytes
				require.NoError(t, os.WriteFile(path, framed(100_000_001, "{}", 0), 0o644))
				require.NoError(t, os.Truncate(path, 100_000_009))
			}
			var f *File
			var err error
			start := time.Now()
			safeiotest.CheckAllocation(t, len(c.data), func() { f, err = Open(path, safeio.DefaultLimits()) })
			require.Less(t, time.Since(start), 20*time.Second)
			class, _, _ := strings.Cut(c.name, "-")
			if class == "ok" {
				require.NoError(t, err)
				require.NoError(t, f.Close())
				return
			}
			require.ErrorIs(t, err, classes[class])
			for other, sentinel := range classes {
				require.Equal(t, other == class, errors.Is(err, sentinel), "%v is of class %s only", err, class)
			}
			var e *safeio.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, path, e.Path)
		})
	}
}

// Every file cut short anywhere, or with any single byte behind it, is refused; no prefix of a model is a model.
func TestEveryTruncation(t *testing.T) {
	whole := file(u8([2]int{0, 4}, [2]int{4, 9}), 9)
	open := func(b []byte) error {
		_, err := New(bytes.NewReader(b), int64(len(b)), "x", safeio.DefaultLimits())
		return err
	}
	require.NoError(t, open(whole))
	for n := range whole {
		require.ErrorIs(t, open(whole[:n]), safeio.ErrCorrupt, "%d bytes", n)
	}
	require.ErrorIs(t, open(append(whole, 0)), safeio.ErrCorrupt)
}
