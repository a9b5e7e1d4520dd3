package gguf

import (
	"cmp"
	"slices"

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

// typ returns the type of a token.
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

// addedTokens lists the tokens that are matched before the model sees the text, by id.
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
