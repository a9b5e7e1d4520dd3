package safeio

import (
	"bytes"
	"encoding/json"
	"strings"
)

// EncodeJSON turns a Go value into a Value. Structs keep their field order, maps are sorted; a Value inside x keeps
// its own order. HTML characters are not escaped.
func EncodeJSON(x any) (Value, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(x); err != nil {
		return Value{}, err
	}
	return ParseJSON(b.Bytes())
}

// NewObject builds an object with these members in this order. Keys must differ.
func NewObject(members ...Member) (Value, error) {
	var b strings.Builder
	b.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(Quote(m.Key))
		b.WriteByte(':')
		b.WriteString(m.Value.text)
	}
	b.WriteByte('}')
	return ParseJSON(b.String())
}

// With returns the object v with key set to x: in place when the key exists, behind the last member otherwise. Every
// other byte stays. An indented document stays indented. v must be an object and x a value; otherwise v is returned.
func (v Value) With(key string, x Value) Value {
	if v.Kind() != Object || x.text == "" {
		return v
	}
	sep := v.separator()
	last := 1
	for m := range v.members() {
		if unquote(v.text[m.key:m.keyEnd]) == key {
			return Value{v.text[:m.val] + x.laidOut(sep) + v.text[m.end:]}
		}
		last = m.end
	}
	member := Quote(key) + ":" + x.laidOut(sep)
	if strings.Contains(sep, "\n") {
		member = Quote(key) + ": " + x.laidOut(sep)
	}
	if last > 1 {
		sep = "," + sep
	}
	return Value{v.text[:last] + sep + member + v.text[last:]}
}

// Without returns the object v without the member key; every other member keeps its text.
func (v Value) Without(key string) Value {
	prev := 1 // end of the member before
	for m := range v.members() {
		if unquote(v.text[m.key:m.keyEnd]) != key {
			prev = m.end
			continue
		}
		rest := v.text[m.end:]
		if prev == 1 { // the first member takes the comma behind it along
			if at := skipSpace(rest, 0); rest[at] == ',' {
				return Value{v.text[:m.key] + rest[skipSpace(rest, at+1):]}
			}
		}
		return Value{v.text[:prev] + rest}
	}
	return v
}

// separator returns the white space in front of the first key: what the document puts between members.
func (v Value) separator() string {
	return v.text[1:skipSpace(v.text, 1)]
}

// laidOut renders the value for a place behind separator sep: indented like its neighbours, or compact.
func (v Value) laidOut(sep string) string {
	at := strings.LastIndexByte(sep, '\n')
	if at < 0 {
		return v.Compact()
	}
	indent := sep[at+1:]
	return v.indent(indent, indent)
}

// Compact returns the value's text without white space between tokens.
func (v Value) Compact() string {
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(v.text)); err != nil {
		return v.text // cannot happen: the text was accepted
	}
	return b.String()
}

// Indent returns the value as Transformers writes its files: two spaces, a newline at the end.
func (v Value) Indent() []byte { return []byte(v.indent("", "  ") + "\n") }

func (v Value) indent(prefix, indent string) string {
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(v.text), prefix, indent); err != nil {
		return v.text // cannot happen: the text was accepted
	}
	return b.String()
}
