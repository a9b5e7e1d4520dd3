package ggml

import (
	"encoding/base64"
	"encoding/binary"
	"math/bits"
	"sync"
)

// codebook is a list of level vectors, each packed into a uint16, first element lowest.
type codebook struct {
	elems   int // per codeword: 8 of 2 bits or 4 of 3 bits
	bits    int // per level
	levels  int // levels that the search produces: 0 … levels-1
	spread  int // how many distinct distances a neighbour list holds
	entries []uint16
	// index maps packed levels to the entry, or to -1-r when they are no codeword; r counts those.
	index []int16
	// list[start[r]:][:count[r]] holds the candidates for the r-th vector off the grid, nearest first, packed. Vector kernels
	// read to start[r+1]: lists are filled up to a multiple of eight with their first entry, which changes no minimum.
	start []int32
	count []uint16
	list  []uint16
}

// The codebooks, unpacked on first use: decoding needs a few kilobytes, neighbour lists a few megabytes.
var (
	entriesIQ2XXS = sync.OnceValue(func() []uint16 { return unpackBook(bookIQ2XXS) })
	entriesIQ2XS  = sync.OnceValue(func() []uint16 { return unpackBook(bookIQ2XS) })
	entriesIQ2S   = sync.OnceValue(func() []uint16 { return unpackBook(bookIQ2S) })
	entriesIQ3XXS = sync.OnceValue(func() []uint16 { return unpackBook(bookIQ3XXS) })
	entriesIQ3S   = sync.OnceValue(func() []uint16 { return unpackBook(bookIQ3S) })
	entriesIQ1    = sync.OnceValue(func() []uint16 { return unpackBook(bookIQ1) })

	gridIQ2XXS = sync.OnceValue(func() *codebook { return newCodebook(entriesIQ2XXS(), 8, 3, 2) })
	gridIQ2XS  = sync.OnceValue(func() *codebook { return newCodebook(entriesIQ2XS(), 8, 3, 2) })
	gridIQ2S   = sync.OnceValue(func() *codebook { return newCodebook(entriesIQ2S(), 8, 3, 1) })
	gridIQ3XXS = sync.OnceValue(func() *codebook { return newCodebook(entriesIQ3XXS(), 4, 8, 2) })
	gridIQ3S   = sync.OnceValue(func() *codebook { return newCodebook(entriesIQ3S(), 4, 8, 3) })
	gridIQ1    = sync.OnceValue(func() *codebook { return newCodebook(entriesIQ1(), 8, 3, 3) })
)

// unpackBook undoes the delta coding of codebook_data.go.
func unpackBook(book string) []uint16 {
	data, err := base64.RawStdEncoding.DecodeString(book)
	if err != nil {
		return nil // a constant of this package: codebook_test.go would have failed
	}
	var entries []uint16
	var last uint64
	for len(data) > 0 {
		delta, n := binary.Uvarint(data)
		last += delta
		entries = append(entries, uint16(last))
		data = data[max(n, 1):]
	}
	return entries
}

func newCodebook(entries []uint16, elems, levels, spread int) *codebook {
	c := &codebook{elems: elems, bits: 16 / elems, levels: levels, spread: spread, entries: entries}
	if elems == 4 {
		c.bits = 3
	}
	c.findNeighbours()
	return c
}

// vectors lists every packed vector the search can produce, ascending.
func (c *codebook) vectors() []int {
	all := []int{0}
	for i := c.elems - 1; i >= 0; i-- { // last element highest: the order stays ascending
		next := make([]int, 0, len(all)*c.levels)
		for _, v := range all {
			for l := range c.levels {
				next = append(next, v|l<<(c.bits*i))
			}
		}
		all = next
	}
	return all
}

