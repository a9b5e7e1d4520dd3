package tokenizer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
)

// decodeWith builds the decoder section given as JSON and applies it.
func decodeWith(t *testing.T, spec string, tokens ...string) string {
	t.Helper()
	v, err := safeio.ParseJSON(spec)
	require.NoError(t, err)
	p := &parser{}
	require.NoError(t, p.readDecoder(v), spec)
	for _, d := range p.decoders {
		tokens = d(tokens)
	}
	return strings.Join(tokens, "|")
}

func TestDecoders(t *testing.T) {
	const byteLevel = `{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true}`
	require.Equal(t, "a é", decodeWith(t, byteLevel, "a", "ĠÃ", "©"))
	require.Equal(t, "a\uFFFD", decodeWith(t, byteLevel, "a", "Ã"))
	require.Equal(t, "中Ġ x", decodeWith(t, byteLevel, "中Ġ", "Ġx"), "a token outside of the alphabet stands for itself")

	const fallback = `{"type":"ByteFallback"}`
	require.Equal(t, "a|é|b", decodeWith(t, fallback, "a", "<0xC3>", "<0xa9>", "b"))
	require.Equal(t, "\uFFFD\uFFFD|b", decodeWith(t, fallback, "<0xC3>", "<0x41>", "b"))
	require.Equal(t, "<0xG1>|<0x1>", decodeWith(t, fallback, "<0xG1>", "<0x1>"))
	require.Equal(t, "a|é", decodeWith(t, fallback, "a", "<0xC3>", "<0xA9>"))

	require.Equal(t, "abc", decodeWith(t, `{"type":"Fuse"}`, "a", "bc"))
	require.Equal(t, "a| b|", decodeWith(t, `{"type":"Strip","content":" ","start":1,"stop":0}`, " a", "  b", " "))
	require.Equal(t, "a|b |", decodeWith(t, `{"type":"Strip","content":" ","start":0,"stop":2}`, "a  ", "b   ", " "))
	require.Equal(t, "a b| ", decodeWith(t, `{"type":"Replace","pattern":{"String":"▁"},"content":" "}`, "a▁b", "▁"))
	require.Equal(t, "ab| c", decodeWith(t, `{"type":"Metaspace","replacement":"▁","prepend_scheme":"always"}`, "▁a▁b", "▁c"))
	require.Equal(t, " a| c", decodeWith(t, `{"type":"Metaspace","replacement":"▁","prepend_scheme":"never"}`, "▁a", "▁c"))
	require.Equal(t, "a b", decodeWith(t, `{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},`+
		fallback+`,{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]}`, "▁a", "<0x20>", "b"))
}

func TestByteTokens(t *testing.T) {
	for token, want := range map[string]int{"<0x00>": 0, "<0xfF>": 255, "<0x4a>": 0x4a, "<0x-1>": -1, "<0x 1>": -1, "<0X41>": -1, "<0x41": -1, "0x41": -1, "<0x041>": -1, "<0x4é>": -1} {
		b, ok := byteToken(token)
		require.Equal(t, want >= 0, ok, token)
		if ok {
			require.EqualValues(t, want, b, token)
		}
	}
}
