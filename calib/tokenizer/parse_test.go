package tokenizer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safeio/safeiotest"
)

// document assembles a tokenizer.json from sections given as JSON; sections not given get small valid ones.
func document(sections map[string]string) string {
	parts := map[string]string{
		"version":      `"1.0"`,
		"added_tokens": `[{"id":4,"content":"<s>","special":true,"normalized":false,"lstrip":false,"rstrip":false,"single_word":false}]`,
		"model":        `{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"Ġ":3},"merges":["a b"]}`,
	}
	for k, v := range sections {
		parts[k] = v
	}
	var list []string
	for _, k := range []string{"version", "truncation", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model"} {
		if v, ok := parts[k]; ok && v != "" {
			list = append(list, fmt.Sprintf("%q:%s", k, v))
		}
	}
	return "{" + strings.Join(list, ",") + "}"
}

func model(fields string) map[string]string {
	return map[string]string{"added_tokens": "[]", "model": `{"type":"BPE",` + fields + `}`}
}

func one(key, json string) map[string]string { return map[string]string{key: json} }

func addedJSON(id int, content, more string) string {
	return fmt.Sprintf(`{"id":%d,"content":%q,"special":true,"normalized":false,"lstrip":false,"rstrip":false,"single_word":false%s}`, id, content, more)
}

