package gguf

import (
	"strconv"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
)

// A GGUF file carries its whole tokenizer, but says less about it than tokenizer.json does: a list of tokens with types, the
// merges or scores, ids of special tokens, and a name for everything that happens before the merges. What has no key
// (normalizers, flags of added tokens, templates beyond BOS and EOS) is lost on the way in and takes defaults on the way
// out. Ids without a token get a placeholder, since the embedding has a row for them and readers count tokens.

// TokenType says what a token is for, with the codes of tokenizer.ggml.token_type.
type TokenType int32

// The token types.
const (
	TokenNormal  TokenType = 1
	TokenUnknown TokenType = 2
	TokenControl TokenType = 3
	TokenUser    TokenType = 4 // added, matched as text
	TokenUnused  TokenType = 5
	TokenByte    TokenType = 6
)

// The tokenizer models of GGUF that are supported.
const (
	ModelBPE           = "gpt2"  // byte-level BPE with merges
	ModelSentencePiece = "llama" // SentencePiece BPE with scores and byte fallback
)

// Token is one entry of a vocabulary, spelled as the tokenizer stores it.
type Token struct {
	Text  string
	Score float32
	Type  TokenType // 0: no token has this id
}

// AddedToken is a token outside the model's own vocabulary, or one of it with special treatment.
type AddedToken struct {
	ID      int
	Content string
	Special bool
}

// TemplatePiece is one element of a post-processor's template: a special token or a text (A, B).
type TemplatePiece struct{ Special, Sequence string }

// TokenizerInfo is what GGUF records about a tokenizer. ReadTokenizer fills it from a checkpoint's files.
type TokenizerInfo struct {
	Model        string   // ModelBPE or ModelSentencePiece
	Pre          string   // llama.cpp's name of the pre-tokenizer
	Tokens       []Token  // by id
	Merges       []string // BPE: "left right", best first
	Added        []AddedToken
	Single, Pair []TemplatePiece // of the post-processor; nil when it has no template
	SpacePrefix  *bool           // whether a space is put before the text; nil: the model's default
	DefaultBOS   bool            // llama.cpp adds BOS for this Pre unless told otherwise
}

// SideFiles lists the files of a checkpoint that a conversion reads besides config.json.
func SideFiles() []string {
	return []string{"README.md", "generation_config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json",
		"added_tokens.json", "chat_template.jinja", "chat_template.json"}
}

// ReadTokenizer describes the tokenizer of a checkpoint from its files: tokenizer.model goes before tokenizer.json, as in
// the reference. vocab is the number of rows of the embedding.
func ReadTokenizer(side map[string][]byte, vocab int) (*TokenizerInfo, error) {
	if model, ok := side["tokenizer.model"]; ok {
		t, err := readSentencePiece(model, vocab)
		if err != nil {
			return nil, &safeio.Error{Op: "convert: tokenizer.model", Off: -1, Err: err}
		}
		if err := t.addTokens(side, vocab); err != nil {
			return nil, err
		}
		return t, t.readTemplate(side)
	}
	text, ok := side["tokenizer.json"]
	if !ok {
		return nil, &safeio.Error{Op: "convert", Off: -1, Err: safeio.Unsupportedf("the checkpoint has neither tokenizer.json nor tokenizer.model"),
			Hint: "Copy the tokenizer files of the original model into the directory."}
	}
	t, err := readTokenizerJSON(text, side, vocab)
	if err != nil {
		return nil, &safeio.Error{Op: "convert: tokenizer.json", Off: -1, Err: err}
	}
	return t, nil
}

// pad gives ids without a token the placeholder of the reference.
func (t *TokenizerInfo) pad(vocab int, score float32) {
	for len(t.Tokens) < vocab {
		t.Tokens = append(t.Tokens, Token{})
	}
	for i := range t.Tokens {
		if t.Tokens[i].Type == 0 {
			t.Tokens[i] = Token{Text: "[PAD" + strconv.Itoa(i) + "]", Score: score, Type: TokenUnused}
		}
	}
}

// looksSpecial finds added tokens that models forget to mark as special.
func looksSpecial(token string) bool {
	for _, s := range []string{"<pad>", "<mask>", "<2mass>", "[@BOS@]"} {
		if token == s {
			return true
		}
	}
	for _, p := range []struct{ start, end string }{{"<|", "|>"}, {"<｜", "｜>"}, {"<unused", ">"}} {
		if strings.HasPrefix(token, p.start) && strings.HasSuffix(token, p.end) {
			return true
		}
	}
	return false
}

// added returns the entry of an added token.
func added(content string, special bool, score float32) Token {
	if special || looksSpecial(content) {
		return Token{content, score, TokenControl}
	}
	return Token{strings.ReplaceAll(content, spaceMark, " "), score, TokenUser} // llama.cpp matches these against plain text
}

