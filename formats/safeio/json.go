package safeio

import (
	"iter"
	"strconv"
	"strings"
)

// Kind is the type of a JSON value.
type Kind uint8

// The kinds of JSON values. Invalid is the kind of the zero Value: a member that is not there.
const (
	Invalid Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

var kindNames = [...]string{"nothing", "null", "a boolean", "a number", "a string", "an array", "an object"}

// String returns the kind as a sentence fragment ("an array").
func (k Kind) String() string { return kindNames[k] }

// Value is one value of a document that ParseJSON accepted. It is the value's own text, checked once and never
// converted: numbers keep their spelling, members their order, and a rewritten document differs from the original
// only where it was told to. A Value costs no memory beyond the document; access to members walks the text.
type Value struct{ text string }

// Member is one key of an object.
type Member struct {
	Key   string
	Value Value
}

// Kind returns what the value is; Invalid for the zero Value.
func (v Value) Kind() Kind {
	if v.text == "" {
		return Invalid
	}
	switch v.text[0] {
	case '{':
		return Object
	case '[':
		return Array
	case '"':
		return String
	case 't', 'f':
		return Bool
	case 'n':
		return Null
	}
	return Number
}

// Exists reports whether the value is there and not null.
func (v Value) Exists() bool { return v.text != "" && v.text[0] != 'n' }

// Text returns the JSON text of the value as it stands in the document.
func (v Value) Text() string { return v.text }

// MarshalJSON makes a Value usable inside structs given to encoding/json.
func (v Value) MarshalJSON() ([]byte, error) {
	if v.text == "" {
		return []byte("null"), nil
	}
	return []byte(v.text), nil
}

// Members yields the members of an object in document order; nothing when the value is not an object.
func (v Value) Members() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		for m := range v.members() {
			if !yield(unquote(v.text[m.key:m.keyEnd]), Value{v.text[m.val:m.end]}) {
				return
			}
		}
	}
}

// Items yields the elements of an array in order; nothing when the value is not an array.
func (v Value) Items() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		if v.Kind() != Array {
			return
		}
		s := v.text
		for i := skipSpace(s, 1); s[i] != ']'; {
			end := skipValue(s, i)
			if !yield(Value{s[i:end]}) {
				return
			}
			if i = skipSpace(s, end); s[i] == ',' {
				i = skipSpace(s, i+1)
			}
		}
	}
}

// Len returns the number of members or elements, 0 for anything else.
func (v Value) Len() int {
	n := 0
	for range v.members() {
		n++
	}
	for range v.Items() {
		n++
	}
	return n
}

// Get returns the member with exactly this key, or the zero Value.
func (v Value) Get(key string) Value {
	for k, x := range v.Members() {
		if k == key {
			return x
		}
	}
	return Value{}
}

// Path follows keys through nested objects.
func (v Value) Path(keys ...string) Value {
	for _, k := range keys {
		v = v.Get(k)
	}
	return v
}

// Str returns a string value, escapes decoded.
func (v Value) Str() (string, error) {
	if v.Kind() != String {
		return "", v.mismatch("a string")
	}
	return unquote(v.text), nil
}

// Bool returns a boolean value.
func (v Value) Bool() (bool, error) {
	if v.Kind() != Bool {
		return false, v.mismatch("a boolean")
	}
	return v.text == "true", nil
}

// Int returns a number written as an integer: no fraction, no exponent, no minus zero. Readers differ on "1e3" and
// "4.0", so a field that counts things never accepts them.
func (v Value) Int() (int64, error) {
	if v.Kind() != Number || strings.ContainsAny(v.text, ".eE") || v.text == "-0" {
		return 0, v.mismatch("an integer")
	}
	n, err := strconv.ParseInt(v.text, 10, 64)
	if err != nil {
		return 0, Corruptf("integer %s does not fit 64 bits", clip(v.text))
	}
	return n, nil
}

// Float returns a number as a float64; numbers beyond its range are corrupt.
func (v Value) Float() (float64, error) {
	if v.Kind() != Number {
		return 0, v.mismatch("a number")
	}
	f, err := strconv.ParseFloat(v.text, 64)
	if err != nil {
		return 0, Corruptf("number %s is out of range", clip(v.text))
	}
	return f, nil
}

// Strings returns an array of strings.
func (v Value) Strings() ([]string, error) { return list(v, Value.Str) }

// Ints returns an array of integers.
func (v Value) Ints() ([]int64, error) { return list(v, Value.Int) }

func list[T any](v Value, get func(Value) (T, error)) ([]T, error) {
	if v.Kind() != Array {
		return nil, v.mismatch("an array")
	}
	var out []T
	for item := range v.Items() {
		x, err := get(item)
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}

// At reads the member key of object v with a getter: At(config, "hidden_size", Value.Int). The error names the key.
func At[T any](v Value, key string, get func(Value) (T, error)) (T, error) {
	x, err := get(v.Get(key))
	if err != nil {
		return x, &Error{Op: "key " + strconv.Quote(key), Off: -1, Err: err}
	}
	return x, nil
}

// Or is At with a default for a member that is missing or null.
func Or[T any](v Value, key string, def T, get func(Value) (T, error)) (T, error) {
	if !v.Get(key).Exists() {
		return def, nil
	}
	return At(v, key, get)
}

func (v Value) mismatch(want string) error {
	if v.text == "" {
		return Corruptf("missing (expected %s)", want)
	}
	return Corruptf("expected %s, found %s %s", want, v.Kind(), clip(v.text))
}

// clip shortens file content for a message.
func clip(s string) string {
	const most = 40
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