// refusals are documents that must fail, by class of error and a part of the message.
var refusals = []struct {
	class    error
	says     string
	sections map[string]string
}{
	{safeio.ErrUnsupported, "version", one("version", `"2.0"`)},
	{safeio.ErrCorrupt, "model", one("model", `null`)},
	{safeio.ErrCorrupt, "model", one("model", ``)},
	{safeio.ErrUnsupported, `"Unigram"`, one("model", `{"type":"Unigram","vocab":[]}`)},
	{safeio.ErrUnsupported, `"WordPiece"`, one("model", `{"type":"WordPiece","vocab":{}}`)},
	{safeio.ErrUnsupported, "dropout", model(`"dropout":0.1,"vocab":{"a":0},"merges":[]`)},
	{safeio.ErrUnsupported, "end_of_word_suffix", model(`"end_of_word_suffix":"</w>","vocab":{"a":0},"merges":[]`)},
	{safeio.ErrUnsupported, "continuing_subword_prefix", model(`"continuing_subword_prefix":"##","vocab":{"a":0},"merges":[]`)},
	{safeio.ErrUnsupported, `"novelty"`, model(`"novelty":1,"vocab":{"a":0},"merges":[]`)},
	{safeio.ErrCorrupt, "duplicate key", model(`"vocab":{"a":0,"a":1},"merges":[]`)},
	{safeio.ErrCorrupt, "duplicate key", model(`"vocab":{"a":0,"\u0061":1},"merges":[]`)},
	{safeio.ErrCorrupt, "the id 0 is given to", model(`"vocab":{"a":0,"b":0},"merges":[]`)},
	{safeio.ErrCorrupt, "out of range", model(`"vocab":{"a":-1},"merges":[]`)},
	{safeio.ErrCorrupt, "out of range", model(`"vocab":{"a":4194304},"merges":[]`)},
	{safeio.ErrCorrupt, "1 tokens have ids up to", model(`"vocab":{"a":4000000},"merges":[]`)},
	{safeio.ErrCorrupt, "not an integer", model(`"vocab":{"a":1.5},"merges":[]`)},
	{safeio.ErrCorrupt, "not an integer", model(`"vocab":{"a":1e2},"merges":[]`)},
	{safeio.ErrCorrupt, "vocabulary is", model(`"vocab":["a"],"merges":[]`)},
	{safeio.ErrCorrupt, "vocabulary is", model(`"merges":[]`)},
	{safeio.ErrCorrupt, "merges are", model(`"vocab":{"a":0}`)},
	{safeio.ErrCorrupt, "two parts", model(`"vocab":{"a":0,"b":1,"ab":2},"merges":["ab"]`)},
	{safeio.ErrCorrupt, "two parts", model(`"vocab":{"a":0,"b":1,"ab":2},"merges":["a b c"]`)},
	{safeio.ErrCorrupt, "3 parts", model(`"vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b","c"]]`)},
	{safeio.ErrCorrupt, "string", model(`"vocab":{"a":0,"b":1,"ab":2},"merges":[["a",1]]`)},
	{safeio.ErrCorrupt, "not in the vocabulary", model(`"vocab":{"a":0,"b":1},"merges":["a b"]`)},
	{safeio.ErrCorrupt, "not in the vocabulary", model(`"vocab":{"a":0,"ab":1},"merges":["a b"]`)},
	{safeio.ErrCorrupt, `the unknown token "<unk>"`, model(`"unk_token":"<unk>","vocab":{"a":0},"merges":[]`)},

	{safeio.ErrCorrupt, "has the id 7", one("added_tokens", "["+addedJSON(7, "<s>", "")+"]")},
	{safeio.ErrCorrupt, "has the id 3", one("added_tokens", "["+addedJSON(3, "a", "")+"]")},
	{safeio.ErrCorrupt, "occurs twice", one("added_tokens", "["+addedJSON(4, "x", "")+","+addedJSON(4, "x", "")+"]")},
	{safeio.ErrCorrupt, "out of range", one("added_tokens", "["+addedJSON(-4, "x", "")+"]")},
	{safeio.ErrUnsupported, `"greedy"`, one("added_tokens", "["+addedJSON(4, "x", `,"greedy":true`)+"]")},
	{safeio.ErrCorrupt, `"special"`, one("added_tokens", `[{"id":4,"content":"x"}]`)},
	{safeio.ErrCorrupt, "array", one("added_tokens", `{}`)},
	{safeio.ErrLimit, "longer than", one("added_tokens", "["+addedJSON(4, strings.Repeat("x", 2000), "")+"]")},

	{safeio.ErrUnsupported, `"Lowercase"`, one("normalizer", `{"type":"Lowercase"}`)},
	{safeio.ErrUnsupported, `"Precompiled"`, one("normalizer", `{"type":"Sequence","normalizers":[{"type":"Precompiled","precompiled_charsmap":""}]}`)},
	{safeio.ErrUnsupported, "regular expression", one("normalizer", `{"type":"Replace","pattern":{"Regex":" {2,}"},"content":"x"}`)},
	{safeio.ErrUnsupported, "empty pattern", one("normalizer", `{"type":"Replace","pattern":{"String":""},"content":"x"}`)},
	{safeio.ErrCorrupt, "object", one("normalizer", `[]`)},
	{safeio.ErrCorrupt, "type", one("normalizer", `{}`)},
	{safeio.ErrLimit, "components", one("normalizer", `{"type":"Sequence","normalizers":[`+strings.Repeat(`{"type":"NFC"},`, 40)+`{"type":"NFC"}]}`)},

	{safeio.ErrLimit, "Prepend", one("normalizer", `{"type":"Prepend","prepend":"`+strings.Repeat("x", 100)+`"}`)},
	{safeio.ErrLimit, "times longer", one("normalizer", `{"type":"Sequence","normalizers":[`+strings.Repeat(`{"type":"Replace","pattern":{"String":"a"},"content":"aaaa"},`, 4)+`{"type":"NFC"}]}`)},
	{safeio.ErrLimit, "times longer", one("decoder", `{"type":"Replace","pattern":{"String":"a"},"content":"`+strings.Repeat("a", 65)+`"}`)},

	{safeio.ErrUnsupported, `"BertPreTokenizer"`, one("pre_tokenizer", `{"type":"BertPreTokenizer"}`)},
	{safeio.ErrUnsupported, "split pattern", one("pre_tokenizer", `{"type":"Split","pattern":{"Regex":"(a+)+$"},"behavior":"Isolated","invert":false}`)},
	{safeio.ErrUnsupported, "behavior", one("pre_tokenizer", `{"type":"Split","pattern":{"String":"a"},"behavior":"Shredded","invert":false}`)},
	{safeio.ErrUnsupported, "empty text", one("pre_tokenizer", `{"type":"Split","pattern":{"String":""},"behavior":"Isolated","invert":false}`)},
	{safeio.ErrCorrupt, "pattern has", one("pre_tokenizer", `{"type":"Split","pattern":{},"behavior":"Isolated","invert":false}`)},
	{safeio.ErrUnsupported, "two ByteLevel", one("pre_tokenizer", `{"type":"Sequence","pretokenizers":[`+byteLevelJSON+","+byteLevelJSON+`]}`)},
	{safeio.ErrCorrupt, "not one character", one("pre_tokenizer", `{"type":"Metaspace","replacement":"ab"}`)},
	{safeio.ErrUnsupported, "prepend_scheme", one("pre_tokenizer", `{"type":"Metaspace","replacement":"_","prepend_scheme":"sometimes"}`)},
	{safeio.ErrCorrupt, "contradicts", one("pre_tokenizer", `{"type":"Metaspace","replacement":"_","prepend_scheme":"first","add_prefix_space":false}`)},
	{safeio.ErrUnsupported, "behind a normalizer", map[string]string{"normalizer": `{"type":"NFC"}`, "pre_tokenizer": `{"type":"Metaspace","replacement":"_","prepend_scheme":"first"}`}},

	{safeio.ErrUnsupported, `"Sideways"`, one("post_processor", `{"type":"Sideways"}`)},
	{safeio.ErrUnsupported, "exactly once", one("post_processor", `{"type":"TemplateProcessing","single":[],"pair":[],"special_tokens":{}}`)},
	{safeio.ErrUnsupported, "exactly once", one("post_processor", `{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{}}`)},
	{safeio.ErrCorrupt, "template token", one("post_processor", `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<x>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{}}`)},
	{safeio.ErrCorrupt, "not in the vocabulary", one("post_processor", `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[99],"tokens":["<s>"]}}}`)},
	{safeio.ErrCorrupt, "cls", one("post_processor", `{"type":"BertProcessing","cls":["<s>"],"sep":["</s>",1]}`)},

	{safeio.ErrUnsupported, `"WordPiece"`, one("decoder", `{"type":"WordPiece","prefix":"##","cleanup":true}`)},
	{safeio.ErrUnsupported, "start 1 and stop 1", one("decoder", `{"type":"Strip","content":" ","start":1,"stop":1}`)},
}

