package gguf

import (
	"cmp"
	"slices"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
)

// vocabulary is the tokenizer of a file, checked.
type vocabulary struct {
	model  string
	pre    string
	tokens []string
	types  []int64
	scores []float64
	merges []string
}

// readVocabulary reads tokenizer.ggml.*. A file without a tokenizer yields nil.
func (f *File) readVocabulary(p *params) (*vocabulary, error) {
	kv := &f.KV
	v := &vocabulary{}
	if !kv.Has("tokenizer.ggml.model") || !kv.Has("tokenizer.ggml.tokens") {
		return nil, nil
	}
	var err error
	if v.model, err = kv.String("tokenizer.ggml.model"); err != nil {
		return nil, err
	}
	if v.model != ModelBPE && v.model != ModelSentencePiece {
		return nil, safeio.Unsupportedf("the tokenizer model %q; supported: %s, %s", v.model, ModelBPE, ModelSentencePiece)
	}
	v.pre, _ = kv.String("tokenizer.ggml.pre")
	if v.tokens, err = kv.Strings("tokenizer.ggml.tokens"); err != nil {
		return nil, err
	}
	if len(v.tokens) > p.vocab {
		return nil, safeio.Corruptf("%d tokens for an embedding of %d rows", len(v.tokens), p.vocab)
	}
	v.types = slices.Repeat([]int64{int64(TokenNormal)}, len(v.tokens))
	if kv.Has("tokenizer.ggml.token_type") {
		if v.types, err = kv.Ints("tokenizer.ggml.token_type"); err != nil {
			return nil, err
		}
	}
	if v.model == ModelSentencePiece {
		v.scores, err = kv.Floats("tokenizer.ggml.scores")
	} else {
		v.merges, err = kv.Strings("tokenizer.ggml.merges")
	}
	if err == nil && (len(v.types) != len(v.tokens) || v.scores != nil && len(v.scores) != len(v.tokens)) {
		err = safeio.Corruptf("%d tokens with %d types and %d scores", len(v.tokens), len(v.types), len(v.scores))
	}
	return v, err
}

func (v *vocabulary) typ(id int) TokenType { return TokenType(v.types[id]) }

// isAdded reports whether a token is matched as a whole before the model sees the text.
func (v *vocabulary) isAdded(id int) bool {
	t := v.typ(id)
	return t == TokenControl || t == TokenUser || t == TokenUnknown
}

// embedded returns the first id that stays out of the model's own vocabulary. Added tokens at the end get their ids by
// position when the file is loaded; those among the others must be in the vocabulary to keep theirs.
func (v *vocabulary) embedded() int {
	end := len(v.tokens)
	for end > 0 && v.typ(end-1) == TokenUnused {
		end--
	}
	first := end
	for first > 0 && v.isAdded(first-1) {
		first--
	}
	for id := range first {
		if v.typ(id) == TokenUnused { // a hole: positions say nothing
			return end
		}
	}
	return first
}

// tokenizerJSON reconstructs tokenizer.json.
func (f *File) tokenizerJSON(p *params) ([]byte, error) {
	v, err := f.readVocabulary(p)
	if v == nil || err != nil {
		return nil, err
	}
	o := &object{}
	o.add("version", "1.0")
	o.add("truncation", nil)
	o.add("padding", nil)
	o.add("added_tokens", v.addedTokens())
	build := v.bytePieces
	if v.model == ModelSentencePiece {
		build = v.sentencePieces
	}
	if err := build(o, f); err != nil {
		return nil, err
	}
	return o.bytes()
}