// findNeighbours fills index, start and list. The candidates of a vector are all codewords whose squared distance is
// among the `spread` smallest that occur, by distance, then by position in the codebook.
func (c *codebook) findNeighbours() {
	all := c.vectors()
	c.index = make([]int16, all[len(all)-1]+1)
	for i := range c.index {
		c.index[i] = -1
	}
	for i, e := range c.entries {
		c.index[e] = int16(i)
	}
	half := c.elems / 2 * c.bits
	table := c.halfDistances(half)
	distance := make([]uint8, len(c.entries))
	r := 0
	for _, v := range all {
		if c.index[v] >= 0 {
			continue
		}
		c.index[v] = int16(-1 - r)
		r++
		first := len(c.list)
		c.start = append(c.start, int32(first))
		lo, hi := table[v&(1<<half-1)], table[v>>half]
		var seen [4]uint64 // set of the distances that occur
		for i, e := range c.entries {
			d := lo[int(e)&(1<<half-1)] + hi[int(e)>>half]
			distance[i] = d
			seen[d>>6] |= 1 << (d & 63)
		}
		c.appendNearest(distance, seen)
		c.count = append(c.count, uint16(len(c.list)-first))
		for len(c.list)%8 != 0 {
			c.list = append(c.list, c.list[first])
		}
	}
	c.start = append(c.start, int32(len(c.list)))
}

// appendNearest appends the codewords at the `spread` smallest distances of the set seen.
func (c *codebook) appendNearest(distance []uint8, seen [4]uint64) {
	for range c.spread {
		for word := range seen {
			if seen[word] == 0 {
				continue
			}
			d := uint8(word<<6 + bits.TrailingZeros64(seen[word]))
			seen[word] &= seen[word] - 1
			for i, e := range c.entries {
				if distance[i] == d {
					c.list = append(c.list, e)
				}
			}
			break
		}
	}
}

// halfDistances tabulates the squared distance between half vectors of the given width. Levels are equally spaced, so
// their difference stands for the difference of their values; half a vector reaches at most 4·3² or 2·7² = 98, a whole
// one 196.
func (c *codebook) halfDistances(width int) [][]uint8 {
	table := make([][]uint8, 1<<width)
	for a := range table {
		table[a] = make([]uint8, 1<<width)
		for b := range table[a] {
			d := 0
			for s := 0; s < width; s += c.bits {
				diff := a>>s&(1<<c.bits-1) - b>>s&(1<<c.bits-1)
				d += diff * diff
			}
			table[a][b] = uint8(d)
		}
	}
	return table
}

// candidates returns the neighbours of packed levels v, nil when v is a codeword.
func (c *codebook) candidates(v uint16) []uint16 {
	i := c.index[v]
	if i >= 0 {
		return nil
	}
	r := -1 - int(i)
	return c.list[c.start[r]:][:c.count[r]]
}

// nearest returns the candidate that minimises Σ cost[i][level i], added in index order; the first of equals.
func (c *codebook) nearest(candidates []uint16, cost *[8][8]float32) uint16 {
	if c.elems == 4 {
		return nearest4(candidates, cost)
	}
	return nearest8(candidates, cost)
}

func nearest8(candidates []uint16, cost *[8][8]float32) (found uint16) {
	best := float32(-1)
	for _, e := range candidates {
		d := cost[0][e&3] + cost[1][e>>2&3] + cost[2][e>>4&3] + cost[3][e>>6&3]
		if best >= 0 && d >= best { // terms are never negative: the sum can only grow
			continue
		}
		d = d + cost[4][e>>8&3] + cost[5][e>>10&3] + cost[6][e>>12&3] + cost[7][e>>14]
		if best < 0 || d < best {
			best, found = d, e
		}
	}
	return found
}

func nearest4(candidates []uint16, cost *[8][8]float32) (found uint16) {
	best := float32(-1)
	for _, e := range candidates {
		d := cost[0][e&7] + cost[1][e>>3&7] + cost[2][e>>6&7] + cost[3][e>>9&7]
		if best < 0 || d < best {
			best, found = d, e
		}
	}
	return found
}
