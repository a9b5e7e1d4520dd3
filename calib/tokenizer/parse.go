package tokenizer

import (
	"github.com/llmquant/quantize/formats/safeio"
)

// Parse reads a tokenizer.json. Errors are of class safeio.ErrUnsupported, naming the component, when the file asks for
// something this package does not reproduce, and safeio.ErrCorrupt when it contradicts itself.
func Parse(tokenizerJSON []byte) (*Tokenizer, error) {
	if limit := safeio.DefaultLimits().TokenizerJSON; int64(len(tokenizerJSON)) > limit {
		return nil, parseError(safeio.Limitf("%d bytes are over the limit of %d for this file", len(tokenizerJSON), limit))
	}
	root, err := safeio.ParseJSON(tokenizerJSON)
	if err != nil {
		return nil, err
	}
	if root.Kind() != safeio.Object {
		return nil, parseError(safeio.Corruptf("expected an object, found %s", root.Kind()))
	}
	p := &parser{}
	if err := p.parse(root); err != nil {
		return nil, parseError(err)
	}
	return p.finish()
}

// parseError says that reading a tokenizer failed; Open adds the file.
func parseError(err error) error {
	return &safeio.Error{Op: "parse tokenizer", Off: -1, Err: err}
}

// parser gathers the parts of a tokenizer.json.
type parser struct {
	vocab       *vocabulary
	model       bpe
	modelInfo   modelInfo
	added       []AddedToken
	norms       []normalizer
	normNames   []string
	growth      float64 // by which the normalizers may lengthen text
	regrowth    float64 // and the decoders
	steps       []step
	stepNames   []string
	prefix      []int32
	suffix      []int32
	hasTemplate bool // the file has a post-processor
	decoders    []decoder
	hasDecoder  bool
	byteLevel   bool // a ByteLevel step is present
	rewritten   bool // a step changed the text, so that places in it no longer are places in the input
	prefixSpace bool // a component puts a blank before text
	firstScheme bool // a Metaspace step looks at the place of its piece
}

// section is one part of the file and its reader.
type section struct {
	key  string
	read func(p *parser, v safeio.Value) error
}

// sections are read in this order, whatever their order in the file: the model's alphabet depends on the
// pre-tokenizer, added tokens and templates on the vocabulary. Truncation and padding belong to the caller of the
// library, not to the ids of a text, and are passed over.
var sections = [...]section{
	{"model", (*parser).readModel},
	{"pre_tokenizer", (*parser).readPreTokenizer},
	{"added_tokens", (*parser).readAdded},
	{"normalizer", (*parser).readNormalizer},
	{"post_processor", (*parser).readPostProcessor},
	{"decoder", (*parser).readDecoder},
}

// parse reads all sections. Members of the document that are no section are passed over, as the library does.
func (p *parser) parse(root safeio.Value) error {
	if v := root.Get("version"); v.Exists() {
		if s, err := v.Str(); err != nil || s != "1.0" {
			return safeio.Unsupportedf("the tokenizer.json version %s", clip(v.Text()))
		}
	}
	for _, s := range sections {
		if v := root.Get(s.key); v.Exists() || s.key == "model" {
			if err := s.read(p, v); err != nil {
				return &safeio.Error{Op: s.key, Off: -1, Err: err}
			}
		}
		if s.key == "pre_tokenizer" {
			p.setAlphabet()
		}
	}
	return p.checkModel()
}

// only refuses members of v besides the listed ones: an unknown field may change what a component does.
func only(v safeio.Value, what string, keys ...string) error {
next:
	for key := range v.Members() {
		for _, k := range keys {
			if k == key {
				continue next
			}
		}
		return safeio.Unsupportedf("the field %q of %s", clip(key), what)
	}
	return nil
}

// typeOf returns the type of a component.
func typeOf(v safeio.Value) (string, error) {
	if v.Kind() != safeio.Object {
		return "", safeio.Corruptf("expected an object, found %s", v.Kind())
	}
	return safeio.At(v, "type", safeio.Value.Str)
}

