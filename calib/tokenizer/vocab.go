package tokenizer

import (
	"slices"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
)

// Limits of a vocabulary: an order of magnitude over the largest public ones.
const (
	maxVocab  = 1 << 22 // ids
	maxMerges = 1 << 23
	maxAdded  = 1 << 17
)

// vocabulary holds the tokens by id and the ids by token. Ids may have holes.
type vocabulary struct {
	tokens []string // by id; a hole is ""
	used   []bool   // false marks a hole
	ids    map[string]int32
	count  int // tokens of the model itself, without added ones
}

// vocabEntry is one token as the file lists it.
type vocabEntry struct {
	token string
	id    int32
}

// newVocabulary checks ids and tokens for repeats. The tokens are copied together, so that the file they came from can
// be freed.
func newVocabulary(entries []vocabEntry) (*vocabulary, error) {
	size, bytes := 0, 0
	for _, e := range entries {
		size = max(size, int(e.id)+1)
		bytes += len(e.token)
	}
	if size > maxVocab {
		return nil, safeio.Limitf("the token id %d is over the limit of %d", size-1, maxVocab-1)
	}
	if size > 2*len(entries)+1<<16 { // a table of mostly holes would cost memory the file does not justify
		return nil, safeio.Corruptf("%d tokens have ids up to %d", len(entries), size-1)
	}
	v := &vocabulary{tokens: make([]string, size), used: make([]bool, size), ids: make(map[string]int32, len(entries)), count: len(entries)}
	var all strings.Builder
	all.Grow(bytes)
	for _, e := range entries {
		all.WriteString(e.token)
	}
	text := all.String()
	for _, e := range entries {
		token := text[:len(e.token)]
		text = text[len(e.token):]
		if v.used[e.id] {
			return nil, safeio.Corruptf("the id %d is given to %q and to %q", e.id, clip(v.tokens[e.id]), clip(token))
		}
		if _, dup := v.ids[token]; dup {
			return nil, safeio.Corruptf("the token %q occurs twice", clip(token))
		}
		v.tokens[e.id], v.used[e.id] = token, true
		v.ids[token] = e.id
	}
	return v, nil
}

// add gives an added token its id: the one its content has, else the next free one behind all others, which is how
// the library numbers them whatever the file says. The file's own number must agree.
func (v *vocabulary) add(token string, declared int32, next int) (int32, error) {
	id, known := v.ids[token]
	if !known {
		id = int32(next)
	}
	if id != declared {
		return 0, safeio.Corruptf("the added token %q has the id %d where the vocabulary gives it %d", clip(token), declared, id)
	}
	if known {
		return id, nil
	}
	if int(id) >= maxVocab {
		return 0, safeio.Limitf("the token id %d is over the limit of %d", id, maxVocab-1)
	}
	if n := int(id) + 1 - len(v.tokens); n > 0 {
		v.tokens = slices.Grow(v.tokens, n)[:id+1]
		v.used = slices.Grow(v.used, n)[:id+1]
	}
	if v.used[id] {
		return 0, safeio.Corruptf("the id %d is given to %q and to %q", id, clip(v.tokens[id]), clip(token))
	}
	v.tokens[id], v.used[id] = strings.Clone(token), true
	v.ids[v.tokens[id]] = id
	return id, nil
}

// id returns the id of a token, -1 when there is none.
func (v *vocabulary) id(token string) int32 {
	if id, ok := v.ids[token]; ok {
		return id
	}
	return -1
}

// has reports whether an id is in use.
func (v *vocabulary) has(id int32) bool { return id >= 0 && int(id) < len(v.used) && v.used[id] }
