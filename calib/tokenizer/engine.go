package tokenizer

import (
	"strings"
	"sync"
)

// engine turns text into ids and back; special tokens around a whole text are not its business.
type engine interface {
	// encode appends the ids of valid UTF-8 text.
	encode(dst []int32, text string) []int32
	// decode returns the text of ids; unknown ids are passed over.
	decode(ids []int32) string
}

// hfEngine runs the pipeline of a tokenizer.json.
type hfEngine struct {
	vocab      *vocabulary
	model      bpe
	norm       normalizer
	raw        *addedSet // looked for in the text as it is
	normalized *addedSet // looked for in the normalized text
	steps      []step
	decoders   []decoder
	hasDecoder bool
	shown      map[int32]string // how added tokens enter decoding, where that is not their content
	pool       sync.Pool        // of *hfState
}

// hfState is what one call of encode works with.
type hfState struct {
	scratch
	e     *hfEngine
	sinks []sink // sinks[i] feeds step i, the last one the model
}

// newState builds the chain of sinks once, so that encoding allocates no closures per word.
func (e *hfEngine) newState() *hfState {
	st := &hfState{e: e, sinks: make([]sink, len(e.steps)+1)}
	st.sinks[len(e.steps)] = func(piece string, _ bool) { e.model.append(&st.scratch, piece) }
	for i, s := range e.steps {
		st.sinks[i] = func(piece string, first bool) {
			if piece != "" {
				s.apply(piece, first, st.sinks[i+1])
			}
		}
	}
	return st
}

// setAdded sorts the added tokens into those matched in raw and in normalized text.
func (e *hfEngine) setAdded(tokens []AddedToken) error {
	var list [2][]AddedToken
	var texts [2][]string
	e.shown = map[int32]string{}
	for _, tok := range tokens {
		k, text := 0, tok.Content
		if tok.Normalized {
			k = 1
			if e.norm != nil {
				text = e.norm(text)
			}
			if text != tok.Content {
				e.shown[tok.ID] = text
			}
		}
		list[k] = append(list[k], tok)
		texts[k] = append(texts[k], text)
	}
	var err error
	if e.raw, err = newAddedSet(list[0], texts[0]); err != nil {
		return err
	}
	e.normalized, err = newAddedSet(list[1], texts[1])
	return err
}

// cutWords lets the model cut its pieces at blanks when no merge can reach across one. Without a pre-tokenizer the
// piece is a whole document, and no cache could help.
func (e *hfEngine) cutWords() {
	m := &e.model
	if m.byteWise {
		return
	}
	if _, ok := m.runes['▁']; !ok { // a blank that is unknown would not end a run of unknown characters
		return
	}
	for _, p := range m.pairs.slots {
		if p.key != 0 && spansBlank(e.vocab.tokens[p.id]) {
			return
		}
	}
	m.cutSpace = true
}

// spansBlank reports whether U+2581 follows another character inside a token.
func spansBlank(token string) bool {
	for i := 0; i < len(token); {
		at := strings.Index(token[i:], metaspace)
		if at < 0 {
			return false
		}
		if at > 0 {
			return true
		}
		i += len(metaspace)
	}
	return false
}

// encode looks for added tokens first: text inside of them is not normalized, split or merged.
func (e *hfEngine) encode(dst []int32, text string) []int32 {
	st := e.pool.Get().(*hfState)
	st.dst = dst
	e.raw.split(text,
		func(start, end int) { st.plain(text[start:end], start == 0) },
		func(id int32) { st.dst = append(st.dst, id) })
	dst, st.dst = st.dst, nil
	e.pool.Put(st)
	return dst
}

// plain encodes text between added tokens.
func (st *hfState) plain(text string, first bool) {
	if text == "" {
		return
	}
	if st.e.norm != nil {
		text = st.e.norm(text)
	}
	st.e.normalized.split(text,
		func(start, end int) { st.piece(text[start:end], first && start == 0) },
		func(id int32) { st.dst = append(st.dst, id) })
}

// piece hands a stretch without added tokens to the pre-tokenizer.
func (st *hfState) piece(text string, first bool) {
	if text != "" {
		st.sinks[0](text, first)
	}
}

// decode looks up the tokens and applies the decoders. Normalized added tokens enter in the form in which they are
// matched, so that the decoder can undo the normalizer.
func (e *hfEngine) decode(ids []int32) string {
	tokens := make([]string, 0, len(ids))
	for _, id := range ids {
		if !e.vocab.has(id) {
			continue
		}
		token, ok := e.shown[id]
		if !ok {
			token = e.vocab.tokens[id]
		}
		tokens = append(tokens, token)
	}
	if !e.hasDecoder {
		return strings.Join(tokens, " ")
	}
	for _, d := range e.decoders {
		tokens = d(tokens)
	}
	return strings.Join(tokens, "")
}
