package tokenizer

import (
	_ "embed"
	"encoding/binary"
	"sync"
	"unicode/utf8"
)

// A class is a set of categories: bit c stands for category c. All character classes of the known patterns are unions
// of categories, so a test costs one table look-up and one shift.
type class uint32

// The categories are Unicode's general categories with control characters divided further: what \s matches among them
// and, within that, the two characters that patterns treat as line ends.
const (
	catCn = iota
	catLu
	catLl
	catLt
	catLm
	catLo
	catMn
	catMc
	catMe
	catNd
	catNl
	catNo
	catPc
	catPd
	catPs
	catPe
	catPi
	catPf
	catPo
	catSm
	catSc
	catSk
	catSo
	catZs
	catZl
	catZp
	catCc
	catCf
	catCo
	catCs
	catControlSpace // TAB, VT, FF, NEL
	catNewline      // LF, CR
)

// The classes that patterns name.
const (
	classL       class = 1<<catLu | 1<<catLl | 1<<catLt | 1<<catLm | 1<<catLo
	classM       class = 1<<catMn | 1<<catMc | 1<<catMe
	classN       class = 1<<catNd | 1<<catNl | 1<<catNo
	classP       class = 1<<catPc | 1<<catPd | 1<<catPs | 1<<catPe | 1<<catPi | 1<<catPf | 1<<catPo
	classS       class = 1<<catSm | 1<<catSc | 1<<catSk | 1<<catSo
	classNewline class = 1 << catNewline
	classSpace   class = 1<<catZs | 1<<catZl | 1<<catZp | 1<<catControlSpace | classNewline // \s
	classUpper   class = 1<<catLu | 1<<catLt | classCaseless                                // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
	classLower   class = 1<<catLl | classCaseless                                           // [\p{Ll}\p{Lm}\p{Lo}\p{M}]

	classCaseless class = 1<<catLm | 1<<catLo | classM // both of the above
)

// categoryRuns is the category of every code point as runs of (uvarint length, category byte), Unicode 16.0.
//
//go:embed categories.bin
var categoryRuns []byte

// categories maps runes to categories in two stages of 256 entries.
type categories struct {
	ascii  [utf8.RuneSelf]uint8
	stage  [utf8.MaxRune>>8 + 1]uint16
	blocks [][256]uint8
}

// loadCategories expands the table once; it is constant from then on.
var loadCategories = sync.OnceValue(func() *categories { return expandCategories(categoryRuns) })

// expandCategories expands runs of (length, category). Equal blocks are stored once: most of the range is unassigned,
// private or Han.
func expandCategories(runs []byte) *categories {
	t := &categories{}
	seen := map[[256]uint8]uint16{}
	var block [256]uint8
	r := 0
	for len(runs) > 0 {
		n, w := binary.Uvarint(runs)
		cat := runs[w]
		runs = runs[w+1:]
		for range n {
			block[r&0xff] = cat
			if r++; r&0xff == 0 {
				at, ok := seen[block]
				if !ok {
					at = uint16(len(t.blocks))
					seen[block] = at
					t.blocks = append(t.blocks, block)
				}
				t.stage[r>>8-1] = at
			}
		}
	}
	copy(t.ascii[:], t.blocks[t.stage[0]][:utf8.RuneSelf])
	return t
}

// of returns the category of a code point.
func (t *categories) of(r rune) uint8 { return t.blocks[t.stage[uint32(r)>>8]][r&0xff] }

// is reports whether a code point is in a class.
func (t *categories) is(r rune, c class) bool { return c>>t.of(r)&1 != 0 }

// run returns the end of the longest run of characters in c that starts at i.
func (t *categories) run(s string, i int, c class) int {
	for i < len(s) {
		if b := s[i]; b < utf8.RuneSelf {
			if c>>(t.ascii[b]&31)&1 == 0 {
				return i
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if !t.is(r, c) {
			return i
		}
		i += n
	}
	return i
}

// one returns the end of the single character at i when it is in c, else -1.
func (t *categories) one(s string, i int, c class) int {
	if i >= len(s) {
		return -1
	}
	if b := s[i]; b < utf8.RuneSelf {
		if c>>(t.ascii[b]&31)&1 == 0 {
			return -1
		}
		return i + 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	if !t.is(r, c) {
		return -1
	}
	return i + n
}
