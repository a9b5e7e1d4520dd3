package gguf

import (
	"iter"
	"slices"

	"github.com/llmquant/quantize/formats/safeio"
)

// KV is one metadata pair.
type KV struct {
	Key   string
	Value Value
}

// Metadata is the ordered list of pairs of a file. Keys are unique. The zero value is empty and ready to use.
type Metadata struct {
	pairs []KV
	index map[string]int
}

// Len returns the number of pairs.
func (m *Metadata) Len() int { return len(m.pairs) }

// All ranges over the pairs in file order.
func (m *Metadata) All() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		for i := range m.pairs {
			if !yield(m.pairs[i].Key, m.pairs[i].Value) {
				return
			}
		}
	}
}

// Get returns the value of a key.
func (m *Metadata) Get(key string) (Value, bool) {
	if i, ok := m.index[key]; ok {
		return m.pairs[i].Value, true
	}
	return Value{}, false
}

// Has reports whether the key exists.
func (m *Metadata) Has(key string) bool { _, ok := m.index[key]; return ok }

// Set replaces the value of a key where it stands, or appends the pair.
func (m *Metadata) Set(key string, v Value) {
	if i, ok := m.index[key]; ok {
		m.pairs[i].Value = v
		return
	}
	if m.index == nil {
		m.index = make(map[string]int)
	}
	m.index[key] = len(m.pairs)
	m.pairs = append(m.pairs, KV{key, v})
}

// Move sets a key at the end of the list, as ggml's writer does when it replaces a pair.
func (m *Metadata) Move(key string, v Value) {
	m.Delete(key)
	m.Set(key, v)
}

// Delete removes a key and reports whether it was there.
func (m *Metadata) Delete(key string) bool {
	i, ok := m.index[key]
	if !ok {
		return false
	}
	m.pairs = slices.Delete(m.pairs, i, i+1)
	delete(m.index, key)
	for ; i < len(m.pairs); i++ {
		m.index[m.pairs[i].Key] = i
	}
	return true
}

// Clone returns an independent copy of the list; values are immutable and shared.
func (m *Metadata) Clone() Metadata {
	c := Metadata{pairs: slices.Clone(m.pairs), index: make(map[string]int, len(m.pairs))}
	for i := range c.pairs {
		c.index[c.pairs[i].Key] = i
	}
	return c
}

// MissingKey is the error for a key that a file must have.
func MissingKey(key string) error { return safeio.Corruptf("the metadata lack the key %q", key) }

// atKey adds the key to an error about its value.
func atKey(key string, err error) error {
	if err == nil {
		return nil
	}
	return &keyError{key, err}
}

// keyError names the key a getter failed on.
type keyError struct {
	key string
	err error
}

// Error implements error.
func (e *keyError) Error() string { return "key \"" + e.key + "\" " + e.err.Error() }

// Unwrap gives access to the class.
func (e *keyError) Unwrap() error { return e.err }

// Int returns an integer within [low, high].
func (m *Metadata) Int(key string, low, high int64) (int64, error) {
	v, ok := m.Get(key)
	if !ok {
		return 0, MissingKey(key)
	}
	n, err := v.Int()
	if err == nil && (n < low || n > high) {
		err = safeio.Corruptf("is %d, outside %d … %d", n, low, high)
	}
	return n, atKey(key, err)
}

// Float returns a floating-point number.
func (m *Metadata) Float(key string) (float64, error) {
	v, ok := m.Get(key)
	if !ok {
		return 0, MissingKey(key)
	}
	f, err := v.Float()
	return f, atKey(key, err)
}

// String returns a string.
func (m *Metadata) String(key string) (string, error) {
	v, ok := m.Get(key)
	if !ok {
		return "", MissingKey(key)
	}
	s, err := v.Text()
	return s, atKey(key, err)
}

// Bool returns a bool.
func (m *Metadata) Bool(key string) (bool, error) {
	v, ok := m.Get(key)
	if !ok {
		return false, MissingKey(key)
	}
	b, err := v.Bool()
	return b, atKey(key, err)
}

// Strings returns an array of strings.
func (m *Metadata) Strings(key string) ([]string, error) {
	v, ok := m.Get(key)
	if !ok {
		return nil, MissingKey(key)
	}
	s, err := v.Strings()
	return s, atKey(key, err)
}

// Ints returns an array of integers.
func (m *Metadata) Ints(key string) ([]int64, error) {
	v, ok := m.Get(key)
	if !ok {
		return nil, MissingKey(key)
	}
	n, err := v.Ints()
	return n, atKey(key, err)
}

// Floats returns an array of floating-point numbers.
func (m *Metadata) Floats(key string) ([]float64, error) {
	v, ok := m.Get(key)
	if !ok {
		return nil, MissingKey(key)
	}
	f, err := v.Floats()
	return f, atKey(key, err)
}
