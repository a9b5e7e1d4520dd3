package calib

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/calib/chat"
	"github.com/llmquant/quantize/calib/tokenizer"
	"github.com/llmquant/quantize/formats/safeio"
)

func load(t *testing.T, o Options, vocab int, lines ...string) (*Set, error) {
	t.Helper()
	return Load(context.Background(), []string{one(t, "a.jsonl", strings.Join(lines, "\n"))}, o, byteEncoder{}, vocab)
}

func ids(n, from int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(from + i)
	}
	return `{"input_ids":[` + strings.Join(list, ",") + `]}`
}

func TestWindows(t *testing.T) {
	// Documents are joined in order and cut; the rest is counted.
	s, err := load(t, Options{SeqLen: 4, NoSpecial: true}, 0, `"abcdef"`, `"gh"`, `"ij"`)
	require.NoError(t, err)
	require.Equal(t, "abcdefgh", string(runes(s.IDs)))
	require.Equal(t, []int{0, 6}, s.DocStart)
	require.Equal(t, [4]int{2, 3, 8, 2}, [4]int{s.Windows, s.Documents, int(s.TokensUsed), int(s.TokensDropped)})
	require.Equal(t, "efgh", string(runes(s.Window(1))))

	// The tokenizer's own tokens stand around every document.
	s, err = load(t, Options{SeqLen: 4}, 0, `"abc"`, `"def"`)
	require.NoError(t, err)
	require.Equal(t, []int32{256, 'a', 'b', 'c', 256, 'd', 'e', 'f'}, s.IDs)
	require.Equal(t, []int{0, 4}, s.DocStart)

	// Only the first windows are used; what is left is counted to the last token.
	s, err = load(t, Options{SeqLen: 4, Samples: 1, NoSpecial: true}, 0, `"abcdef"`, `"ghijklmnop"`)
	require.NoError(t, err)
	require.Equal(t, "abcd", string(runes(s.IDs)))
	require.Equal(t, [3]int{1, 4, 12}, [3]int{s.Windows, int(s.TokensUsed), int(s.TokensDropped)})
	require.Equal(t, 1, s.Requested)

	// Fewer windows than asked for are no error: the set says so.
	s, err = load(t, Options{SeqLen: 4, Samples: 9, NoSpecial: true}, 0, `"abcdef"`)
	require.NoError(t, err)
	require.Equal(t, [2]int{1, 9}, [2]int{s.Windows, s.Requested})
}

func runes(ids []int32) []rune {
	return append([]rune(nil), ids...) // a rune is an int32
}

func TestWholeRows(t *testing.T) {
	// Rows of exactly the length stay whole, also between others; the others are joined around them.
	s, err := load(t, Options{SeqLen: 4}, 100, ids(3, 1), ids(4, 10), ids(5, 20), ids(4, 30), ids(1, 40))
	require.NoError(t, err)
	require.Equal(t, []int32{10, 11, 12, 13, 1, 2, 3, 20, 21, 22, 23, 24, 30, 31, 32, 33}, s.IDs)
	require.Equal(t, []int{0, 4, 7, 12}, s.DocStart)
	require.EqualValues(t, 1, s.TokensDropped)

	// A text of exactly that many tokens is joined like any other: its length is chance.
	s, err = load(t, Options{SeqLen: 4, NoSpecial: true}, 0, `"ab"`, `"cdef"`, `"gh"`)
	require.NoError(t, err)
	require.Equal(t, "abcdefgh", string(runes(s.IDs)))

	// Samples end between rows as well.
	s, err = load(t, Options{SeqLen: 4, Samples: 2}, 100, ids(4, 1), ids(4, 5), ids(4, 9))
	require.NoError(t, err)
	require.Equal(t, [3]int{2, 8, 4}, [3]int{s.Windows, int(s.TokensUsed), int(s.TokensDropped)})
}

func TestTail(t *testing.T) {
	// Behind the last window text is tokenized up to a limit, then counted by its bytes.
	doc := `"` + strings.Repeat("x", 100) + `"`
	lines := make([]string, 2*batchDocs)
	for i := range lines {
		lines[i] = doc
	}
	s, err := load(t, Options{SeqLen: 100, Samples: 3, NoSpecial: true, Limits: Limits{Tail: 1000}}, 0, lines...)
	require.NoError(t, err)
	require.Equal(t, batchDocs-10, s.DocumentsUntokenized)
	require.EqualValues(t, 100*(batchDocs-10), s.BytesUntokenized)
	require.EqualValues(t, 100*(batchDocs-3)+1000, s.TokensDropped)
	require.Equal(t, 2*batchDocs, s.Documents+s.DocumentsUntokenized)
	require.EqualValues(t, 2*batchDocs, s.Files[0].Documents)
}

