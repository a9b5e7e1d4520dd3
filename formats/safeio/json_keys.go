package safeio

import "hash/maphash"

// keySet finds repeated keys of one object. It stores offsets into the document, 4 bytes a key, so that an object with
// a million keys costs a small multiple of its own text. The hash is seeded per object: nobody can prepare collisions.
type keySet struct {
	few   [12]uint32 // offsets of the first keys; objects of this size never allocate
	n     int
	slots []uint32 // open addressing, offset+1, 0 is free; at most half full
	seed  maphash.Seed
}

// add records the key literal at offset i of s and reports whether it is new.
func (k *keySet) add(s string, i int) bool {
	if k.slots == nil {
		for _, at := range k.few[:k.n] {
			if sameKey(s, int(at), i) {
				return false
			}
		}
		if k.n < len(k.few) {
			k.few[k.n] = uint32(i)
			k.n++
			return true
		}
		k.seed = maphash.MakeSeed()
		k.grow(s, 32)
	}
	if !k.insert(s, i) {
		return false
	}
	if k.n++; 2*k.n > len(k.slots) {
		k.grow(s, 2*len(k.slots))
	}
	return true
}

func (k *keySet) grow(s string, size int) {
	old := k.slots
	k.slots = make([]uint32, size)
	if old == nil {
		for _, at := range k.few[:k.n] {
			k.insert(s, int(at))
		}
	}
	for _, at := range old {
		if at != 0 {
			k.insert(s, int(at-1))
		}
	}
}

func (k *keySet) insert(s string, i int) bool {
	mask := len(k.slots) - 1
	for slot := int(maphash.String(k.seed, keyAt(s, i))) & mask; ; slot = (slot + 1) & mask {
		at := k.slots[slot]
		if at == 0 {
			k.slots[slot] = uint32(i) + 1
			return true
		}
		if sameKey(s, int(at-1), i) {
			return false
		}
	}
}

func keyAt(s string, i int) string { return unquote(s[i:skipString(s, i)]) }

func sameKey(s string, a, b int) bool { return keyAt(s, a) == keyAt(s, b) }