const byteLevelJSON = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}`

func TestRefusals(t *testing.T) {
	_, err := Parse([]byte(document(nil)))
	require.NoError(t, err)
	for _, r := range refusals {
		doc := document(r.sections)
		_, err := Parse([]byte(doc))
		require.Error(t, err, doc)
		require.Truef(t, errors.Is(err, r.class), "%s: %v is not of class %v", doc, err, r.class)
		require.Contains(t, err.Error(), r.says, doc)
	}
	for _, doc := range []string{"", "[]", "7", "{", document(nil) + "x", "{\"a\":\xff}", strings.Repeat(`{"a":`, 100)} {
		_, err := Parse([]byte(doc))
		require.Error(t, err, doc)
	}
}

// TestHoles: ids without a token are no error; added tokens behind a hole are, because the library would number them
// differently than the file.
func TestHoles(t *testing.T) {
	tok, err := Parse([]byte(document(map[string]string{"added_tokens": "[]", "model": `{"type":"BPE","vocab":{"a":0,"b":9},"merges":[]}`})))
	require.NoError(t, err)
	require.Equal(t, 10, tok.Vocab())
	require.Equal(t, []int32{0, 9}, tok.Encode("ab", false))
	require.Equal(t, "a b", tok.Decode([]int32{0, 5, 9}))
	d := tok.Model()
	require.Equal(t, "[PAD5]", d.Tokens[5])
	require.EqualValues(t, TypeUnused, d.Types[5])
	_, err = Parse([]byte(document(map[string]string{"added_tokens": "[" + addedJSON(10, "x", "") + "]", "model": `{"type":"BPE","vocab":{"a":0,"b":9},"merges":[]}`})))
	require.ErrorIs(t, err, safeio.ErrCorrupt)
}

// TestAddedTokens checks the flags on a text where each shows. The library gives the same.
func TestAddedTokens(t *testing.T) {
	flags := func(id int, content, on string) string {
		return strings.Replace(addedJSON(id, content, ""), `"`+on+`":false`, `"`+on+`":true`, 1)
	}
	vocab := `{"type":"BPE","vocab":{"a":0,"b":1," ":2,"<":3,"L":4,"é":5},"merges":[]}`
	parse := func(tokens ...string) *Tokenizer {
		tok, err := Parse([]byte(document(map[string]string{"model": vocab, "added_tokens": "[" + strings.Join(tokens, ",") + "]"})))
		require.NoError(t, err)
		return tok
	}
	tok := parse(flags(6, "<L>", "lstrip"), flags(7, "<R>", "rstrip"), flags(8, "W", "single_word"), addedJSON(9, "<LL>", ""), addedJSON(10, "<L", ""))
	for text, want := range map[string][]int32{
		"a <L> b":       {0, 6, 2, 1},
		"a <R> b":       {0, 2, 7, 1},
		"a <R> <L> b":   {0, 2, 7, 6, 2, 1},
		"a\u3000\t<L>b": {0, 6, 1},
		"W aW Wa W":     {8, 2, 0, 2, 0, 2, 8},
		"éW W":          {5, 2, 8},
		"<LL><L<L>":     {9, 10, 6},
		"  <L>":         {6},
		"<R>  ":         {7},
		"<L>":           {6},
	} {
		require.Equal(t, want, tok.Encode(text, false), "%q", text)
	}
}

// TestLongestFirst compares the trie with a direct search.
func TestLongestFirst(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for range 300 {
		seen := map[string]bool{}
		var tokens []AddedToken
		var texts []string
		for range 1 + rng.IntN(12) {
			s := strings.Repeat("a", rng.IntN(3)) + strings.Repeat("b", rng.IntN(3)) + strings.Repeat("a", rng.IntN(2))
			if s == "" || seen[s] {
				continue
			}
			seen[s] = true
			tokens = append(tokens, AddedToken{ID: int32(len(tokens)), Content: s})
			texts = append(texts, s)
		}
		set, err := newAddedSet(tokens, texts)
		require.NoError(t, err)
		text := ""
		for range rng.IntN(30) {
			text += string("abc"[rng.IntN(3)])
		}
		var got, want []string
		set.split(text, func(a, b int) { got = append(got, text[a:b]) }, func(id int32) { got = append(got, fmt.Sprint(id)) })
		plain := 0
		for i := 0; i < len(text); {
			best := -1
			for k, s := range texts {
				if strings.HasPrefix(text[i:], s) && (best < 0 || len(s) > len(texts[best])) {
					best = k
				}
			}
			if best < 0 {
				i++
				continue
			}
			if plain < i {
				want = append(want, text[plain:i])
			}
			want = append(want, fmt.Sprint(best))
			i += len(texts[best])
			plain = i
		}
		if plain < len(text) {
			want = append(want, text[plain:])
		}
		require.Equal(t, want, got, "%q in %q", texts, text)
	}
}

func FuzzTokenizerJSON(f *testing.F) {
	f.Add([]byte(document(nil)))
	for _, r := range refusals {
		f.Add([]byte(document(r.sections)))
	}
	f.Add([]byte(document(map[string]string{"normalizer": `{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]}`})))
	f.Add([]byte(document(map[string]string{"pre_tokenizer": byteLevelJSON, "decoder": byteLevelJSON, "post_processor": byteLevelJSON})))
	f.Fuzz(func(t *testing.T, doc []byte) {
		var tok *Tokenizer
		safeiotest.CheckAllocation(t, len(doc), func() {
			var err error
			if tok, err = Parse(doc); err != nil {
				var e *safeio.Error
				if !errors.As(err, &e) {
					t.Fatalf("untyped error %v", err)
				}
			}
		})
		if tok != nil {
			exercise(t, tok)
		}
	})
}

// exercise encodes, decodes and describes: nothing may panic, ids are in range, and equal input gives equal output.
func exercise(t *testing.T, tok *Tokenizer) {
	for _, text := range []string{"", "a b  ab\n\n<s> é中😀 1234 \xff", strings.Repeat("ab ", 100), "▁▁<0x41></s>"} {
		ids := tok.Encode(text, true)
		for _, id := range ids {
			if id < 0 || int(id) >= tok.Vocab() {
				t.Fatalf("id %d of %d", id, tok.Vocab())
			}
		}
		again := tok.EncodeAppend(nil, text, true)
		if fmt.Sprint(again) != fmt.Sprint(append([]int32(nil), ids...)) {
			t.Fatalf("%q: %v, then %v", text, ids, again)
		}
		tok.Decode(ids)
	}
	d := tok.Model()
	if len(d.Tokens) != tok.Vocab() || len(d.Types) != tok.Vocab() || d.Scores != nil && len(d.Scores) != tok.Vocab() {
		t.Fatalf("description of %d, %d, %d tokens", len(d.Tokens), len(d.Types), len(d.Scores))
	}
}
