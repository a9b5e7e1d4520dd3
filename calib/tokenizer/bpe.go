package tokenizer

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"strings"
	"unicode/utf8"
)

// bpe is the merge model: a word becomes its smallest symbols, then adjacent symbols that form a known pair are
// joined, the pair of lowest rank first and of several equal ones the leftmost, until none is left.
type bpe struct {
	pairs pairTable

	bytes    [256]int32       // byte-level: the id of each byte; else: the id of <0xNN> for byte fallback. -1 is none
	byteWise bool             // symbols are bytes
	ascii    [128]int32       // ids of ASCII characters, -1 is none
	runes    map[rune]int32   // ids of all other characters
	fallback bool             // unknown characters become bytes where all their bytes have ids
	unk      int32            // -1: unknown characters vanish
	fuse     bool             // neighbouring unknown characters become one unk
	whole    map[string]int32 // words taken as they are before any merging (ignore_merges), nil when off
	cutSpace bool             // no token holds U+2581 behind another character: see eachWord
}

// pair is one merge rule: what two symbols become, and when.
type pair struct {
	key  uint64 // left<<32 | right, +1 so that 0 is free
	rank uint32
	id   int32
}

// pairTable is an open-addressing hash table of merge rules, at most two thirds full.
//
// Keys come from the file, so that with a known hash somebody could make all of them collide: the factor is drawn anew
// for every table. Only the order of slots depends on it.
//
// Most questions are answered with no, and the table is larger than a processor's near caches. The filter, a bitmap of
// the hashes of all rules and a sixteenth of the size, answers most of those; Chinese text is a third faster with it.
type pairTable struct {
	slots  []pair
	shift  uint
	factor uint64   // odd
	filter []uint64 // eight bits per slot
}

// noRank is above every rank: there is no such rule.
const noRank = math.MaxUint32

// newPairTable makes room for n rules.
func newPairTable(n int) pairTable {
	size := uint(bits.Len(uint(n + n/2 + 8)))
	return pairTable{slots: make([]pair, 1<<size), shift: 64 - size, factor: rand.Uint64() | 1, filter: make([]uint64, 1<<size/8)}
}

// pairKey is never 0, which marks a free slot: ids stay below 2³¹.
func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) + 1 }

// hash multiplies; the highest bits choose the slot, three more the bit of the filter.
func (t *pairTable) hash(key uint64) (slot, bit uint64) {
	h := key * t.factor
	return h >> t.shift, h >> (t.shift - 3)
}

// set adds a rule; of two rules for the same pair the later one counts.
func (t *pairTable) set(left, right int32, rank uint32, id int32) {
	key := pairKey(left, right)
	mask := uint64(len(t.slots) - 1)
	i, bit := t.hash(key)
	t.filter[bit>>6] |= 1 << (bit & 63)
	for t.slots[i].key != 0 && t.slots[i].key != key {
		i = (i + 1) & mask
	}
	t.slots[i] = pair{key, rank, id}
}

// get returns the rule for a pair; its rank is noRank when there is none.
func (t *pairTable) get(left, right int32) (rank uint32, id int32) {
	key := pairKey(left, right)
	i, bit := t.hash(key)
	if t.filter[bit>>6]>>(bit&63)&1 == 0 {
		return noRank, -1
	}
	mask := uint64(len(t.slots) - 1)
	for ; ; i = (i + 1) & mask {
		p := &t.slots[i]
		if p.key == key {
			return p.rank, p.id
		}
		if p.key == 0 {
			return noRank, -1
		}
	}
}

// scratch is the memory of one encoding call; it is reused, and belongs to one goroutine at a time.
type scratch struct {
	cache wordCache
	ids   []int32  // symbols of the current word
	rank  []uint32 // rank of the pair that begins with each symbol
	into  []int32  // what that pair becomes
	prev  []int32
	next  []int32
	heap  minHeap
	dst   []int32 // ids of the text so far
}

// maxShort is the longest word, in symbols, that is merged by scanning for the lowest rank.
const maxShort = 24

// append encodes one piece and appends its ids to sc.dst.
func (m *bpe) append(sc *scratch, piece string) {
	if m.cutSpace {
		m.eachWord(sc, piece)
		return
	}
	m.word(sc, piece)
}

