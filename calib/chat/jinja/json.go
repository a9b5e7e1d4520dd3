package jinja

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"sort"
	"strconv"
	"strings"
)

// maxJSONDepth bounds the nesting of FromJSON.
const maxJSONDepth = 64

// FromJSON decodes one JSON value, keeping the order of object keys; integers stay integers.
func FromJSON(data []byte) (Value, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := decodeJSON(dec, 0)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("text follows the JSON value")
	}
	return v, nil
}

// decodeJSON reads the next value token by token: encoding/json would lose the order of keys.
func decodeJSON(dec *json.Decoder, depth int) (Value, error) {
	if depth > maxJSONDepth {
		return nil, fmt.Errorf("JSON nested deeper than %d levels", maxJSONDepth)
	}
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := tok.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(string(t), 10, 64); err == nil {
			return n, nil
		}
		return t.Float64()
	case json.Delim:
		if t == '[' {
			out := &List{}
			for dec.More() {
				v, err := decodeJSON(dec, depth+1)
				if err != nil {
					return nil, err
				}
				out.Items = append(out.Items, v)
			}
			_, err = dec.Token()
			return out, err
		}
		out := NewDict()
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return nil, err
			}
			v, err := decodeJSON(dec, depth+1)
			if err != nil {
				return nil, err
			}
			out.Set(key.(string), v)
		}
		_, err = dec.Token()
		return out, err
	}
	return tok, nil // string, bool, nil
}

// jsonWriter is json.dumps of Python.
type jsonWriter struct {
	b         *buffer
	indent    string // per level, when pretty
	pretty    bool
	item, key string // separators
	ascii     bool
	sorted    bool
}

// tojson is the filter as Transformers overrides it: json.dumps with characters left as they are and nothing escaped
// for HTML.
func tojson(in *interp, v Value, a []Value) (Value, error) {
	w := &jsonWriter{b: &buffer{in: in}, item: ", ", key: ": ", ascii: boolArg(a[0], false), sorted: boolArg(a[3], false)}
	if indent := orNone(a[1]); indent != nil {
		w.pretty, w.item = true, ","
		if s, ok := indent.(string); ok {
			w.indent = s
		} else {
			n, err := intArg(indent, 0)
			if err != nil {
				return nil, err
			}
			w.indent = strings.Repeat(" ", int(max(0, min(n, 64))))
		}
	}
	if sep := orNone(a[2]); sep != nil {
		l, ok := sep.(*List)
		if !ok || len(l.Items) != 2 {
			return nil, typeErrorf("separators are a pair of strings")
		}
		var err error
		if w.item, err = strArg(l.Items[0], ""); err != nil {
			return nil, err
		}
		if w.key, err = strArg(l.Items[1], ""); err != nil {
			return nil, err
		}
	}
	err := w.value(v, "\n")
	return w.b.String(), err
}

// value writes any value; newline is the line end with the indentation of the current level.
func (w *jsonWriter) value(v Value, newline string) error {
	if err := w.b.in.enter(); err != nil {
		return err
	}
	defer w.b.in.leave()
	switch v := v.(type) {
	case string:
		return w.b.add(w.quote(v))
	case *List:
		return w.sequence("[", "]", len(v.Items), newline, func(i int, nl string) error { return w.value(v.Items[i], nl) })
	case *Dict:
		return w.object(v, newline)
	}
	text, ok := jsonScalar(v)
	if !ok {
		return typeErrorf("Object of type %s is not JSON serializable", typeName(v))
	}
	return w.b.add(text)
}

// jsonScalar spells what is neither string nor container; false for what JSON cannot hold.
func jsonScalar(v Value) (string, bool) {
	switch v := v.(type) {
	case nil:
		return "null", true
	case bool:
		return strconv.FormatBool(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case float64:
		switch {
		case math.IsNaN(v):
			return "NaN", true
		case math.IsInf(v, 0):
			return strings.Replace(floatRepr(v), "inf", "Infinity", 1), true
		}
		return floatRepr(v), true
	}
	return "", false
}

// object writes the keys as Python does: numbers, booleans and None become strings.
func (w *jsonWriter) object(d *Dict, newline string) error {
	keys := make([]string, d.Len())
	order := make([]int, d.Len())
	for i, k := range d.keys {
		s, ok := k.(string)
		if !ok {
			if s, ok = jsonScalar(k); !ok {
				return typeErrorf("keys must be str, int, float, bool or None, not %s", typeName(k))
			}
		}
		keys[i], order[i] = s, i
	}
	if w.sorted {
		sort.SliceStable(order, func(i, j int) bool { return keys[order[i]] < keys[order[j]] })
	}
	return w.sequence("{", "}", len(keys), newline, func(i int, nl string) error {
		if err := w.b.add(w.quote(keys[order[i]]) + w.key); err != nil {
			return err
		}
		return w.value(d.vals[order[i]], nl)
	})
}

// sequence writes the elements between two brackets, on lines of their own when pretty.
func (w *jsonWriter) sequence(open, end string, n int, newline string, element func(i int, newline string) error) error {
	if n == 0 {
		return w.b.add(open + end)
	}
	inner := newline + w.indent
	sep := w.item
	if w.pretty {
		open, end, sep = open+inner, newline+end, w.item+inner
	}
	if err := w.b.add(open); err != nil {
		return err
	}
	for i := range n {
		if i > 0 {
			if err := w.b.add(sep); err != nil {
				return err
			}
		}
		if err := element(i, inner); err != nil {
			return err
		}
	}
	return w.b.add(end)
}

var jsonEscapes = map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\f': `\f`, '\b': `\b`}

// quote escapes what JSON must have escaped, and outside of ASCII only on demand, in UTF-16 units.
func (w *jsonWriter) quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		esc, special := jsonEscapes[r]
		switch {
		case special:
			b.WriteString(esc)
		case r < 0x20 || w.ascii && r > 0x7e && r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		case w.ascii && r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
