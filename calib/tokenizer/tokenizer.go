package tokenizer

import "unicode/utf8"

// Tokenizer turns text into token ids and back. It is immutable and safe for concurrent use.
type Tokenizer struct {
	vocab       *vocabulary
	engine      engine
	prefix      []int32 // put before every text by Encode with special
	suffix      []int32 // and behind
	hasTemplate bool    // the file says what those are, even if nothing
	about       about
}

// Encode returns the ids of text. With special they are wrapped in what the tokenizer puts around a single text (BOS,
// EOS, …). Added tokens spelled out in text are recognized either way, as in the reference libraries.
func (t *Tokenizer) Encode(text string, special bool) []int32 {
	return t.EncodeAppend(make([]int32, 0, len(text)/3+len(t.prefix)+len(t.suffix)), text, special)
}

// EncodeAppend is Encode into memory of the caller: it appends the ids to dst and returns the longer slice.
func (t *Tokenizer) EncodeAppend(dst []int32, text string, special bool) []int32 {
	if !utf8.ValidString(text) {
		text = validUTF8(text)
	}
	if special {
		dst = append(dst, t.prefix...)
	}
	dst = t.engine.encode(dst, text)
	if special {
		dst = append(dst, t.suffix...)
	}
	return dst
}

// Decode returns the text of ids, special tokens included as text. Ids outside of the vocabulary are passed over.
func (t *Tokenizer) Decode(ids []int32) string { return t.engine.decode(ids) }

// Vocab returns the number of ids: the largest one in use plus one, added tokens included.
func (t *Tokenizer) Vocab() int { return len(t.vocab.tokens) }

// ID returns the id of a token as the vocabulary spells it ("Ġthe", "▁the", "<s>").
func (t *Tokenizer) ID(token string) (int32, bool) {
	id, ok := t.vocab.ids[token]
	return id, ok
}

// Token returns the spelling of an id in the vocabulary, "" for an id that is not in use.
func (t *Tokenizer) Token(id int32) string {
	if !t.vocab.has(id) {
		return ""
	}
	return t.vocab.tokens[id]
}

// BOS returns the id of the token that begins a text; false when the tokenizer has none.
func (t *Tokenizer) BOS() (int32, bool) { return t.special(specialBOS) }

// EOS returns the id of the token that ends a text; false when the tokenizer has none.
func (t *Tokenizer) EOS() (int32, bool) { return t.special(specialEOS) }

// special returns a special token's id and whether there is one.
func (t *Tokenizer) special(kind int) (int32, bool) {
	return t.about.special[kind], t.about.special[kind] >= 0
}
