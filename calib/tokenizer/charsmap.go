package tokenizer

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"github.com/llmquant/quantize/formats/safeio"
)

// charsmap is SentencePiece's compiled normalization: a double-array trie (Darts) from texts to the offsets of their
// replacements.
type charsmap struct {
	units        []uint32
	replacements string // each ends with a NUL
}

// maxReplacement bounds what one character may become; the longest of Unicode's compatibility forms has 33 bytes.
const maxReplacement = 256

// newCharsmap reads <trie size><trie><replacements>. The trie is not walked here; whatever it holds, a step that leaves
// it is a text without a rule.
func newCharsmap(blob []byte) (*charsmap, error) {
	if len(blob) < 4 {
		return nil, safeio.Corruptf("the precompiled character map is cut off")
	}
	size := int64(binary.LittleEndian.Uint32(blob))
	blob = blob[4:]
	if size%4 != 0 || size >= int64(len(blob)) {
		return nil, safeio.Corruptf("the trie of the precompiled character map has %d bytes of %d", size, len(blob))
	}
	c := &charsmap{units: make([]uint32, size/4), replacements: string(blob[size:])}
	if !utf8.ValidString(c.replacements) {
		return nil, safeio.Corruptf("the precompiled character map is not valid UTF-8")
	}
	for r := range strings.SplitSeq(c.replacements, "\x00") {
		if len(r) > maxReplacement {
			return nil, safeio.Limitf("a replacement of the precompiled character map is longer than %d bytes", maxReplacement)
		}
	}
	for i := range c.units {
		c.units[i] = binary.LittleEndian.Uint32(blob[4*i:])
	}
	return c, nil
}

// longest returns the replacement for the longest prefix of s with a rule and the length of that prefix, 0 for none.
func (c *charsmap) longest(s string) (with string, n int) {
	if len(c.units) == 0 {
		return "", 0
	}
	node := trieOffset(c.units[0])
	value := uint32(0)
	for i := range len(s) {
		node ^= uint32(s[i])
		if uint64(node) >= uint64(len(c.units)) {
			break
		}
		unit := c.units[node]
		if unit&(1<<31|0xff) != uint32(s[i]) {
			break
		}
		node ^= trieOffset(unit)
		if unit>>8&1 == 1 && uint64(node) < uint64(len(c.units)) {
			value, n = c.units[node]&(1<<31-1), i+1
		}
	}
	if n == 0 || uint64(value) >= uint64(len(c.replacements)) {
		return "", 0
	}
	with, _, _ = strings.Cut(c.replacements[value:], "\x00")
	return with, n
}

// trieOffset decodes where the children of a unit lie.
func trieOffset(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }
