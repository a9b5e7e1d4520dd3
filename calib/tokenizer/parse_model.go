package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/llmquant/quantize/formats/safeio"
)

// modelInfo is what the description of a tokenizer needs from the model section beyond the merge tables.
type modelInfo struct {
	unkToken     string
	byteFallback bool
	ignoreMerges bool
	merges       [][2]int32 // left and right token of every rule
	results      []int32    // the token each of them makes
}

// readModel reads the BPE section.
func (p *parser) readModel(v safeio.Value) error {
	if v.Kind() != safeio.Object {
		return safeio.Corruptf("expected an object, found %s", v.Kind())
	}
	kind, err := safeio.Or(v, "type", "BPE", safeio.Value.Str)
	if err != nil {
		return err
	}
	if kind != "BPE" {
		return safeio.Unsupportedf("the tokenizer model %q (only BPE is)", clip(kind))
	}
	err = only(v, "the BPE model", "type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
		"fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges")
	if err != nil {
		return err
	}
	if err := p.readOptions(v); err != nil {
		return err
	}
	if err := p.readVocab(v.Get("vocab")); err != nil {
		return err
	}
	p.model.unk = -1
	if p.modelInfo.unkToken != "" {
		p.model.unk = p.vocab.id(p.modelInfo.unkToken)
	}
	return p.readMerges(v.Get("merges"))
}

// readOptions reads the fields of the model besides its tables.
func (p *parser) readOptions(v safeio.Value) error {
	dropout, err := safeio.Or(v, "dropout", 0, safeio.Value.Float)
	if err != nil {
		return err
	}
	if dropout != 0 {
		return safeio.Unsupportedf("BPE dropout: ids would be random")
	}
	for _, key := range [...]string{"continuing_subword_prefix", "end_of_word_suffix"} {
		s, err := safeio.Or(v, key, "", safeio.Value.Str)
		if err != nil {
			return err
		}
		if s != "" {
			return safeio.Unsupportedf("the %s %q", key, clip(s))
		}
	}
	if p.modelInfo.unkToken, err = safeio.Or(v, "unk_token", "", safeio.Value.Str); err != nil {
		return err
	}
	for _, f := range [...]struct {
		key string
		to  *bool
	}{
		{"fuse_unk", &p.model.fuse}, {"byte_fallback", &p.modelInfo.byteFallback}, {"ignore_merges", &p.modelInfo.ignoreMerges},
	} {
		if *f.to, err = safeio.Or(v, f.key, false, safeio.Value.Bool); err != nil {
			return err
		}
	}
	return nil
}

// readVocab reads the tokens; that none repeats was checked with the document.
func (p *parser) readVocab(v safeio.Value) error {
	if v.Kind() != safeio.Object {
		return safeio.Corruptf("the vocabulary is %s", v.Kind())
	}
	var entries []vocabEntry
	for token, x := range v.Members() {
		if len(entries) == maxVocab {
			return safeio.Limitf("more than %d tokens", maxVocab)
		}
		id, err := x.Int()
		if err != nil {
			return safeio.Corruptf("the id of the token %q is not an integer", clip(token))
		}
		if id < 0 || id >= maxVocab {
			return safeio.Corruptf("the id %d of the token %q is out of range", id, clip(token))
		}
		entries = append(entries, vocabEntry{token, int32(id)})
	}
	vocab, err := newVocabulary(entries)
	p.vocab = vocab
	return err
}

// readMerges reads the merge rules, written as "a b" or as ["a", "b"].
func (p *parser) readMerges(v safeio.Value) error {
	if v.Kind() != safeio.Array {
		return safeio.Corruptf("the merges are %s", v.Kind())
	}
	n := v.Len()
	if n > maxMerges {
		return safeio.Limitf("%d merges are over the limit of %d", n, maxMerges)
	}
	p.model.pairs = newPairTable(n)
	p.modelInfo.merges = make([][2]int32, 0, n)
	p.modelInfo.results = make([]int32, 0, n)
	var joined []byte
	for x := range v.Items() {
		left, right, err := mergeOf(x)
		if err != nil {
			return err
		}
		if strings.HasPrefix(left, "#version") && x.Kind() == safeio.String {
			continue // the head line of a merges.txt
		}
		joined = append(append(joined[:0], left...), right...)
		a, b := p.vocab.id(left), p.vocab.id(right)
		id, known := p.vocab.ids[string(joined)]
		if a < 0 || b < 0 || !known {
			return safeio.Corruptf("the merge of %q and %q uses a token that is not in the vocabulary", clip(left), clip(right))
		}
		p.model.pairs.set(a, b, uint32(len(p.modelInfo.results)), id)
		p.modelInfo.merges = append(p.modelInfo.merges, [2]int32{a, b})
		p.modelInfo.results = append(p.modelInfo.results, id)
	}
	return nil
}

// mergeOf reads one rule in either spelling. The older one can't write tokens with blanks; such a rule is refused.
func mergeOf(v safeio.Value) (left, right string, err error) {
	if v.Kind() == safeio.Array {
		pair, err := v.Strings()
		if err != nil {
			return "", "", err
		}
		if len(pair) != 2 {
			return "", "", safeio.Corruptf("a merge has %d parts", len(pair))
		}
		return pair[0], pair[1], nil
	}
	s, err := v.Str()
	if err != nil {
		return "", "", err
	}
	left, right, ok := strings.Cut(s, " ")
	if !ok || strings.Contains(right, " ") {
		return "", "", safeio.Corruptf("the merge %q does not have two parts", clip(s))
	}
	return left, right, nil
}

// setAlphabet prepares the smallest symbols: bytes when a ByteLevel step precedes the model, characters otherwise. It
// runs before added tokens join the vocabulary, because the model does not know those.
func (p *parser) setAlphabet() {
	m := &p.model
	m.byteWise = p.byteLevel
	m.fallback = p.modelInfo.byteFallback && !p.byteLevel
	for b := range m.bytes {
		name := fmt.Sprintf("<0x%02X>", b)
		if p.byteLevel {
			name = loadAlphabet().visible[b]
		}
		m.bytes[b] = p.vocab.id(name)
	}
	if !p.byteLevel {
		m.runes = map[rune]int32{}
		for r := range m.ascii {
			m.ascii[r] = p.vocab.id(string(rune(r)))
		}
		for id, token := range p.vocab.tokens {
			if r, n := utf8.DecodeRuneInString(token); n > 1 && n == len(token) {
				m.runes[r] = int32(id)
			}
		}
	}
	if p.modelInfo.ignoreMerges {
		p.setWhole()
	}
}

// setWhole collects the words that ignore_merges takes as they are, in the form in which the model gets them.
func (p *parser) setWhole() {
	p.model.whole = make(map[string]int32, len(p.vocab.ids))
	for token, id := range p.vocab.ids {
		if p.byteLevel {
			raw, ok := loadAlphabet().raw(token)
			if !ok {
				continue
			}
			token = raw
		}
		p.model.whole[token] = id
	}
}

// checkModel refuses models that may meet a character they have nothing for where the library fails at run time.
func (p *parser) checkModel() error {
	missing := p.modelInfo.unkToken != "" && p.model.unk < 0
	if p.byteLevel {
		allBytes := !slices.Contains(p.model.bytes[:], -1)
		if !allBytes && p.modelInfo.byteFallback {
			return safeio.Unsupportedf("byte_fallback of a byte-level model that lacks bytes")
		}
		missing = missing && !allBytes
	}
	if missing {
		return safeio.Corruptf("the unknown token %q is not in the vocabulary", clip(p.modelInfo.unkToken))
	}
	return nil
}
