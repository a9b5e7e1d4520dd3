package parquet

import (
	"encoding/binary"

	"github.com/llmquant/quantize/formats/safeio"
)

// hybrid walks the RLE and bit-packing hybrid: count values of width bits, none above max. It returns how many of
// them equal max. Arrow's decoder stops silently, or loops, where the data ends early; this proves that it does not.
func hybrid(data []byte, width, count int, max uint64) (equal int, err error) {
	i := 0
	for count > 0 {
		head, n := binary.Uvarint(data[i:])
		if n <= 0 {
			return 0, safeio.Corruptf("levels or indices end early: %d are missing", count)
		}
		i += n
		run := head >> 1
		if run == 0 || run > 1<<31-1 {
			return 0, safeio.Corruptf("a run of %d levels or indices is impossible", run)
		}
		if head&1 == 0 {
			bytes := (width + 7) / 8
			if len(data)-i < bytes {
				return 0, safeio.Corruptf("levels or indices end inside of a run")
			}
			v := littleEndian(data[i : i+bytes])
			i += bytes
			if v > max {
				return 0, safeio.Corruptf("a level or index is %d, at most %d is possible", v, max)
			}
			n := min(int(run), count)
			if v == max {
				equal += n
			}
			count -= n
			continue
		}
		if run > (1<<31-1)/8 {
			return 0, safeio.Corruptf("a run of %d levels or indices is impossible", run)
		}
		n = min(int(run)*8, count)
		need := (n*width + 7) / 8
		if len(data)-i < need {
			return 0, safeio.Corruptf("levels or indices end inside of a run")
		}
		e, err := packed(data[i:i+need], width, n, max)
		if err != nil {
			return 0, err
		}
		equal += e
		count -= n
		i = min(len(data), i+int(run)*width) // the last group may be cut off behind the last value
	}
	return equal, nil
}

// littleEndian reads up to eight bytes.
func littleEndian(b []byte) uint64 {
	var v uint64
	for i, c := range b {
		v |= uint64(c) << (8 * i)
	}
	return v
}

// packed checks n bit-packed values.
func packed(data []byte, width, n int, max uint64) (equal int, err error) {
	var acc uint64
	have, i := 0, 0
	mask := uint64(1)<<width - 1
	for range n {
		for have < width {
			acc |= uint64(data[i]) << have
			i++
			have += 8
		}
		v := acc & mask
		acc >>= width
		have -= width
		if v > max {
			return 0, safeio.Corruptf("a level or index is %d, at most %d is possible", v, max)
		}
		if v == max {
			equal++
		}
	}
	return equal, nil
}

// levels checks the repetition and definition levels of a page and returns the number of values that are there (not
// null) and the bytes that hold them.
func (p *page) levels(leaf *node) (present int, values []byte, err error) {
	rest := p.data
	n := int(p.values)
	present = n
	for _, l := range []struct {
		max      int
		bytes    int64
		encoding int64
		def      bool
	}{{leaf.maxRep, p.repBytes, p.repEnc, false}, {leaf.maxDef, p.defBytes, p.defEnc, true}} {
		var part []byte
		if p.typ == pageDataV2 {
			part, rest = rest[:l.bytes], rest[l.bytes:]
		} else if l.max > 0 {
			if part, rest, err = prefixed(rest, l.encoding); err != nil {
				return 0, nil, err
			}
		}
		if l.max == 0 {
			continue
		}
		equal, err := hybrid(part, bitWidth(l.max), n, uint64(l.max))
		if err != nil {
			return 0, nil, err
		}
		if l.def {
			present = equal
		}
	}
	return present, rest, nil
}

// prefixed splits off levels that stand behind their length in four bytes.
func prefixed(data []byte, encoding int64) (part, rest []byte, err error) {
	if encoding != encRLE {
		return nil, nil, safeio.Unsupportedf("levels in encoding %d", encoding)
	}
	if len(data) < 4 {
		return nil, nil, safeio.Corruptf("a page ends before its levels")
	}
	n := binary.LittleEndian.Uint32(data)
	if uint64(n) > uint64(len(data)-4) {
		return nil, nil, safeio.Corruptf("the levels of a page are longer than the page")
	}
	return data[4 : 4+n], data[4+n:], nil
}
