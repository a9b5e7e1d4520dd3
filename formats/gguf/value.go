package gguf

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/llmquant/quantize/formats/safeio"
)

// Kind is the type code of a metadata value.
type Kind uint32

// The kinds of the format, with their codes.
const (
	KindUint8 Kind = iota
	KindInt8
	KindUint16
	KindInt16
	KindUint32
	KindInt32
	KindFloat32
	KindBool
	KindString
	KindArray
	KindUint64
	KindInt64
	KindFloat64
)

type class uint8

const (
	unsigned class = iota
	signed
	real
	boolean
	text
	list
)

// kinds holds one row per code; size is 0 for kinds of variable length.
var kinds = [...]struct {
	name  string
	size  int64
	class class
}{
	KindUint8:   {"u8", 1, unsigned},
	KindInt8:    {"i8", 1, signed},
	KindUint16:  {"u16", 2, unsigned},
	KindInt16:   {"i16", 2, signed},
	KindUint32:  {"u32", 4, unsigned},
	KindInt32:   {"i32", 4, signed},
	KindFloat32: {"f32", 4, real},
	KindBool:    {"bool", 1, boolean},
	KindString:  {"str", 0, text},
	KindArray:   {"arr", 0, list},
	KindUint64:  {"u64", 8, unsigned},
	KindInt64:   {"i64", 8, signed},
	KindFloat64: {"f64", 8, real},
}

// valid reports whether the code exists.
func (k Kind) valid() bool { return uint64(k) < uint64(len(kinds)) } // not int: that wraps on 32 bits

// String returns the short name: "u32", "str", "arr".
func (k Kind) String() string {
	if k.valid() {
		return kinds[k].name
	}
	return "kind " + strconv.FormatUint(uint64(k), 10)
}

// Value is one metadata value, immutable. The getters never reinterpret: asking for a string where a number stands is
// an error; asking for an integer accepts every integer kind whose value fits.
type Value struct {
	kind Kind
	elem Kind     // of an array
	num  uint64   // bits of a scalar, sign-extended for signed kinds
	str  string   // a string's bytes, or the little-endian elements of an array of numbers
	strs []string // elements of an array of strings
}

// Uint16 returns a u16 value.
func Uint16(v uint16) Value { return Value{kind: KindUint16, num: uint64(v)} }

// Uint32 returns a u32 value.
func Uint32(v uint32) Value { return Value{kind: KindUint32, num: uint64(v)} }

// Int32 returns an i32 value.
func Int32(v int32) Value { return Value{kind: KindInt32, num: uint64(int64(v))} }

// Float32 returns an f32 value.
func Float32(v float32) Value { return Value{kind: KindFloat32, num: uint64(math.Float32bits(v))} }

// Bool returns a bool value.
func Bool(v bool) Value {
	if v {
		return Value{kind: KindBool, num: 1}
	}
	return Value{kind: KindBool}
}

// String returns a str value.
func String(v string) Value { return Value{kind: KindString, str: v} }

// Strings returns an array of strings. The slice must not be modified afterwards.
func Strings(v []string) Value { return Value{kind: KindArray, elem: KindString, strs: v} }

// Int32s returns an array of i32.
func Int32s(v []int32) Value {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
	}
	return Value{kind: KindArray, elem: KindInt32, str: string(b)}
}

// Float32s returns an array of f32.
func Float32s(v []float32) Value {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return Value{kind: KindArray, elem: KindFloat32, str: string(b)}
}

// Kind returns the value's kind.
func (v Value) Kind() Kind { return v.kind }

// Elem returns the kind of an array's elements; ok is false for anything else.
func (v Value) Elem() (k Kind, ok bool) { return v.elem, v.kind == KindArray }

// Len returns the number of elements of an array, the bytes of a string, 1 otherwise.
func (v Value) Len() int {
	switch {
	case v.kind == KindString:
		return len(v.str)
	case v.kind != KindArray:
		return 1
	case v.elem == KindString:
		return len(v.strs)
	}
	return len(v.str) / int(kinds[v.elem].size)
}

// TypeName spells the value's type as listings do: "u32", "arr[str]".
func (v Value) TypeName() string {
	if v.kind == KindArray {
		return "arr[" + v.elem.String() + "]"
	}
	return v.kind.String()
}

// mismatch is the error of a getter that meets another type.
func (v Value) mismatch(want string) error {
	return safeio.Corruptf("is of type %s where %s is expected", v.TypeName(), want)
}

// Int returns an integer of any kind that fits int64.
func (v Value) Int() (int64, error) {
	if v.kind == KindArray || kinds[v.kind].class > signed {
		return 0, v.mismatch("an integer")
	}
	return intOf(v.kind, v.num)
}

// intOf returns the value of integer bits; only u64 can exceed int64.
func intOf(k Kind, num uint64) (int64, error) {
	if kinds[k].class == unsigned && num > math.MaxInt64 {
		return 0, safeio.Corruptf("the integer %d is too large", num)
	}
	return int64(num), nil
}

// Float returns a floating-point number of either kind.
func (v Value) Float() (float64, error) {
	if v.kind == KindArray || kinds[v.kind].class != real {
		return 0, v.mismatch("a floating-point number")
	}
	return floatOf(v.kind, v.num), nil
}

// floatOf returns the value of floating-point bits, widened exactly.
func floatOf(k Kind, num uint64) float64 {
	if k == KindFloat32 {
		return float64(math.Float32frombits(uint32(num)))
	}
	return math.Float64frombits(num)
}

// Bool returns a bool.
func (v Value) Bool() (bool, error) {
	if v.kind != KindBool {
		return false, v.mismatch("a bool")
	}
	return v.num != 0, nil
}

// Text returns a string.
func (v Value) Text() (string, error) {
	if v.kind != KindString {
		return "", v.mismatch("a string")
	}
	return v.str, nil
}

// Strings returns the elements of an array of strings. The caller must not modify them.
func (v Value) Strings() ([]string, error) {
	if v.kind != KindArray || v.elem != KindString {
		return nil, v.mismatch("an array of strings")
	}
	return v.strs, nil
}

// Ints returns the elements of an array of integers of any kind.
func (v Value) Ints() ([]int64, error) {
	if v.kind != KindArray || kinds[v.elem].class > signed {
		return nil, v.mismatch("an array of integers")
	}
	out := make([]int64, v.Len())
	for i := range out {
		n, err := intOf(v.elem, v.bits(i))
		if err != nil {
			return nil, err
		}
		out[i] = n
	}
	return out, nil
}

// Floats returns the elements of an array of floating-point numbers of either kind.
func (v Value) Floats() ([]float64, error) {
	if v.kind != KindArray || kinds[v.elem].class != real {
		return nil, v.mismatch("an array of floating-point numbers")
	}
	out := make([]float64, v.Len())
	for i := range out {
		out[i] = floatOf(v.elem, v.bits(i))
	}
	return out, nil
}

// bits returns element i of an array of numbers, sign-extended for signed kinds.
func (v Value) bits(i int) uint64 {
	size := int(kinds[v.elem].size)
	return widen(v.elem, []byte(v.str[i*size:(i+1)*size]))
}

// widen reads one little-endian scalar of kind k from b.
func widen(k Kind, b []byte) uint64 {
	var u uint64
	for i := len(b) - 1; i >= 0; i-- {
		u = u<<8 | uint64(b[i])
	}
	if shift := 64 - 8*uint(len(b)); kinds[k].class == signed {
		return uint64(int64(u<<shift) >> shift)
	}
	return u
}
