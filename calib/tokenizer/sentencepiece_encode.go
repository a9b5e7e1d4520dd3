package tokenizer

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// spEngine encodes as SentencePiece does with a BPE model: adjacent symbols whose joined text is a piece are joined,
// the piece of highest score first. Unlike in a tokenizer.json there are no merge rules; the text itself is looked up,
// so that characters without a piece of their own can still be part of one.
type spEngine struct {
	model    *spModel
	normal   map[string]int32 // pieces that text can become
	user     *addedSet        // user-defined pieces, found before anything else and kept whole
	charsmap *charsmap
	bytes    [256]int32
	unk      int32
	longest  int  // bytes of the longest piece in normal
	unused   bool // pieces exist that have to be taken apart again
	cutSpace bool // see bpe.cutSpace
	pool     sync.Pool
}

// spState is what one call of encode works with.
type spState struct {
	e       *spEngine
	cache   wordCache
	text    string // the word being encoded
	symbols []spSymbol
	heap    spHeap
	splits  map[string]int // how a piece of type unused was joined: the length of its left half
	dst     []int32
	unknown bool // the last id is the unknown piece
}

// spSymbol is a stretch of the text; end == start marks one that was joined to its left neighbour.
type spSymbol struct {
	start, end int32
	prev, next int32
	frozen     bool
}

// cutWords allows cutting normalized text at blanks when no piece reaches across one.
func (e *spEngine) cutWords() {
	if _, ok := e.normal[metaspace]; !ok || e.unused {
		return
	}
	for text := range e.normal {
		if spansBlank(text) {
			return
		}
	}
	e.cutSpace = true
}

// encode normalizes the whole text at once: blanks at its ends count.
func (e *spEngine) encode(dst []int32, text string) []int32 {
	st := e.pool.Get().(*spState)
	st.dst, st.unknown = dst, false
	text = e.normalize(text)
	if e.cutSpace {
		st.eachWord(text)
	} else {
		st.word(text)
	}
	dst, st.dst, st.text = st.dst, nil, ""
	e.pool.Put(st)
	return dst
}

// normalize applies the model's normalizer: rules of the character map, dummy prefix, blanks.
func (e *spEngine) normalize(s string) string {
	m := e.model
	if m.removeExtra {
		for s != "" {
			with, n := e.rule(s)
			if with != " " {
				break
			}
			s = s[n:]
		}
	}
	if s == "" {
		return ""
	}
	blank := " "
	if m.escapeSpace {
		blank = metaspace
	}
	var b strings.Builder
	b.Grow(len(s) + len(s)/2)
	if m.dummyPrefix {
		b.WriteString(blank)
	}
	if e.user == nil && e.charsmap == nil && !m.removeExtra {
		b.WriteString(strings.ReplaceAll(s, " ", blank))
		return b.String()
	}
	afterBlank := m.removeExtra
	for s != "" {
		with, n := e.rule(s)
		s = s[n:]
		if afterBlank {
			with = strings.TrimLeft(with, " ")
		}
		if with != "" {
			b.WriteString(strings.ReplaceAll(with, " ", blank))
			afterBlank = m.removeExtra && strings.HasSuffix(with, " ")
		}
	}
	out := b.String()
	if m.removeExtra {
		for strings.HasSuffix(out, blank) {
			out = out[:len(out)-len(blank)]
		}
	}
	return out
}

// rule returns what the beginning of s becomes and how much of s that is.
func (e *spEngine) rule(s string) (with string, n int) {
	if k, end := e.user.at(s, 0); k >= 0 {
		return s[:end], end
	}
	if e.charsmap != nil {
		if with, n := e.charsmap.longest(s); n > 0 {
			return with, n
		}
	}
	_, n = utf8.DecodeRuneInString(s)
	return s[:n], n
}

// eachWord encodes the stretches between blanks one by one; see bpe.eachWord.
func (st *spState) eachWord(text string) {
	start, i := 0, 0
	for {
		at := strings.Index(text[i:], metaspace)
		if at < 0 {
			break
		}
		if at > 0 {
			st.cached(text[start : i+at])
			start = i + at
		}
		i += at + len(metaspace)
	}
	st.cached(text[start:])
}

