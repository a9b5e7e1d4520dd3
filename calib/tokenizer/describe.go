package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// The special tokens a configuration may name, in the order of specialNames.
const (
	specialBOS = iota
	specialEOS
	specialUNK
	specialSEP
	specialPAD
	specialCLS
	specialMASK
	numSpecial
)

// specialNames are the beginnings of the keys "bos_token" and "bos_token_id".
var specialNames = [numSpecial]string{"bos", "eos", "unk", "sep", "pad", "cls", "mask"}

// about is what a tokenizer knows of itself beyond what encoding needs.
type about struct {
	special       [numSpecial]int32 // ids, -1 for none
	named         [numSpecial]bool  // a configuration named it
	addBOS        bool
	addEOS        bool
	configBOS     switchable // add_bos_token and add_eos_token of tokenizer_config.json
	configEOS     switchable
	sentencePiece *spModel // nil for a tokenizer.json
	model         modelInfo
	added         []AddedToken
	steps         []string // pre-tokenizer
	norms         []string
	byteLevel     bool
	bytes         [256]int32
	prefixSpace   bool // a blank is put before text
}

// newAbout knows no special token.
func newAbout() about {
	a := about{}
	for i := range a.special {
		a.special[i] = -1
	}
	return a
}

// Description is everything a GGUF file (or a reader of the vocabulary) wants to know. Slices by id have one element
// per id of the tokenizer; a checkpoint may have more rows than that.
type Description struct {
	Model  string    // tokenizer.ggml.model: "gpt2" for byte-level BPE, "llama" for SentencePiece and its relatives
	Pre    string    // tokenizer.ggml.pre: llama.cpp's name of the way text is split, "default" for "llama", "" when it has none for this one
	Tokens []string  // by id; "[PAD7]" where the id 7 is not in use
	Types  []int32   // by id: TypeNormal, TypeControl, …
	Scores []float32 // by id, for "llama" only
	Merges []string  // "left right" by rank, for "gpt2" only; blanks inside of tokens as U+0120

	// ScoresExact is false when Scores were derived from merge rules that scores can't express.
	ScoresExact bool

	BOS, EOS, UNK, SEP, PAD, CLS, MASK int32 // ids, -1 for none

	AddBOS, AddEOS         bool
	AddSpacePrefix         bool
	RemoveExtraWhitespaces bool
	Charsmap               []byte // tokenizer.ggml.precompiled_charsmap, nil for none

	Added       []AddedToken
	Normalizers []string // of a tokenizer.json, for messages
	Steps       []string // its pre-tokenizer steps, for messages
}

// Model describes the tokenizer. The result is the caller's.
func (t *Tokenizer) Model() Description {
	a := &t.about
	d := Description{
		BOS: a.special[specialBOS], EOS: a.special[specialEOS], UNK: a.special[specialUNK], SEP: a.special[specialSEP],
		PAD: a.special[specialPAD], CLS: a.special[specialCLS], MASK: a.special[specialMASK],
		AddBOS: a.addBOS, AddEOS: a.addEOS, AddSpacePrefix: a.prefixSpace,
		Added: slices.Clone(a.added), Normalizers: slices.Clone(a.norms), Steps: slices.Clone(a.steps),
	}
	d.Tokens = make([]string, len(t.vocab.tokens))
	d.Types = make([]int32, len(t.vocab.tokens))
	for id := range d.Tokens {
		d.Tokens[id], d.Types[id] = t.vocab.tokens[id], TypeNormal
		if !t.vocab.used[id] {
			d.Tokens[id], d.Types[id] = fmt.Sprintf("[PAD%d]", id), TypeUnused
		}
	}
	switch {
	case a.sentencePiece != nil:
		d.fromSentencePiece(a.sentencePiece)
	case a.byteLevel:
		d.fromByteLevel(t)
	default:
		d.fromCharacters(t)
	}
	return d
}

// fromSentencePiece takes over what the model file says: the types and scores are GGUF's own.
func (d *Description) fromSentencePiece(m *spModel) {
	d.Model, d.Pre, d.ScoresExact = "llama", "default", true
	d.AddSpacePrefix, d.RemoveExtraWhitespaces = m.dummyPrefix, m.removeExtra
	d.Charsmap = slices.Clone(m.charsmap)
	d.Scores = make([]float32, len(d.Tokens))
	for id, p := range m.pieces {
		d.Types[id], d.Scores[id] = int32(p.kind), p.score
	}
}