// addedToken is an entry of added_tokens, and of added_tokens_decoder without the id.
type addedToken struct {
	ID         *int   `json:"id,omitempty"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

func (v *vocabulary) addedTokens() []addedToken {
	list := []addedToken{}
	for id, text := range v.tokens {
		if v.isAdded(id) {
			list = append(list, addedToken{ID: &id, Content: text, Special: v.typ(id) != TokenUser})
		}
	}
	return list
}

// vocab writes the model's own vocabulary by id.
func (v *vocabulary) vocab() (safeio.Value, error) {
	end := v.embedded()
	members := make([]safeio.Member, 0, end)
	seen := make(map[string]int, end)
	for id, text := range v.tokens[:end] {
		if v.typ(id) == TokenUnused {
			continue
		}
		if other, twice := seen[text]; twice {
			return safeio.Value{}, safeio.Unsupportedf("the tokens %d and %d are both %q, which tokenizer.json cannot hold", other, id, text)
		}
		seen[text] = id
		value, err := safeio.EncodeJSON(id)
		if err != nil {
			return value, err
		}
		members = append(members, safeio.Member{Key: text, Value: value})
	}
	return safeio.NewObject(members...)
}

// composed lists vocabularies whose tokenizers compose Unicode (NFC) first, by pre-tokenizer and number of plain tokens.
// GGUF does not record normalizers, and llama.cpp applies none.
var composed = [...]struct {
	pre   string
	plain int
}{{"qwen2", 151643}, {"deepseek-r1-qwen", 151643}}

func (v *vocabulary) normalizer() any {
	for _, c := range composed {
		if v.pre == c.pre && v.embedded() == c.plain {
			return map[string]any{"type": "NFC"}
		}
	}
	return nil
}

// bytePieces writes a byte-level BPE.
func (v *vocabulary) bytePieces(o *object, f *File) error {
	steps, ignoreMerges, ok := preOf(v.pre)
	if !ok {
		return safeio.Unsupportedf("the pre-tokenizer %q is not known here", v.pre)
	}
	vocab, err := v.vocab()
	if err != nil {
		return err
	}
	merges := make([][2]string, len(v.merges))
	for i, m := range v.merges {
		left, right, ok := strings.Cut(m, " ")
		if !ok {
			return safeio.Corruptf("the merge %q is no pair", m)
		}
		merges[i] = [2]string{left, right}
	}
	o.add("normalizer", v.normalizer())
	o.add("pre_tokenizer", steps)
	o.add("post_processor", f.postProcessor(v))
	o.add("decoder", byteLevelStep(true, true))
	model := &object{}
	model.add("type", "BPE")
	for _, key := range []string{"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"} {
		model.add(key, nil)
	}
	model.add("fuse_unk", false)
	model.add("byte_fallback", false)
	model.add("ignore_merges", ignoreMerges)
	model.add("vocab", vocab)
	model.add("merges", merges)
	return o.addObject("model", model)
}

// sentencePieces writes a SentencePiece vocabulary as BPE with byte fallback, as Transformers' converter does: every split
// of a piece into two pieces is a merge, ranked by the score of the result.
func (v *vocabulary) sentencePieces(o *object, f *File) error {
	vocab, err := v.vocab()
	if err != nil {
		return err
	}
	merges, err := v.mergesFromScores()
	if err != nil {
		return err
	}
	prefix := true
	if b, err := f.KV.Bool("tokenizer.ggml.add_space_prefix"); err == nil {
		prefix = b
	}
	replace := map[string]any{"type": "Replace", "pattern": map[string]any{"String": " "}, "content": spaceMark}
	steps := []any{replace}
	decoders := []any{
		map[string]any{"type": "Replace", "pattern": map[string]any{"String": spaceMark}, "content": " "},
		map[string]any{"type": "ByteFallback"}, map[string]any{"type": "Fuse"},
	}
	if prefix {
		steps = []any{map[string]any{"type": "Prepend", "prepend": spaceMark}, replace}
		decoders = append(decoders, map[string]any{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	o.add("normalizer", map[string]any{"type": "Sequence", "normalizers": steps})
	o.add("pre_tokenizer", nil)
	o.add("post_processor", f.postProcessor(v))
	o.add("decoder", map[string]any{"type": "Sequence", "decoders": decoders})
	model := &object{}
	model.add("type", "BPE")
	model.add("dropout", nil)
	model.add("unk_token", f.tokenOf(v, "unk"))
	model.add("continuing_subword_prefix", nil)
	model.add("end_of_word_suffix", nil)
	model.add("fuse_unk", true)
	model.add("byte_fallback", true)
	model.add("ignore_merges", false)
	model.add("vocab", vocab)
	model.add("merges", merges)
	return o.addObject("model", model)
}

func (o *object) addObject(key string, inner *object) error {
	v, err := inner.value()
	if err != nil {
		return err
	}
	o.add(key, v)
	return o.err
}

// mergesFromScores lists the merges in order of rank.
func (v *vocabulary) mergesFromScores() ([][2]string, error) {
	ids := make(map[string]int, len(v.tokens))
	for id, text := range v.tokens {
		if v.typ(id) != TokenUnused {
			ids[text] = id
		}
	}
	type merge struct {
		pair            [2]string
		score           float64
		id, left, right int
	}
	var all []merge
	low, high := 0.0, 0.0
	for id, text := range v.tokens {
		if v.typ(id) != TokenNormal {
			continue
		}
		for at := range text {
			if at == 0 {
				continue
			}
			left, ok1 := ids[text[:at]]
			right, ok2 := ids[text[at:]]
			if ok1 && ok2 {
				score := v.scores[id]
				if len(all) == 0 {
					low, high = score, score
				}
				low, high = min(low, score), max(high, score)
				all = append(all, merge{[2]string{text[:at], text[at:]}, score, id, left, right})
			}
		}
	}
	if len(all) > 1 && low == high {
		return nil, safeio.Unsupportedf("all scores of the vocabulary are %g: the order of merges is lost", low)
	}
	slices.SortStableFunc(all, func(a, b merge) int {
		return cmp.Or(-cmp.Compare(a.score, b.score), cmp.Compare(a.id, b.id), cmp.Compare(a.left, b.left), cmp.Compare(a.right, b.right))
	})
	pairs := make([][2]string, len(all))
	for i, m := range all {
		pairs[i] = m.pair
	}
	return pairs, nil
}
