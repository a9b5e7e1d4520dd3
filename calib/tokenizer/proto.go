package tokenizer

import (
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/llmquant/quantize/formats/safeio"
)

// protoField is one field of a protocol buffer message.
type protoField struct {
	num   uint64
	wire  uint64 // 0 varint, 1 eight bytes, 2 bytes, 5 four bytes
	value uint64
	bytes []byte
}

// protoFields calls f for every field of a message. Nested messages are read where they are wanted, so nothing
// recurses on the file's word.
func protoFields(data []byte, f func(protoField) error) error {
	for len(data) > 0 {
		tag, n := binary.Uvarint(data)
		if n <= 0 || tag>>3 == 0 {
			return safeio.Corruptf("malformed protocol buffer")
		}
		data = data[n:]
		field := protoField{num: tag >> 3, wire: tag & 7}
		switch field.wire {
		case 0:
			field.value, n = binary.Uvarint(data)
			if n <= 0 {
				return safeio.Corruptf("malformed number in field %d", field.num)
			}
		case 1, 5:
			n = 8
			if field.wire == 5 {
				n = 4
			}
			if len(data) < n {
				return safeio.Corruptf("field %d is cut off", field.num)
			}
			for i := n - 1; i >= 0; i-- {
				field.value = field.value<<8 | uint64(data[i])
			}
		case 2:
			size, w := binary.Uvarint(data)
			if w <= 0 || size > uint64(len(data)-w) {
				return safeio.Corruptf("field %d is longer than the message", field.num)
			}
			field.bytes = data[w : w+int(size)]
			n = w + int(size)
		default:
			return safeio.Corruptf("field %d has the unknown wire type %d", field.num, field.wire)
		}
		data = data[n:]
		if err := f(field); err != nil {
			return err
		}
	}
	return nil
}

// want checks the wire type: a reader of another type would see another value.
func (f protoField) want(wire uint64) error {
	if f.wire != wire {
		return safeio.Corruptf("field %d has the wire type %d instead of %d", f.num, f.wire, wire)
	}
	return nil
}

// message reads a nested message.
func (f protoField) message(read func(protoField) error) error {
	if err := f.want(2); err != nil {
		return err
	}
	return protoFields(f.bytes, read)
}

// str reads a string, which has to be valid UTF-8.
func (f protoField) str() (string, error) {
	if err := f.want(2); err != nil {
		return "", err
	}
	if !utf8.Valid(f.bytes) {
		return "", safeio.Corruptf("field %d is not valid UTF-8", f.num)
	}
	return string(f.bytes), nil
}

// uint reads an unsigned number or an enumeration.
func (f protoField) uint() (uint64, error) { return f.value, f.want(0) }

// int reads a signed number; negative ones are written with 64 bits.
func (f protoField) int() (int64, error) { return int64(f.value), f.want(0) }

// bool reads a flag.
func (f protoField) bool() (bool, error) { return f.value != 0, f.want(0) }

// float reads a 32-bit number.
func (f protoField) float() (float32, error) {
	return math.Float32frombits(uint32(f.value)), f.want(5)
}
