package gguf

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/stretchr/testify/require"
)

// tokenizerKeys runs the tokenizer step of a conversion for a model of that architecture.
func tokenizerKeys(t testing.TB, architecture string, vocab int, side map[string]string, config string) (*Metadata, error) {
	t.Helper()
	c, err := safeio.ParseJSON([]byte(config))
	require.NoError(t, err)
	files := map[string][]byte{}
	for name, text := range side {
		files[name] = []byte(text)
	}
	fam, err := familyOf(architecture)
	require.NoError(t, err)
	w := &writer{kv: &Metadata{}, family: fam, model: &arch.Model{Vocab: vocab, GGUF: arch.GGUF{Arch: architecture}}, config: c, o: &ConvertOptions{Side: files}}
	return w.kv, w.tokenizer()
}

func listing(kv *Metadata) map[string]string {
	out := map[string]string{}
	for key, v := range kv.All() {
		out[strings.TrimPrefix(key, "tokenizer.")] = v.Format(20)
	}
	return out
}

// bpe is a byte-level tokenizer.json with a vocabulary of a, b, ab and a hole at 3.
func bpe(change ...string) string {
	text := `{"added_tokens": [{"id": 4, "content": "<s>", "special": true}, {"id": 5, "content": "▁hi", "special": false},
	  {"id": 6, "content": "<|x|>", "special": false}],
	 "normalizer": null, "post_processor": null,
	 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
	 "model": {"type": "BPE", "ignore_merges": false, "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}}`
	return strings.NewReplacer(change...).Replace(text)
}

func TestByteLevelTokenizer(t *testing.T) {
	kv, err := tokenizerKeys(t, "qwen2", 8, map[string]string{"tokenizer.json": bpe(),
		"tokenizer_config.json": `{"bos_token": {"content": "<s>"}, "eos_token": "<|x|>", "pad_token": "absent", "add_bos_token": true, "add_unk_token": false}`},
		`{"eos_token_id": 1, "pad_token_id": 0, "sep_token_id": 99, "bos_token_id": [4]}`)
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"ggml.model": "gpt2", "ggml.pre": "gpt-2",
		"ggml.tokens":       `["a", "b", "ab", "[PAD3]", "<s>", " hi", "<|x|>", "[PAD7]"]`,
		"ggml.token_type":   "[1, 1, 1, 5, 3, 4, 3, 5]",
		"ggml.merges":       `["a b"]`,
		"ggml.bos_token_id": "4", "ggml.eos_token_id": "6", "ggml.padding_token_id": "0", "ggml.add_bos_token": "true",
	}, listing(kv))
}

func TestTokenizersThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"unigram":              {bpe(`"BPE"`, `"Unigram"`), safeio.ErrUnsupported},
		"id twice":             {bpe(`"b": 1`, `"b": 0`), safeio.ErrCorrupt},
		"id past the rows":     {bpe(`"b": 1`, `"b": 100`), safeio.ErrCorrupt},
		"id negative":          {bpe(`"b": 1`, `"b": -1`), safeio.ErrCorrupt},
		"id past 32 bits":      {bpe(`"b": 1`, `"b": 4294967296`), safeio.ErrCorrupt},
		"added past 32 bits":   {bpe(`"id": 6`, `"id": 4294967302`), safeio.ErrCorrupt},
		"added negative":       {bpe(`"id": 6`, `"id": -2`), safeio.ErrCorrupt},
		"id no integer":        {bpe(`"b": 1`, `"b": 1.5`), safeio.ErrCorrupt},
		"added past the rows":  {bpe(`"id": 6`, `"id": 8`), safeio.ErrCorrupt},
		"added without text":   {bpe(`"content": "<s>"`, `"text": "<s>"`), safeio.ErrCorrupt},
		"merge of three":       {bpe(`["a", "b"]`, `["a", "b", "c"]`), safeio.ErrCorrupt},
		"merge a number":       {bpe(`["a", "b"]`, `7`), safeio.ErrCorrupt},
		"no vocabulary":        {bpe(`"vocab"`, `"vocabulary"`), safeio.ErrCorrupt},
		"leading space":        {bpe(`"add_prefix_space": false`, `"add_prefix_space": true`), safeio.ErrUnsupported},
		"unknown step":         {bpe(`"type": "ByteLevel"`, `"type": "Whitespace"`), safeio.ErrUnsupported},
		"lower case":           {bpe(`"normalizer": null`, `"normalizer": {"type": "Lowercase"}`), safeio.ErrUnsupported},
		"two normalizers":      {bpe(`"normalizer": null`, `"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Strip"}]}`), safeio.ErrUnsupported},
		"unknown pattern":      {bpe(`"type": "ByteLevel", `, `"type": "Split", "pattern": {"Regex": "a+"}, "behavior": "Isolated", `), safeio.ErrUnsupported},
		"pattern missing":      {bpe(`"type": "ByteLevel", `, `"type": "Split", "pattern": {}, `), safeio.ErrCorrupt},
		"no JSON":              {"{", safeio.ErrCorrupt},
		"ignore_merges, gpt-2": {bpe(`"ignore_merges": false`, `"ignore_merges": true`), safeio.ErrUnsupported},
	} {
		_, err := tokenizerKeys(t, "qwen2", 8, map[string]string{"tokenizer.json": c.text}, "{}")
		require.ErrorIs(t, err, c.want, name)
	}
	_, err := tokenizerKeys(t, "qwen2", 8, nil, "{}")
	require.ErrorIs(t, err, safeio.ErrUnsupported)
}

// llama3 is the pre-tokenizer of Llama 3 around the small vocabulary.
func llama3(post string) string {
	return bpe(`{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}`,
		`{"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}, "behavior": "Isolated", "invert": false}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]}`,
		`"ignore_merges": false`, `"ignore_merges": true`, `"post_processor": null`, `"post_processor": `+post)
}

const bosTemplate = `{"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "TemplateProcessing",
	"single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
	"pair": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<s>", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}]}]}`

func TestBOS(t *testing.T) {
	config := map[string]string{"tokenizer.json": llama3(bosTemplate), "tokenizer_config.json": `{"bos_token": "<s>", "eos_token": "<|x|>"}`}
	kv, err := tokenizerKeys(t, "llama", 8, config, "{}")
	require.NoError(t, err)
	got := listing(kv)
	require.Equal(t, "llama-bpe", got["ggml.pre"])
	require.Equal(t, "true", got["ggml.add_bos_token"])
	require.Equal(t, "false", got["ggml.add_sep_token"])

	// Without a template the tokenizer adds nothing, but llama.cpp would under this name.
	config["tokenizer.json"] = llama3("null")
	kv, err = tokenizerKeys(t, "llama", 8, config, "{}")
	require.NoError(t, err)
	require.Equal(t, "false", listing(kv)["ggml.add_bos_token"])

	// A template that ends with another token than the config's: that one ends a text, the config's ends a turn.
	config["tokenizer.json"] = llama3(`{"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "<s>"}}], "pair": []}`)
	kv, err = tokenizerKeys(t, "llama", 8, config, "{}")
	require.NoError(t, err)
	got = listing(kv)
	require.Equal(t, "4", got["ggml.eos_token_id"])
	require.Equal(t, "6", got["ggml.eot_token_id"])
	require.Equal(t, "true", got["ggml.add_eos_token"])
}

func TestChatTemplates(t *testing.T) {
	side := map[string]string{"tokenizer.json": bpe(), "chat_template.jinja": "from the file"}
	kv, err := tokenizerKeys(t, "qwen2", 8, side, "{}")
	require.NoError(t, err)
	require.Equal(t, "from the file", listing(kv)["chat_template"])

	side["tokenizer_config.json"] = `{"chat_template": [{"name": "default", "template": "d"}, {"name": "tool-use", "template": "t"}, {"name": "tool use", "template": "u"}, {"name": "rag", "template": "r"}, {"name": "bad"}]}`
	kv, err = tokenizerKeys(t, "qwen2", 8, side, "{}")
	require.NoError(t, err)
	got := listing(kv)
	require.Equal(t, "d", got["chat_template"])
	require.Equal(t, "t", got["chat_template.tool_use"])
	require.Equal(t, `["tool_use", "rag"]`, got["chat_templates"])

	delete(side, "chat_template.jinja")
	side["tokenizer_config.json"] = `{"chat_template": null}`
	side["chat_template.json"] = `{"chat_template": "third"}`
	kv, err = tokenizerKeys(t, "qwen2", 8, side, "{}")
	require.NoError(t, err)
	require.Equal(t, "third", listing(kv)["chat_template"])
}

// field appends a length-delimited protocol buffer field.
func field(b []byte, number int, data []byte) []byte {
	b = binary.AppendUvarint(b, uint64(number<<3|2))
	b = binary.AppendUvarint(b, uint64(len(data)))
	return append(b, data...)
}