// cached encodes one word, from the cache when it has been there before.
func (st *spState) cached(w string) {
	if w == "" {
		return
	}
	if len(w) > maxCachedWord {
		st.word(w)
		return
	}
	key := keyOf(w)
	if e := st.cache.find(&key); e != nil {
		st.dst = append(st.dst, e.ids[:e.n]...)
		return
	}
	at := len(st.dst)
	st.unknown = false // the word begins the text or with a blank, which is a piece
	st.word(w)
	st.cache.store(&key, st.dst[at:])
}

// word splits w into characters and user-defined pieces and joins them.
func (st *spState) word(w string) {
	if w == "" {
		return
	}
	e := st.e
	st.text = w
	st.symbols, st.heap = st.symbols[:0], st.heap[:0]
	for i := 0; i < len(w); {
		k, end := e.user.at(w, i)
		if k < 0 {
			_, n := utf8.DecodeRuneInString(w[i:])
			end = i + n
		}
		at := int32(len(st.symbols))
		st.symbols = append(st.symbols, spSymbol{int32(i), int32(end), at - 1, at + 1, k >= 0})
		i = end
	}
	last := len(st.symbols) - 1
	st.symbols[last].next = -1
	clear(st.splits)
	for i := range last {
		st.propose(int32(i), int32(i+1))
	}
	st.join()
	for i := int32(0); i >= 0; i = st.symbols[i].next {
		st.piece(w[st.symbols[i].start:st.symbols[i].end])
	}
}

// propose puts the pair of two neighbours into the heap when their text is a piece.
func (st *spState) propose(left, right int32) {
	if left < 0 || right < 0 {
		return
	}
	a, b := &st.symbols[left], &st.symbols[right]
	size := b.end - a.start
	if a.frozen || b.frozen || int(size) > st.e.longest {
		return
	}
	text := st.text[a.start:b.end]
	id, ok := st.e.normal[text]
	if !ok {
		return
	}
	p := &st.e.model.pieces[id]
	st.heap.push(spCandidate{scoreOrder(p.score)<<32 | uint64(uint32(left)), right, size})
	if p.kind == TypeUnused {
		if st.splits == nil {
			st.splits = map[string]int{}
		}
		st.splits[text] = int(a.end - a.start)
	}
}

// join makes the proposed pairs, best score first and leftmost among equals. A proposal counts only while both its
// symbols are as they were.
func (st *spState) join() {
	for len(st.heap) > 0 {
		top := st.heap.pop()
		left := int32(uint32(top.key))
		a, b := &st.symbols[left], &st.symbols[top.right]
		if a.start == a.end || b.start == b.end || a.end-a.start+b.end-b.start != top.size {
			continue
		}
		a.end = b.end
		b.end = b.start
		if a.next = b.next; a.next >= 0 {
			st.symbols[a.next].prev = left
		}
		st.propose(a.prev, left)
		st.propose(left, a.next)
	}
}

// piece appends the ids of one final symbol. A piece of type unused is taken apart the way it was joined, its parts
// likewise.
func (st *spState) piece(w string) {
	var later []string // right halves still to come, the next one last
	for {
		id := st.e.pieceID(w)
		n := st.splits[w]
		if st.e.model.pieces[id].kind == TypeUnused && n > 0 {
			later = append(later, w[n:])
			w = w[:n]
			continue
		}
		st.emit(w, id)
		if len(later) == 0 {
			return
		}
		w, later = later[len(later)-1], later[:len(later)-1]
	}
}

// pieceID returns the piece that a text is. Control, unknown and byte pieces are never meant by text that spells them.
func (e *spEngine) pieceID(w string) int32 {
	if id, ok := e.normal[w]; ok {
		return id
	}
	return e.unk
}

// emit appends the ids of one piece.
func (st *spState) emit(w string, id int32) {
	e := st.e
	switch {
	case id != e.unk:
		st.dst = append(st.dst, id)
	case e.model.byteFallback:
		for _, b := range []byte(w) {
			st.dst = append(st.dst, e.bytes[b])
		}
	case !st.unknown: // neighbouring unknown pieces are one
		st.dst = append(st.dst, id)
	}
	st.unknown = id == e.unk
}