// fromByteLevel describes byte-level BPE. Tokens keep their visible spelling, which is what llama.cpp expects.
func (d *Description) fromByteLevel(t *Tokenizer) {
	d.Model, d.Pre = "gpt2", preName(&t.about)
	d.typeAdded()
	d.Merges = make([]string, len(t.about.model.merges))
	for i, m := range t.about.model.merges {
		left, right := t.vocab.tokens[m[0]], t.vocab.tokens[m[1]]
		d.Merges[i] = strings.ReplaceAll(left, " ", "Ġ") + " " + strings.ReplaceAll(right, " ", "Ġ")
	}
}

// typeAdded sets the types of added tokens: control tokens are never shown, user-defined ones are text.
func (d *Description) typeAdded() {
	for _, tok := range d.Added {
		if tok.Special || looksSpecial(tok.Content) {
			d.Types[tok.ID] = TypeControl
			continue
		}
		d.Types[tok.ID] = TypeUserDefined
		d.Tokens[tok.ID] = strings.ReplaceAll(tok.Content, metaspace, " ")
	}
}

// looksSpecial recognizes control tokens that a file forgot to mark, as llama.cpp's converter does.
func looksSpecial(token string) bool {
	switch token {
	case "<pad>", "<mask>", "<2mass>", "[@BOS@]":
		return true
	}
	for _, p := range [...][2]string{{"<|", "|>"}, {"<｜", "｜>"}, {"<unused", ">"}} {
		if strings.HasPrefix(token, p[0]) && strings.HasSuffix(token, p[1]) {
			return true
		}
	}
	return false
}

// fromCharacters describes BPE on characters with byte fallback, the conversion of a SentencePiece model, as that
// model: scores take the place of merge rules. Where text may hold what the vocabulary lacks there is no such model:
// every byte needs its piece or, as Gemma writes TAB, its character.
func (d *Description) fromCharacters(t *Tokenizer) {
	a := &t.about
	for b, id := range a.bytes {
		_, plain := t.vocab.ids[string(rune(b))]
		if id < 0 && !(plain && b < utf8.RuneSelf) || !a.model.byteFallback {
			return
		}
	}
	d.Model, d.Pre = "llama", "default"
	for _, id := range a.bytes {
		if id >= 0 {
			d.Types[id] = TypeByte
		}
	}
	d.typeAdded()
	if d.UNK >= 0 {
		d.Types[d.UNK] = TypeUnknown
	}
	d.Scores, d.ScoresExact = t.scores()
}

// scores derives piece scores from merge rules: the earlier a piece is made, the higher its score; all others get 0,
// for no merge ever asks. It is exact when the rules that make the same piece stand together and no two pieces form
// another without a rule. Added tokens are found in text before any merging and do not take part.
func (t *Tokenizer) scores() (scores []float32, exact bool) {
	a := &t.about
	scores = make([]float32, len(t.vocab.tokens))
	exact = true
	rules := map[int32]int{} // number of rules by the piece they make
	last := int32(-1)
	for _, id := range a.model.results {
		if rules[id] == 0 {
			scores[id] = -float32(len(rules) + 1)
		} else if id != last {
			exact = false
		}
		rules[id]++
		last = id
	}
	added := map[int32]bool{}
	for _, tok := range a.added {
		added[tok.ID] = true
		scores[tok.ID] = 0
	}
	for id, token := range t.vocab.tokens {
		if exact && !added[int32(id)] {
			exact = t.splits(token, added) == rules[int32(id)]
		}
	}
	return scores, exact
}

// splits counts the ways to write a token as two tokens of the model.
func (t *Tokenizer) splits(token string, added map[int32]bool) int {
	n := 0
	for i := range token {
		left, isLeft := t.vocab.ids[token[:i]]
		right, isRight := t.vocab.ids[token[i:]]
		if i > 0 && isLeft && isRight && !added[left] && !added[right] {
			n++
		}
	}
	return n
}