func piece(text string, score float32, kind int) []byte {
	p := field(nil, 1, []byte(text))
	p = binary.LittleEndian.AppendUint32(append(p, 2<<3|5), math.Float32bits(score))
	return binary.AppendUvarint(append(p, 3<<3), uint64(kind))
}

func sentencePieceModel() []byte {
	var m []byte
	for _, p := range [][]byte{piece("<unk>", 0, 2), piece("<s>", 0, 3), piece("<0x0A>", 0, 6), piece("▁a", -1, 1), piece("u", -2, 4), field(nil, 1, []byte("plain"))} {
		m = field(m, 1, p)
	}
	return field(m, 2, []byte("trainer"))
}

func TestSentencePiece(t *testing.T) {
	side := map[string]string{"tokenizer.model": string(sentencePieceModel()), "added_tokens.json": `{"<x>": 6, "far": 99}`,
		"tokenizer_config.json": `{"add_prefix_space": true, "unk_token": "<unk>", "added_tokens_decoder": {"7": {"content": "<|y|>", "special": false}, "8": {"content": "▁z", "special": false}, "0": {"content": "<unk>", "special": true}}}`,
		"tokenizer.json":        `{"added_tokens": [{"id": 0, "content": "<unk>", "special": true}]}`}
	kv, err := tokenizerKeys(t, "llama", 10, side, `{"bos_token_id": 1}`)
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"ggml.add_space_prefix": "true", "ggml.model": "llama", "ggml.pre": "default",
		"ggml.tokens":           `["<unk>", "<s>", "<0x0A>", "▁a", "u", "plain", "<x>", "<|y|>", " z", "[PAD9]"]`,
		"ggml.scores":           "[-1000, 0, 0, -1, -2, 0, -1000, -1000, -1000, -10000]",
		"ggml.token_type":       "[3, 3, 6, 1, 1, 1, 4, 3, 4, 5]",
		"ggml.unknown_token_id": "0", "ggml.bos_token_id": "1",
	}, listing(kv))

	for name, model := range map[string]string{
		"empty": "", "text": "this is no model", "cut": string(sentencePieceModel()[:20]), "tag 0": "\x02\x00",
		"length past the end": "\x0a\xff\xff\xff\xff\x0f", "wire type 3": "\x0b", "number cut": "\x08\xff", "fixed cut": "\x0d\x01\x02",
		"piece of type 9": string(field(nil, 1, piece("x", 0, 9))),
	} {
		side["tokenizer.model"] = model
		_, err := tokenizerKeys(t, "llama", 10, side, "{}")
		require.ErrorIs(t, err, safeio.ErrCorrupt, name)
	}
}

func FuzzSentencePiece(f *testing.F) {
	f.Add(sentencePieceModel())
	f.Fuzz(func(t *testing.T, model []byte) {
		if info, err := readSentencePiece(model, 100); err == nil && len(info.Tokens) != 100 {
			t.Fatalf("%d tokens", len(info.Tokens))
		}
	})
}

// The vocabularies of real SentencePiece models come back as the merges that Transformers' own converter lists.
func TestMergesFromScores(t *testing.T) {
	for _, name := range []string{"llama2", "stories260K"} {
		dir := shared(t, "assets", map[string]string{"llama2": "tokenizers"}[name], name)
		model, err := os.ReadFile(filepath.Join(dir, "tokenizer.model"))
		require.NoError(t, err)
		text, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
		require.NoError(t, err)
		doc, err := safeio.ParseJSON(text)
		require.NoError(t, err)
		want, err := readMerges(doc.Path("model", "merges"))
		require.NoError(t, err)
		vocab := map[string]int{"llama2": 32000, "stories260K": 512}[name]
		info, err := readSentencePiece(model, vocab)
		require.NoError(t, err)
		v := &vocabulary{model: ModelSentencePiece}
		for _, tok := range info.Tokens {
			v.tokens, v.types, v.scores = append(v.tokens, tok.Text), append(v.types, int64(tok.Type)), append(v.scores, float64(tok.Score))
		}
		got, err := v.mergesFromScores()
		require.NoError(t, err)
		require.Len(t, got, len(want), name)
		for i, m := range got {
			require.Equal(t, want[i], m[0]+" "+m[1], "%s merge %d", name, i)
		}
	}
}

func TestEqualScoresAreRefused(t *testing.T) {
	v := &vocabulary{tokens: []string{"a", "b", "ab", "ba"}, types: []int64{1, 1, 1, 1}, scores: []float64{-1000, -1000, -1000, -1000}}
	_, err := v.mergesFromScores()
	require.ErrorIs(t, err, safeio.ErrUnsupported)
}