func TestTooLittle(t *testing.T) {
	_, err := load(t, Options{SeqLen: 512, Samples: 128, NoSpecial: true}, 0, `"abc"`, `"de"`)
	require.ErrorIs(t, err, safeio.ErrCorrupt)
	require.ErrorContains(t, err, "too little data: 5 tokens in 2 documents, one window takes 512 and 128 windows take 65536")
	_, err = load(t, Options{SeqLen: 512, Samples: 1}, 0, `""`)
	require.ErrorContains(t, err, "too little data: 0 tokens in 0 documents, and one window takes 512")
	_, err = load(t, Options{Samples: 1}, 0, `"a"`)
	require.ErrorContains(t, err, "impossible")
}

func TestVocabulary(t *testing.T) {
	_, err := load(t, Options{SeqLen: 2}, 50, ids(3, 40), ids(3, 48))
	require.ErrorIs(t, err, safeio.ErrCorrupt)
	require.ErrorContains(t, err, "a.jsonl: row 2: token 2 is 50, the model's vocabulary has 50 entries")
	_, err = load(t, Options{SeqLen: 2}, 100, `"~"`)
	require.ErrorContains(t, err, "they do not belong together")
	_, err = Load(context.Background(), []string{one(t, "a.txt", "text")}, Options{SeqLen: 2}, nil, 0)
	require.ErrorContains(t, err, "there is no tokenizer")
	_, err = Load(context.Background(), []string{one(t, "a.jsonl", ids(4, 0))}, Options{SeqLen: 2}, nil, 10)
	require.NoError(t, err)
}

// TestThreads: nothing about a set depends on the number of goroutines.
func TestThreads(t *testing.T) {
	var want *Set
	for _, threads := range []int{1, 2, 3, 8} {
		s, err := Load(context.Background(), []string{"../testdata/data/golm-calib.parquet"}, Options{SeqLen: 512, Samples: 32, Threads: threads}, byteEncoder{}, 0)
		require.NoError(t, err)
		if want == nil {
			want = s
		}
		require.Equal(t, want, s)
		require.Equal(t, want.Hash(), s.Hash())
	}
	require.Len(t, want.Hash(), 64)
	other, err := Load(context.Background(), []string{"../testdata/data/golm-calib.parquet"}, Options{SeqLen: 512, Samples: 31}, byteEncoder{}, 0)
	require.NoError(t, err)
	require.NotEqual(t, want.Hash(), other.Hash())
	a, b := Set{IDs: []int32{1, 2}, SeqLen: 1, Windows: 2}, Set{IDs: []int32{1, 2}, SeqLen: 2, Windows: 1}
	require.NotEqual(t, a.Hash(), b.Hash())
}

const turns = `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yo"}]}`

