package gguf

import (
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
)

// readTokenizerJSON describes the tokenizer of a tokenizer.json: byte-level BPE, or BPE with byte fallback, which is
// SentencePiece in another file.
func readTokenizerJSON(text []byte, side map[string][]byte, vocab int) (*TokenizerInfo, error) {
	doc, err := safeio.ParseJSON(text)
	if err != nil {
		return nil, err
	}
	model := doc.Get("model")
	if kind, _ := model.Get("type").Str(); kind != "BPE" && (kind != "" || !model.Get("merges").Exists()) {
		return nil, safeio.Unsupportedf("the tokenizer model %q cannot be stored in GGUF here; BPE can", kind)
	}
	t := &TokenizerInfo{}
	if err := t.readAdded(doc.Get("added_tokens"), side); err != nil {
		return nil, err
	}
	if err := t.readVocab(model.Get("vocab"), vocab); err != nil {
		return nil, err
	}
	if t.Merges, err = readMerges(model.Get("merges")); err != nil {
		return nil, err
	}
	t.readPostProcessor(doc.Get("post_processor"))
	if fallback, _ := model.Get("byte_fallback").Bool(); fallback {
		t.asSentencePiece(doc, vocab)
		return t, nil
	}
	t.Model = ModelBPE
	if err := t.readPre(doc); err != nil {
		return nil, err
	}
	t.mergeAdded(0)
	t.pad(vocab, 0)
	return t, nil
}

// readAdded collects added tokens, those that only tokenizer_config.json knows included.
func (t *TokenizerInfo) readAdded(list safeio.Value, side map[string][]byte) error {
	read := func(id int64, v safeio.Value) error {
		content, err := safeio.At(v, "content", safeio.Value.Str)
		if err != nil {
			return err
		}
		special, err := safeio.Or(v, "special", false, safeio.Value.Bool)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(t.Added, func(a AddedToken) bool { return a.ID == int(id) }) {
			t.Added = append(t.Added, AddedToken{int(id), content, special})
		}
		return nil
	}
	for v := range list.Items() {
		id, err := safeio.At(v, "id", safeio.Value.Int)
		if err == nil && (id < 0 || id > math.MaxInt32) {
			err = safeio.Corruptf("an added token has the id %d", id)
		}
		if err == nil {
			err = read(id, v)
		}
		if err != nil {
			return err
		}
	}
	config, err := sideJSON(side, "tokenizer_config.json")
	if err != nil {
		return err
	}
	return eachAdded(config, read)
}

// eachAdded walks added_tokens_decoder, whose keys are ids.
func eachAdded(config safeio.Value, read func(id int64, v safeio.Value) error) error {
	for key, v := range config.Get("added_tokens_decoder").Members() {
		id, err := parseID(key)
		if err == nil {
			err = read(id, v)
		}
		if err != nil {
			return &safeio.Error{Op: "convert: tokenizer_config.json", Off: -1, Err: err}
		}
	}
	return nil
}

// parseID reads the decimal keys of added_tokens_decoder without the freedoms of strconv (signs, underscores, spaces).
func parseID(key string) (int64, error) {
	if key == "" || len(key) > 9 || strings.Trim(key, "0123456789") != "" {
		return 0, safeio.Corruptf("%q is no token id", key)
	}
	var id int64
	for _, c := range []byte(key) {
		id = 10*id + int64(c-'0')
	}
	return id, nil
}

// readVocab places the vocabulary by id. Ids beyond the embedding are corrupt.
func (t *TokenizerInfo) readVocab(v safeio.Value, vocab int) error {
	if v.Kind() != safeio.Object {
		return safeio.Corruptf("the model has no vocabulary object")
	}
	t.Tokens = make([]Token, vocab)
	for text, number := range v.Members() {
		id, err := number.Int()
		if err != nil {
			return err
		}
		if err := t.place(id, text); err != nil {
			return err
		}
	}
	for _, a := range t.Added {
		if a.ID >= vocab {
			return safeio.Corruptf("the added token %q has the id %d, the embedding has %d rows", a.Content, a.ID, vocab)
		}
	}
	return nil
}

// place puts a token at its id. Two tokens with one id would make the vocabulary depend on the reader's order.
func (t *TokenizerInfo) place(id int64, text string) error {
	switch {
	case id < 0 || id >= int64(len(t.Tokens)):
		return safeio.Corruptf("the token %q has the id %d, the embedding has %d rows", text, id, len(t.Tokens))
	case t.Tokens[id].Type != 0:
		return safeio.Corruptf("the tokens %q and %q share the id %d", t.Tokens[id].Text, text, id)
	}
	t.Tokens[id] = Token{Text: text, Type: TokenNormal}
	return nil
}

