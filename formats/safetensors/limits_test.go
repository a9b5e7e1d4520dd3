package safetensors

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
)

// open reads a file in memory.
func openBytes(data []byte, limits safeio.Limits) (*File, error) {
	return New(bytes.NewReader(data), int64(len(data)), "test", limits)
}

// The number of tensors is limited, metadata apart.
func TestTensorLimit(t *testing.T) {
	limits := safeio.DefaultLimits()
	limits.Tensors = 2
	header := func(n int, metadata string) []byte {
		var rows []string
		for i := range n {
			rows = append(rows, fmt.Sprintf(`"t%d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}`, i, i, i+1))
		}
		text := "{" + metadata + strings.Join(rows, ",") + "}"
		return framed(uint64(len(text)), text, n)
	}
	const metadata = `"__metadata__":{"format":"pt"},`
	for _, m := range []string{"", metadata} {
		f, err := openBytes(header(2, m), limits)
		require.NoError(t, err)
		require.Len(t, f.Tensors(), 2)
		_, err = openBytes(header(3, m), limits)
		require.ErrorIs(t, err, safeio.ErrLimit)
		require.ErrorContains(t, err, "3 tensors, over the limit of 2")
	}
}

// A file without room for the header's length says so, and a tensor that is not there cannot be read, not even nothing of it.
func TestAbsentParts(t *testing.T) {
	for n := range lengthBytes {
		_, err := openBytes(make([]byte, n), safeio.DefaultLimits())
		require.ErrorIs(t, err, safeio.ErrCorrupt)
		require.ErrorContains(t, err, fmt.Sprintf("a file of %d bytes has no safetensors header", n))
	}
	text := `{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`
	f, err := openBytes(framed(uint64(len(text)), text, 1), safeio.DefaultLimits())
	require.NoError(t, err)
	require.NoError(t, f.ReadTensor("t", nil, 1))
	require.ErrorContains(t, f.ReadTensor("x", nil, 0), "no such tensor")
}

// A description lacks nothing and holds nothing of another kind, not even where a default would happen to fit.
func TestDescriptionIsWhole(t *testing.T) {
	for text, message := range map[string]string{
		`{"t":{"shape":[0],"data_offsets":[0,0]}}`:  "lacks dtype, shape or data_offsets",
		`{"t":{"dtype":"U8","shape":[0]}}`:          "lacks dtype, shape or data_offsets",
		`{"t":{"dtype":"U8","data_offsets":[0,1]}}`: "lacks dtype, shape or data_offsets",
		`{"t":{}}`:                               "lacks dtype, shape or data_offsets",
		`{"t":["dtype","shape","data_offsets"]}`: "not an object",
		`{"t":null}`:                             "not an object",
		`{"t":{"dtype":"U8","shape":[-1,0],"data_offsets":[0,0]}}`:                   "-1",
		`{"t":{"dtype":"U8","shape":[-1,-1],"data_offsets":[0,1]}}`:                  "-1",
		`{"t":{"dtype":"U8","shape":{"0":1},"data_offsets":[0,1]}}`:                  "not an array",
		`{"t":{"dtype":"U8","shape":[1],"data_offsets":{"begin":0,"end":1}}}`:        "data_offsets",
		`{"t":{"dtype":"U8","shape":[1],"data_offsets":"01"}}`:                       "data_offsets",
		`{"t":{"dtype":"U8","shape":[1],"data_offsets":[0]}}`:                        "data_offsets",
		`{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}}`:                    "data_offsets",
		`{"t":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}}`:                     "data_offsets",
		`{"t":{"dtype":"U8","shape":[0],"data_offsets":[1,0]}}`:                      "data_offsets",
		`{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1]}}`:        "unknown key",
		`{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"data_offsets":[0,1]}}`: "data_offsets",
	} {
		_, err := openBytes(framed(uint64(len(text)), text, 1), safeio.DefaultLimits())
		require.ErrorIs(t, err, safeio.ErrCorrupt, text)
		require.ErrorContains(t, err, message, text)
	}
}