func TestConversations(t *testing.T) {
	s, err := load(t, Options{SeqLen: 65, Template: chat.ChatML}, 0, turns)
	require.NoError(t, err)
	require.Equal(t, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyo<|im_end|>\n", string(runes(s.IDs)), "no special tokens in front")
	s, err = load(t, Options{SeqLen: 7, Template: chat.Plain}, 0, turns)
	require.NoError(t, err)
	require.Equal(t, []int32{256, 'h', 'i', '\n', '\n', 'y', 'o'}, s.IDs)

	dir := write(t, map[string]string{"tokenizer_config.json": `{"chat_template":"{% for m in messages %}[{{ m.role[0] }}]{{ m.content }}{% endfor %}"}`})
	s, err = load(t, Options{SeqLen: 10, ModelDir: dir}, 0, turns)
	require.NoError(t, err)
	require.Equal(t, "[u]hi[a]yo", string(runes(s.IDs)))

	// What the template refuses is counted, with its reason; what nobody can render ends the run.
	strict, err := chat.Parse("{% if messages[0].role != 'user' %}{{ raise_exception('user first') }}{% endif %}{{ messages[0].content }}", "t", nil)
	require.NoError(t, err)
	s, err = load(t, Options{SeqLen: 2, Chat: strict}, 0, `{"messages":[{"role":"assistant","content":"no"}]}`, turns)
	require.NoError(t, err)
	require.Equal(t, "hi", string(runes(s.IDs)))
	require.Equal(t, 1, s.Refused)
	require.Equal(t, "user first", s.FirstRefusal)
	_, err = load(t, Options{SeqLen: 2, Chat: strict}, 0, `{"messages":[{"role":"assistant","content":"no"}]}`)
	require.ErrorContains(t, err, "the chat template refused 1 conversations (user first)")

	_, err = load(t, Options{SeqLen: 2}, 0, turns)
	require.ErrorIs(t, err, safeio.ErrUnsupported)
	var e *safeio.Error
	require.ErrorAs(t, err, &e)
	require.Contains(t, e.Hint, "--chat-template chatml|plain|FILE")
	_, err = load(t, Options{SeqLen: 2, ModelDir: t.TempDir()}, 0, turns)
	require.ErrorContains(t, err, "the model has no chat template")
}

func TestStream(t *testing.T) {
	path := one(t, "a.jsonl", "\"ab\"\n\"cde\"\n\"\"\n\"f\"")
	s, err := ReadStream(context.Background(), []string{path}, Options{}, byteEncoder{}, 0)
	require.NoError(t, err)
	require.Equal(t, []int32{256, 'a', 'b', 256, 'c', 'd', 'e', 256, 'f'}, s.IDs)
	require.Equal(t, []int{0, 3, 7}, s.DocStart)
	require.EqualValues(t, 1, s.Files[0].Skipped)
	_, err = ReadStream(context.Background(), []string{one(t, "a.jsonl", `""`)}, Options{}, byteEncoder{}, 0)
	require.ErrorContains(t, err, "no tokens")
	_, err = ReadStream(context.Background(), []string{one(t, "a.jsonl", "\"a\"\noops")}, Options{}, byteEncoder{}, 0)
	require.ErrorContains(t, err, "line 2")
}

func TestTokens(t *testing.T) {
	src, err := OpenSource([]string{one(t, "a.jsonl", "\"ab\"\n{\"input_ids\":[7]}")}, Options{})
	require.NoError(t, err)
	var got []Tokens
	for tok, err := range src.Tokens(context.Background(), byteEncoder{}, 0) {
		require.NoError(t, err)
		got = append(got, tok)
	}
	require.Equal(t, []Tokens{{IDs: []int32{256, 'a', 'b'}, File: "a.jsonl", Row: 1, Bytes: 2}, {IDs: []int32{7}, File: "a.jsonl", Row: 2, Given: true, Bytes: 4}}, got)
}

// TestGolm tokenizes the test model's own data and finds the ids that came with it, where every document is followed
// by the end-of-text token.
func TestGolm(t *testing.T) {
	tok, err := tokenizer.Open("../testdata/golm-llama")
	require.NoError(t, err)
	eot, ok := tok.ID("<|endoftext|>")
	require.True(t, ok)
	s, err := ReadStream(context.Background(), []string{"../testdata/data/golm-calib.parquet"}, Options{NoSpecial: true}, tok, tok.Vocab())
	require.NoError(t, err)
	var joined []int32
	for i, start := range s.DocStart {
		end := len(s.IDs)
		if i+1 < len(s.DocStart) {
			end = s.DocStart[i+1]
		}
		joined = append(append(joined, s.IDs[start:end]...), eot)
	}
	set, err := Load(context.Background(), []string{"../testdata/data/golm-calib-ids.jsonl"}, Options{SeqLen: 512, Samples: 128}, nil, tok.Vocab())
	require.NoError(t, err)
	require.Equal(t, [3]int{128, 0, 128}, [3]int{set.Windows, int(set.TokensDropped), set.Documents})
	require.Equal(t, joined[:len(set.IDs)], set.IDs)

	f, err := os.Open("../testdata/data/golm-calib-ids.jsonl")
	require.NoError(t, err)
	defer f.Close()
	var row struct {
		IDs []int32 `json:"input_ids"`
	}
	line, err := bufio.NewReaderSize(f, 1<<20).ReadBytes('\n')
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(line, &row))
	require.Equal(t, row.IDs, set.Window(0))
}

// TestDefault: the built-in text suffices for the largest usual calibration, whatever the tokenizer.
func TestDefault(t *testing.T) {
	text, err := DefaultText()
	require.NoError(t, err)
	require.Greater(t, len(text), 1<<20)
	require.Less(t, len(builtInText), 512<<10)
	require.Equal(t, -1, invalidUTF8([]byte(text)))
	require.NotContains(t, text, "\f")
	require.NotContains(t, text, "\r")

	tok, err := tokenizer.Open("../testdata/golm-llama")
	require.NoError(t, err)
	s, err := Load(context.Background(), []string{DefaultName}, Options{SeqLen: 512, Samples: 16}, tok, tok.Vocab())
	require.NoError(t, err)
	require.Equal(t, 16, s.Windows)
	require.Greater(t, s.Documents, 900)
	require.Equal(t, "built-in text", s.Files[0].Name)
	require.Greater(t, s.TokensDropped, int64(500_000))
}
