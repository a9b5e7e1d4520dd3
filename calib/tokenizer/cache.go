package tokenizer

import "math/bits"

// The shape of the cache: nearly all words of prose and code are shorter, and one megabyte fits a core's own cache.
const (
	maxCachedWord = 24      // bytes of a word that the cache takes
	maxCachedIDs  = 8       // ids of such a word
	cacheSlots    = 1 << 14 // slots, 64 bytes each
)

// wordKey is a short word as three machine words. Together with the length it is the word itself, not a digest.
type wordKey struct {
	a, b, c uint64
	size    uint16
}

// wordEntry is one remembered word; size is 0 for a free slot. The fields of the key are spelled out so that an entry
// fills one cache line.
type wordEntry struct {
	a, b, c uint64
	size    uint16
	n       uint16 // number of ids
	ids     [maxCachedIDs]int32
}

// wordCache remembers the ids of short words. Each word has one slot, which the latest word takes: memory is bounded,
// a look-up is one comparison, and there is nothing for the garbage collector to walk. It belongs to one goroutine.
type wordCache struct{ slots []wordEntry }

// keyOf packs a word of 1 to maxCachedWord bytes. Loads of the last 8 bytes overlap the ones before.
func keyOf(w string) wordKey {
	k := wordKey{size: uint16(len(w))}
	switch n := len(w); {
	case n > 16:
		k.a, k.b, k.c = load64(w), load64(w[8:]), load64(w[n-8:])
	case n > 8:
		k.a, k.b = load64(w), load64(w[n-8:])
	case n == 8:
		k.a = load64(w)
	case n >= 4:
		k.a = uint64(load32(w)) | uint64(load32(w[n-4:]))<<32
	case n >= 2:
		k.a = uint64(w[0]) | uint64(w[1])<<8 | uint64(w[n-1])<<16
	default:
		k.a = uint64(w[0])
	}
	return k
}

// load64 and load32 read little-endian; the compiler makes one load of each.
func load64(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// load32: see load64.
func load32(s string) uint32 {
	_ = s[3]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

// slot hashes by two wide multiplications. Words that collide take each other's place, nothing worse.
func (k *wordKey) slot() uint64 {
	hi, lo := bits.Mul64(k.a^0x9e3779b97f4a7c15, k.b^0xe7037ed1a0b428db^uint64(k.size))
	hi2, lo2 := bits.Mul64(hi^lo^k.c, 0xa0761d6478bd642f)
	return (hi2 ^ lo2) % cacheSlots
}

// find returns the entry of a word, nil when it is not there.
func (c *wordCache) find(k *wordKey) *wordEntry {
	if c.slots == nil {
		return nil
	}
	e := &c.slots[k.slot()]
	if e.a != k.a || e.b != k.b || e.c != k.c || e.size != k.size {
		return nil
	}
	return e
}

// store remembers the ids of a word when they fit.
func (c *wordCache) store(k *wordKey, ids []int32) {
	if len(ids) > maxCachedIDs {
		return
	}
	if c.slots == nil {
		c.slots = make([]wordEntry, cacheSlots)
	}
	e := &c.slots[k.slot()]
	e.a, e.b, e.c, e.size, e.n = k.a, k.b, k.c, k.size, uint16(len(ids))
	copy(e.ids[:], ids)
}