// eachWord cuts a piece in front of every U+2581 that follows another character. When no token spans such a place no
// merge can, so the ids are the same as for the whole piece, and words repeat where texts do not.
func (m *bpe) eachWord(sc *scratch, piece string) {
	start, i := 0, 0
	for {
		at := strings.Index(piece[i:], metaspace)
		if at < 0 {
			break
		}
		if at > 0 && i+at > start {
			m.word(sc, piece[start:i+at])
			start = i + at
		}
		i += at + len(metaspace)
	}
	if start < len(piece) {
		m.word(sc, piece[start:])
	}
}

// metaspace is the visible blank of SentencePiece, U+2581.
const metaspace = "▁"

// word encodes one word, from the cache when it has been there before.
func (m *bpe) word(sc *scratch, w string) {
	if len(w) == 0 {
		return
	}
	if len(w) <= maxCachedWord {
		key := keyOf(w)
		if e := sc.cache.find(&key); e != nil {
			sc.dst = append(sc.dst, e.ids[:e.n]...)
			return
		}
		at := len(sc.dst)
		m.encode(sc, w)
		sc.cache.store(&key, sc.dst[at:])
		return
	}
	m.encode(sc, w)
}

// encode splits one word into symbols and merges them.
func (m *bpe) encode(sc *scratch, w string) {
	if m.whole != nil {
		if id, ok := m.whole[w]; ok {
			sc.dst = append(sc.dst, id)
			return
		}
	}
	sc.ids = sc.ids[:0]
	if m.byteWise {
		m.byteSymbols(sc, w)
	} else {
		m.runeSymbols(sc, w)
	}
	if len(sc.ids) <= maxShort {
		m.mergeShort(sc)
	} else {
		m.mergeLong(sc)
	}
}

// byteSymbols makes one symbol of every byte.
func (m *bpe) byteSymbols(sc *scratch, w string) {
	pending := false // an unknown symbol waits
	for i := range len(w) {
		if id := m.bytes[w[i]]; id >= 0 {
			sc.symbol(id, m.unk, &pending)
			continue
		}
		m.unknown(sc, &pending)
	}
	sc.flushUnknown(m.unk, &pending)
}

// runeSymbols makes one symbol of every character, or one of every byte of a character that the vocabulary lacks.
func (m *bpe) runeSymbols(sc *scratch, w string) {
	pending := false
	for i := 0; i < len(w); {
		n := 1
		id := int32(-1)
		if b := w[i]; b < utf8.RuneSelf {
			id = m.ascii[b]
		} else {
			var r rune
			r, n = utf8.DecodeRuneInString(w[i:])
			if k, ok := m.runes[r]; ok {
				id = k
			}
		}
		switch {
		case id >= 0:
			sc.symbol(id, m.unk, &pending)
		case m.fallback && m.hasBytes(w[i:i+n]):
			// The library leaves a waiting unknown symbol waiting here, behind the bytes.
			for _, b := range []byte(w[i : i+n]) {
				sc.ids = append(sc.ids, m.bytes[b])
			}
		default:
			m.unknown(sc, &pending)
		}
		i += n
	}
	sc.flushUnknown(m.unk, &pending)
}

// hasBytes reports whether all bytes of s have ids: byte fallback works for whole characters only.
func (m *bpe) hasBytes(s string) bool {
	for i := range len(s) {
		if m.bytes[s[i]] < 0 {
			return false
		}
	}
	return true
}

// unknown notes a character without an id.
func (m *bpe) unknown(sc *scratch, pending *bool) {
	if m.unk < 0 {
		return
	}
	if *pending && !m.fuse {
		sc.ids = append(sc.ids, m.unk)
	}
	*pending = true
}

// symbol appends a known symbol behind a waiting unknown one.
func (sc *scratch) symbol(id, unk int32, pending *bool) {
	sc.flushUnknown(unk, pending)
	sc.ids = append(sc.ids, id)
}

// flushUnknown appends the unknown symbol that waits, if one does.
func (sc *scratch) flushUnknown(unk int32, pending *bool) {
	if *pending {
		sc.ids = append(sc.ids, unk)
		*pending = false
	}
}