// spaceMark stands for a space in SentencePiece vocabularies.
const spaceMark = "\u2581"

// tokenizer writes the tokenizer.* keys.
func (w *writer) tokenizer() error {
	config, err := sideJSON(w.o.Side, "tokenizer_config.json")
	if err != nil {
		return err
	}
	t := w.o.Tokenizer
	if t == nil {
		if t, err = ReadTokenizer(w.o.Side, w.model.Vocab); err != nil {
			return err
		}
	}
	if len(t.Tokens) > w.model.Vocab {
		return safeio.Corruptf("the tokenizer has %d tokens, the embedding %d rows", len(t.Tokens), w.model.Vocab)
	}
	if w.family.spacePrefix {
		if b, err := config.Get("add_prefix_space").Bool(); err == nil {
			w.kv.Set("tokenizer.ggml.add_space_prefix", Bool(b))
		} else if t.SpacePrefix != nil {
			w.kv.Set("tokenizer.ggml.add_space_prefix", Bool(*t.SpacePrefix))
		}
	}
	w.vocabulary(t)
	s := specials{t: t, config: config, model: w.config, vocab: w.model.Vocab}
	s.collect()
	s.write(w.kv)
	if err := w.chatTemplate(config); err != nil {
		return err
	}
	if w.family.exceptions {
		w.vocabularyExceptions()
	}
	return nil
}

// vocabulary writes the lists that have one element per token, in the converter's order.
func (w *writer) vocabulary(t *TokenizerInfo) {
	texts := make([]string, len(t.Tokens))
	types := make([]int32, len(t.Tokens))
	scores := make([]float32, len(t.Tokens))
	for i, tok := range t.Tokens {
		texts[i], types[i], scores[i] = tok.Text, int32(tok.Type), tok.Score
	}
	w.set("tokenizer.ggml.model", t.Model)
	w.set("tokenizer.ggml.pre", t.Pre)
	w.kv.Set("tokenizer.ggml.tokens", Strings(texts))
	if t.Model == ModelSentencePiece {
		w.kv.Set("tokenizer.ggml.scores", Float32s(scores))
	}
	w.kv.Set("tokenizer.ggml.token_type", Int32s(types))
	if len(t.Merges) > 0 {
		w.kv.Set("tokenizer.ggml.merges", Strings(t.Merges))
	}
}

// vocabularyExceptions are the two models that the reference recognises by the size of their vocabulary.
func (w *writer) vocabularyExceptions() {
	switch w.model.Vocab {
	case 32016: // CodeLlama: infilling
		for _, s := range []struct {
			name string
			id   uint32
		}{{"prefix", 32007}, {"suffix", 32008}, {"middle", 32009}, {"eot", 32010}} {
			w.kv.Set("tokenizer.ggml."+s.name+"_token_id", Uint32(s.id))
		}
	case 49152: // Granite code models
		w.kv.Set("tokenizer.ggml.add_bos_token", Bool(false))
	}
}

// sideJSON parses a side file; a missing one is an empty value.
func sideJSON(side map[string][]byte, name string) (safeio.Value, error) {
	text, ok := side[name]
	if !ok {
		return safeio.Value{}, nil
	}
	v, err := safeio.ParseJSON(text)
	if err != nil {
		return v, &safeio.Error{Op: "convert: " + name, Off: -1, Err: err}
	}
	return v, nil
}

// chatTemplate writes the default template and named ones.
func (w *writer) chatTemplate(config safeio.Value) error {
	v := config.Get("chat_template")
	if !v.Exists() {
		if text, ok := w.o.Side["chat_template.jinja"]; ok {
			w.set("tokenizer.chat_template", string(text))
			return nil
		}
		file, err := sideJSON(w.o.Side, "chat_template.json")
		if err != nil {
			return err
		}
		v = file.Get("chat_template")
	}
	if text, err := v.Str(); err == nil {
		w.set("tokenizer.chat_template", text)
		return nil
	}
	var names []string
	deflt := ""
	for item := range v.Items() {
		name, err1 := item.Get("name").Str()
		text, err2 := item.Get("template").Str()
		name = plainName(name)
		switch {
		case err1 != nil || err2 != nil || name == "":
			continue
		case name == "default":
			deflt = text
			continue
		}
		if key := "tokenizer.chat_template." + name; !w.kv.Has(key) {
			names = append(names, name)
			w.set(key, text)
		}
	}
	w.list("tokenizer.chat_templates", names)
	w.set("tokenizer.chat_template", deflt)
	return nil
}

// plainName replaces what is neither letter nor digit, since the name becomes part of a key.
func plainName(name string) string {
	return strings.Map(func(r rune) rune {
		if r < 128 && (r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z') {
			return r
		}
		return '_'
	}, name)
}