// mergeAdded gives the added tokens their type.
func (t *TokenizerInfo) mergeAdded(score float32) {
	for _, a := range t.Added {
		t.Tokens[a.ID] = added(a.Content, a.Special, score)
	}
}

// readMerges reads "left right" strings or pairs. A space inside a piece is spelled Ġ, as byte-level BPE would.
func readMerges(v safeio.Value) ([]string, error) {
	merges := make([]string, 0, 1024)
	for item := range v.Items() {
		if item.Kind() == safeio.Array {
			pair, err := item.Strings()
			if err != nil || len(pair) != 2 {
				return nil, safeio.Corruptf("a merge is no pair of strings: %s", item.Text())
			}
			merges = append(merges, strings.ReplaceAll(pair[0], " ", "\u0120")+" "+strings.ReplaceAll(pair[1], " ", "\u0120"))
			continue
		}
		text, err := item.Str()
		if err != nil {
			return nil, err
		}
		merges = append(merges, text)
	}
	return merges, nil
}

// readTemplate reads only the post-processor of tokenizer.json, for a tokenizer that comes from elsewhere.
func (t *TokenizerInfo) readTemplate(side map[string][]byte) error {
	doc, err := sideJSON(side, "tokenizer.json")
	if err != nil {
		return err
	}
	t.readPostProcessor(doc.Get("post_processor"))
	if len(t.Added) == 0 {
		return t.readAdded(doc.Get("added_tokens"), nil)
	}
	return nil
}

// readPostProcessor finds the template among the steps of a post-processor; the other kinds put no tokens around a text.
func (t *TokenizerInfo) readPostProcessor(v safeio.Value) {
	steps := []safeio.Value{v}
	if list := v.Get("processors"); list.Kind() == safeio.Array {
		steps = slices.Collect(list.Items())
	}
	for _, step := range steps {
		if kind, _ := step.Get("type").Str(); kind == "TemplateProcessing" {
			t.Single, t.Pair = templateOf(step.Get("single")), templateOf(step.Get("pair"))
		}
	}
}

// templateOf reads the pieces of a template.
func templateOf(v safeio.Value) []TemplatePiece {
	var pieces []TemplatePiece
	for item := range v.Items() {
		special, _ := item.Path("SpecialToken", "id").Str()
		sequence, _ := item.Path("Sequence", "id").Str()
		pieces = append(pieces, TemplatePiece{special, sequence})
	}
	return pieces
}

var byteToken = regexp.MustCompile(`^<0x[0-9A-Fa-f]{2}>$`)

// asSentencePiece turns a BPE with byte fallback into what llama.cpp calls a SentencePiece model. There a merge is chosen
// by the score of its result, here by rank: the score is minus the rank of the first merge that makes the piece.
func (t *TokenizerInfo) asSentencePiece(doc safeio.Value, vocab int) {
	t.Model, t.Pre = ModelSentencePiece, "default"
	made := make(map[string]float32, len(t.Merges))
	for rank, m := range t.Merges {
		if left, right, ok := strings.Cut(m, " "); ok {
			if _, again := made[left+right]; !again {
				made[left+right] = float32(-rank)
			}
		}
	}
	for i := range t.Tokens {
		tok := &t.Tokens[i]
		if tok.Type == 0 {
			continue
		}
		if byteToken.MatchString(tok.Text) {
			tok.Type = TokenByte
		}
		if score, ok := made[tok.Text]; ok {
			tok.Score = score
		}
	}
	t.Merges = nil
	t.mergeAdded(-1000)
	t.pad(vocab, -10000)
	if !strings.Contains(doc.Get("normalizer").Text(), `"Prepend"`) && !prependsByMetaspace(doc.Get("pre_tokenizer")) {
		no := false
		t.SpacePrefix = &no
	}
}

// prependsByMetaspace reports whether a Metaspace pre-tokenizer puts a space before the text, in both spellings of the option.
func prependsByMetaspace(pre safeio.Value) bool {
	kind, _ := pre.Get("type").Str()
	scheme, err := pre.Get("prepend_scheme").Str()
	if err != nil {
		old, oldErr := pre.Get("add_prefix_space").Bool()
		return kind == "Metaspace" && (oldErr != nil || old)
	}
	return kind == "Metaspace" && scheme != "never"
}
