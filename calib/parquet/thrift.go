package parquet

import (
	"errors"
	"math/bits"

	"github.com/llmquant/quantize/formats/safeio"
)

// The types of Thrift's compact protocol.
const (
	tTrue   = 1
	tFalse  = 2
	tByte   = 3
	tI16    = 4
	tI32    = 5
	tI64    = 6
	tDouble = 7
	tBinary = 8
	tList   = 9
	tSet    = 10
	tMap    = 11
	tStruct = 12
	tUUID   = 13
)

// maxThriftDepth bounds nesting; FileMetaData needs seven levels.
const maxThriftDepth = 24

// errShort says that the bytes end inside of a structure. A page header is then read again with more of the file.
var errShort = errors.New("the structure ends early")

// thrift walks a structure in the compact protocol. It allocates nothing by itself; every count is checked against
// the bytes left before anybody acts on it.
type thrift struct {
	b     []byte
	i     int
	depth int
}

// left is how many bytes there are to come.
func (t *thrift) left() int { return len(t.b) - t.i }

func (t *thrift) byte() (byte, error) {
	if t.i >= len(t.b) {
		return 0, errShort
	}
	t.i++
	return t.b[t.i-1], nil
}

// varint reads an unsigned integer of up to 64 bits in groups of seven.
func (t *thrift) varint() (uint64, error) {
	var x uint64
	for shift := uint(0); ; shift += 7 {
		c, err := t.byte()
		if err != nil {
			return 0, err
		}
		if shift == 63 && c > 1 {
			return 0, safeio.Corruptf("an integer has more than 64 bits")
		}
		x |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return x, nil
		}
	}
}

// zigzag reads a signed integer.
func (t *thrift) zigzag() (int64, error) {
	u, err := t.varint()
	return int64(u>>1) ^ -int64(u&1), err
}

// integer reads a field of type i16, i32 or i64.
func (t *thrift) integer(typ byte) (int64, error) {
	if typ != tI16 && typ != tI32 && typ != tI64 {
		return 0, wrongType(typ)
	}
	v, err := t.zigzag()
	if err == nil && typ != tI64 && v != int64(int32(v)) {
		return 0, safeio.Corruptf("integer %d does not fit 32 bits", v)
	}
	return v, err
}

func wrongType(typ byte) error { return safeio.Corruptf("a field has the wrong type %d", typ) }

// binary returns a string's bytes, which alias the input.
func (t *thrift) binary(typ byte) ([]byte, error) {
	if typ != tBinary {
		return nil, wrongType(typ)
	}
	n, err := t.varint()
	if err != nil {
		return nil, err
	}
	if n > uint64(t.left()) {
		return nil, errShort
	}
	t.i += int(n)
	return t.b[t.i-int(n) : t.i], nil
}

// list reads the header of a list and checks the count against the least size of its elements: one byte each.
func (t *thrift) list(typ byte) (elem byte, n int, err error) {
	if typ != tList && typ != tSet {
		return 0, 0, wrongType(typ)
	}
	h, err := t.byte()
	if err != nil {
		return 0, 0, err
	}
	size := uint64(h >> 4)
	if size == 15 {
		if size, err = t.varint(); err != nil {
			return 0, 0, err
		}
	}
	if size > uint64(t.left()) {
		return 0, 0, errShort
	}
	return h & 15, int(size), nil
}

// structure walks the fields of a struct. field reads the value of one it knows and returns true, or returns false to
// have it skipped. A field that occurs twice is an error: two readers would keep different ones.
func (t *thrift) structure(field func(id int64, typ byte) (bool, error)) error {
	if t.depth++; t.depth > maxThriftDepth {
		return safeio.Corruptf("structures are nested deeper than %d levels", maxThriftDepth)
	}
	defer func() { t.depth-- }()
	var id int64
	var seen uint64
	for {
		h, err := t.byte()
		if err != nil {
			return err
		}
		typ := h & 15
		if typ == 0 {
			return nil
		}
		if d := int64(h >> 4); d != 0 {
			id += d
		} else if id, err = t.zigzag(); err != nil {
			return err
		}
		if id < 0 || id > 1<<15-1 {
			return safeio.Corruptf("field id %d is impossible", id)
		}
		if bit := uint64(1) << (id & 63); id < 64 {
			if seen&bit != 0 {
				return safeio.Corruptf("field %d occurs twice", id)
			}
			seen |= bit
		}
		done, err := field(id, typ)
		if err != nil {
			return err
		}
		if !done {
			if err := t.skip(typ); err != nil {
				return err
			}
		}
	}
}

// skip passes over a field's value.
func (t *thrift) skip(typ byte) error {
	switch typ {
	case tTrue, tFalse:
		return nil
	case tByte:
		return t.advance(1)
	case tI16, tI32, tI64:
		_, err := t.varint()
		return err
	case tDouble:
		return t.advance(8)
	case tUUID:
		return t.advance(16)
	case tBinary:
		_, err := t.binary(typ)
		return err
	case tList, tSet:
		elem, n, err := t.list(typ)
		if err != nil {
			return err
		}
		return t.skipElements(n, elem)
	case tMap:
		return t.skipMap()
	case tStruct:
		return t.structure(func(int64, byte) (bool, error) { return false, nil })
	}
	return wrongType(typ)
}

// skipElements passes over n elements, or n pairs when there are two types. An element takes at least a byte, so the
// loop ends with the input.
func (t *thrift) skipElements(n int, elems ...byte) error {
	if t.depth++; t.depth > maxThriftDepth {
		return safeio.Corruptf("lists are nested deeper than %d levels", maxThriftDepth)
	}
	defer func() { t.depth-- }()
	for range n {
		for _, e := range elems {
			if e == tTrue || e == tFalse {
				e = tByte // inside of a list a boolean takes a byte
			}
			if err := t.skip(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// skipMap passes over a map.
func (t *thrift) skipMap() error {
	n, err := t.varint()
	if err != nil || n == 0 {
		return err
	}
	kinds, err := t.byte()
	if err != nil {
		return err
	}
	if n > uint64(t.left()) {
		return errShort
	}
	return t.skipElements(int(n), kinds>>4, kinds&15)
}

// advance passes over n bytes.
func (t *thrift) advance(n int) error {
	if n > t.left() {
		return errShort
	}
	t.i += n
	return nil
}

// bitWidth is the number of bits that hold every value up to max.
func bitWidth(max int) int { return bits.Len(uint(max)) }