// readAdded reads the added tokens and gives them their places in the vocabulary.
func (p *parser) readAdded(v safeio.Value) error {
	if v.Kind() != safeio.Array {
		return safeio.Corruptf("expected an array, found %s", v.Kind())
	}
	seen := map[int32]bool{}
	next := p.vocab.count
	for item := range v.Items() {
		if len(p.added) == maxAdded {
			return safeio.Limitf("more than %d added tokens", maxAdded)
		}
		tok, err := readAddedToken(item)
		if err != nil {
			return err
		}
		if tok.Content == "" {
			continue // as the library does
		}
		_, known := p.vocab.ids[tok.Content]
		if tok.ID, err = p.vocab.add(tok.Content, tok.ID, next); err != nil {
			return err
		}
		if !known {
			next++
		}
		if seen[tok.ID] {
			return safeio.Corruptf("the added token %q occurs twice", clip(tok.Content))
		}
		seen[tok.ID] = true
		tok.Content = p.vocab.tokens[tok.ID]
		p.added = append(p.added, tok)
	}
	return nil
}

// readAddedToken reads one entry; every flag has to be there, for their defaults differ between versions.
func readAddedToken(v safeio.Value) (AddedToken, error) {
	tok := AddedToken{}
	if v.Kind() != safeio.Object {
		return tok, safeio.Corruptf("an added token is %s", v.Kind())
	}
	if err := only(v, "an added token", "id", "content", "special", "normalized", "lstrip", "rstrip", "single_word"); err != nil {
		return tok, err
	}
	id, err := safeio.At(v, "id", safeio.Value.Int)
	if err != nil {
		return tok, err
	}
	if id < 0 || id >= maxVocab {
		return tok, safeio.Corruptf("the id %d of an added token is out of range", id)
	}
	tok.ID = int32(id)
	if tok.Content, err = safeio.At(v, "content", safeio.Value.Str); err != nil {
		return tok, err
	}
	for _, f := range [...]struct {
		key string
		to  *bool
	}{
		{"special", &tok.Special}, {"normalized", &tok.Normalized}, {"lstrip", &tok.LStrip},
		{"rstrip", &tok.RStrip}, {"single_word", &tok.SingleWord},
	} {
		if *f.to, err = safeio.At(v, f.key, safeio.Value.Bool); err != nil {
			return tok, err
		}
	}
	return tok, nil
}

// finish checks how the parts fit together and builds the tokenizer.
func (p *parser) finish() (*Tokenizer, error) {
	if p.firstScheme && len(p.norms) > 0 {
		return nil, parseError(safeio.Unsupportedf("Metaspace with prepend_scheme \"first\" behind a normalizer"))
	}
	norm := sequence(p.norms)
	e := &hfEngine{vocab: p.vocab, model: p.model, norm: norm, steps: p.steps, decoders: p.decoders, hasDecoder: p.hasDecoder}
	if err := e.setAdded(p.added); err != nil {
		return nil, parseError(err)
	}
	e.cutWords()
	e.pool.New = func() any { return e.newState() }
	t := &Tokenizer{vocab: p.vocab, engine: e, prefix: p.prefix, suffix: p.suffix, hasTemplate: p.hasTemplate}
	t.about = p.about()
	return t, nil
}

// about collects what the file says of itself. It names no special tokens; one id before or behind every text is the
// best it offers.
func (p *parser) about() about {
	a := newAbout()
	a.model, a.added, a.steps, a.norms, a.byteLevel = p.modelInfo, p.added, p.stepNames, p.normNames, p.byteLevel
	a.bytes = p.model.bytes
	a.special[specialUNK] = p.model.unk
	if len(p.prefix) == 1 {
		a.special[specialBOS], a.addBOS = p.prefix[0], true
	}
	if len(p.suffix) == 1 {
		a.special[specialEOS], a.addEOS = p.suffix[0], true
	}
	a.prefixSpace = p.prefixSpace
	return a
}

// idList reads an array of token ids that must be in use.
func (p *parser) idList(v safeio.Value) ([]int32, error) {
	list, err := v.Ints()
	if err != nil {
		return nil, err
	}
	out := make([]int32, len(list))
	for i, id := range list {
		if id < 0 || id >= maxVocab || !p.vocab.has(int32(id)) {
			return nil, safeio.Corruptf("the id %d is not in the vocabulary", id)
		}
		out[i] = int32(id)
	}
	return out, nil
}
