package parquet

import (
	"encoding/binary"

	"github.com/llmquant/quantize/formats/safeio"
)

// maxDeltaLengths bounds the values of a page whose lengths Arrow decodes into one slice.
const maxDeltaLengths = 4 << 20

// checkValues proves that Arrow can decode n values of a leaf from data. dict is the size of the dictionary, -1 when
// the chunk has none so far.
func checkValues(leaf *node, encoding int64, data []byte, n, dict int) error {
	switch {
	case encoding == encPlain && leaf.typ == typeByteArray:
		return plainStrings(data, n)
	case encoding == encPlain:
		if width := plainWidth(leaf.typ); len(data)/width < n {
			return safeio.Corruptf("a page of %d bytes cannot hold %d integers", len(data), n)
		}
		return nil
	case encoding == encPlainDict || encoding == encRLEDict:
		return indices(data, n, dict)
	case encoding == encDelta && leaf.typ != typeByteArray:
		_, err := delta(data, n, 8*plainWidth(leaf.typ), func(int64) error { return nil })
		return err
	case encoding == encDeltaLength && leaf.typ == typeByteArray:
		return deltaStrings(data, n)
	}
	return safeio.Unsupportedf("values of type %s in encoding %d", typeNames[leaf.typ], encoding)
}

// plainWidth is the number of bytes of an integer.
func plainWidth(typ int32) int {
	if typ == typeInt64 {
		return 8
	}
	return 4
}

// plainStrings walks n strings, each behind its length.
func plainStrings(data []byte, n int) error {
	for i := range n {
		if len(data) < 4 {
			return safeio.Corruptf("a page ends before string %d of %d", i, n)
		}
		size := binary.LittleEndian.Uint32(data)
		if uint64(size) > uint64(len(data)-4) {
			return safeio.Corruptf("string %d of %d claims %d bytes, the page has %d left", i, n, size, len(data)-4)
		}
		data = data[4+size:]
	}
	return nil
}

// indices checks dictionary indices: a byte with their width, then the hybrid.
func indices(data []byte, n, dict int) error {
	switch {
	case dict < 0:
		return safeio.Corruptf("a page refers to a dictionary that is not there")
	case n == 0:
		return nil
	case len(data) == 0:
		return safeio.Corruptf("a page ends before its %d indices", n)
	case dict == 0:
		return safeio.Corruptf("a page refers to an empty dictionary")
	case data[0] > 32:
		return safeio.Corruptf("dictionary indices of %d bits", data[0])
	}
	_, err := hybrid(data[1:], int(data[0]), n, uint64(dict-1))
	return err
}

// delta walks the delta encoding of n integers and returns what follows it. Blocks and miniblocks must have the sizes
// of the format: Arrow allocates and loops by them.
func delta(data []byte, n, bits int, value func(int64) error) (rest []byte, err error) {
	var head [3]uint64 // block size, miniblocks per block, number of values
	for i := range head {
		if head[i], data, err = uvarint(data); err != nil {
			return nil, err
		}
	}
	size, minis := head[0], head[1]
	if size == 0 || size%128 != 0 || size > 1<<16 || minis == 0 || size%minis != 0 || (size/minis)%32 != 0 {
		return nil, safeio.Corruptf("delta blocks of %d values in %d miniblocks", size, minis)
	}
	if head[2] != uint64(n) {
		return nil, safeio.Corruptf("a page of %d values has %d delta-encoded ones", n, head[2])
	}
	last, data, err := zigzag(data)
	if err != nil || n == 0 {
		return data, err
	}
	if err := value(last); err != nil {
		return nil, err
	}
	for n--; n > 0; {
		if last, n, data, err = deltaBlock(data, int(minis), int(size/minis), n, bits, last, value); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// deltaBlock walks one block: the least delta, a bit width per miniblock, the miniblocks up to the last value.
func deltaBlock(data []byte, minis, per, n, bits int, last int64, value func(int64) error) (int64, int, []byte, error) {
	least, data, err := zigzag(data)
	if err != nil {
		return 0, 0, nil, err
	}
	if len(data) < minis {
		return 0, 0, nil, safeio.Corruptf("a delta block ends early")
	}
	widths, data := data[:minis], data[minis:]
	for _, w := range widths {
		if n == 0 {
			break
		}
		need := int(w) * per / 8
		if int(w) > bits || len(data) < need {
			return 0, 0, nil, safeio.Corruptf("a delta block ends early, or has deltas of %d bits", w)
		}
		r := bitReader{b: data[:need]}
		for range min(per, n) {
			last += least + int64(r.read(int(w)))
			if bits == 32 {
				last = int64(int32(last))
			}
			if err := value(last); err != nil {
				return 0, 0, nil, err
			}
			n--
		}
		data = data[need:]
	}
	return last, n, data, nil
}

// bitReader reads little-endian bit fields of up to 64 bits from bytes known to suffice.
type bitReader struct {
	b   []byte
	pos int // in bits
}

// read returns the next field.
func (r *bitReader) read(width int) uint64 {
	var v uint64
	for got := 0; got < width; {
		off := r.pos & 7
		take := min(8-off, width-got)
		v |= uint64(r.b[r.pos>>3]>>off) & (1<<take - 1) << got
		got += take
		r.pos += take
	}
	return v
}

// deltaStrings checks delta-encoded lengths and that their bytes are there.
func deltaStrings(data []byte, n int) error {
	if n > maxDeltaLengths {
		return safeio.Limitf("a page of %d delta-encoded strings, over the limit of %d", n, maxDeltaLengths)
	}
	total := int64(0)
	rest, err := delta(data, n, 32, func(v int64) error {
		total += v
		if v < 0 || total > int64(len(data)) {
			return safeio.Corruptf("a string claims %d bytes, more than its page has", v)
		}
		return nil
	})
	if err == nil && total > int64(len(rest)) {
		err = safeio.Corruptf("strings of %d bytes in all, the page has %d", total, len(rest))
	}
	return err
}

// uvarint reads an unsigned number off the front of data.
func uvarint(data []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(data)
	if n <= 0 {
		return 0, nil, safeio.Corruptf("a page ends inside of a number")
	}
	return v, data[n:], nil
}

// zigzag reads a signed number off the front of data.
func zigzag(data []byte) (int64, []byte, error) {
	u, rest, err := uvarint(data)
	return int64(u>>1) ^ -int64(u&1), rest, err
}
