package safeio

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio/safeiotest"
)

// goodJSON and badJSON also seed the fuzz targets. The key of badJSON is a part of the reason that must be given.
var goodJSON = []string{
	`{}`, `[]`, `null`, `true`, ` [ false , 0 , -1.5e+3 , "x" ] `, `"\u00e9\ud83d\ude00\n\/"`, `"é😀"`,
	`{"a":{"b":[1,2,{"c":null}]},"":"empty key","a\u0062":1,"x":12345678901234567890}`,
	`{"k0":0,"k1":0,"k2":0,"k3":0,"k4":0,"k5":0,"k6":0,"k7":0,"k8":0,"k9":0,"k10":0,"k11":0,"k12":0,"k13":0}`,
	"{\n  \"architectures\": [\n    \"LlamaForCausalLM\"\n  ],\n  \"rms_norm_eps\": 1e-05\n}\n",
	strings.Repeat("[", 64) + strings.Repeat("]", 64),
}

var badJSON = []struct{ text, reason string }{
	{``, "unexpected end"}, {`  `, "unexpected end"}, {`{`, "expected a key"}, {`[`, "unexpected end"},
	{`{"a":1,"a":2}`, "duplicate key"}, {`{"a":1,"\u0061":2}`, "duplicate key"},
	{`{"a":{},"b":{"c":1,"c":1}}`, "duplicate key"}, {manyKeys(40, "k7"), "duplicate key"},
	{"\"\xff\"", "invalid UTF-8"}, {"{\"a\":\"\xed\xa0\x80\"}", "invalid UTF-8"}, {"\xef\xbb\xbf{}", "expected a value"},
	{`"\ud800"`, "unpaired surrogate"}, {`"\ud800\u0041"`, "unpaired surrogate"}, {`"\udc00\ud800"`, "unpaired surrogate"},
	{`"\ud800\u"`, "unpaired surrogate"}, {`"\x41"`, "unknown escape"}, {`"\u12g4"`, "hexadecimal"}, {`"\u12`, "hexadecimal"},
	{`"\`, "unknown escape"}, {`"abc`, "unterminated"}, {"\"a\nb\"", "control character"}, {"\"\x00\"", "control character"},
	{`01`, "text after"}, {`1.`, "malformed number"}, {`.5`, "expected a value"}, {`-`, "malformed number"}, {`1e`, "malformed number"},
	{`+1`, "expected a value"}, {`1e+`, "malformed number"}, {`NaN`, "expected a value"}, {`Infinity`, "expected a value"},
	{`-Infinity`, "malformed number"}, {`{"a":1,}`, "expected a key"}, {`[1,]`, "expected a value"}, {`[1 2]`, "expected ','"},
	{`{"a\x":1}`, "unknown escape"}, {`{"abc`, "unterminated"}, {`{"a":1,"b`, "unterminated"}, {`{"a":tru}`, "expected a value"},
	{`{"a" 1}`, "expected ':'"}, {`{a:1}`, "expected a key"}, {`{'a':1}`, "expected a key"}, {`{"a":1}{"b":2}`, "text after"},
	{`{"a":1}garbage`, "text after"}, {`[1}`, "expected ','"}, {`True`, "expected a value"}, {`nul`, "expected a value"},
	{`// c` + "\n1", "expected a value"}, {strings.Repeat("[", 65) + strings.Repeat("]", 65), "nested deeper"},
	{strings.Repeat(`{"a":`, 100000), "nested deeper"}, {"1\x00", "text after"},
}

func manyKeys(n int, again string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		fmt.Fprintf(&b, `"k%d":%d,`, i, i)
	}
	return b.String() + fmt.Sprintf(`"%s":0}`, again)
}

func TestParseJSONAccepts(t *testing.T) {
	for _, text := range goodJSON {
		v, err := ParseJSON(text)
		require.NoError(t, err, text)
		require.Equal(t, strings.TrimSpace(text), v.Text())
		sameTree(t, v, text)
	}
}

func TestParseJSONRefuses(t *testing.T) {
	for _, c := range badJSON {
		_, err := ParseJSON([]byte(c.text))
		require.ErrorContains(t, err, c.reason, "%.60q", c.text)
		require.True(t, errors.Is(err, ErrCorrupt) || errors.Is(err, ErrLimit), "%.60q: %v", c.text, err)
	}
	for n := range 30 { // both sides of the switch from the short list to the table
		_, err := ParseJSON(manyKeys(n, "last"))
		require.NoError(t, err)
		for k := range n {
			_, err := ParseJSON(manyKeys(n, fmt.Sprint("k", k)))
			require.ErrorContains(t, err, "duplicate key", "%d keys, again k%d", n, k)
		}
	}
}

func TestGetters(t *testing.T) {
	v, err := ParseJSON(`{"i":7,"neg":-3,"f":1e-05,"s":"a\tb","b":true,"n":null,"l":["x","y"],"d":[1,2],"o":{"deep":{"er":9}},
		"big":9223372036854775808,"huge":1e999,"exp":1e3,"frac":4.0,"mz":-0}`)
	require.NoError(t, err)
	must := func(x any, err error) any { require.NoError(t, err); return x }
	require.Equal(t, int64(7), must(At(v, "i", Value.Int)))
	require.Equal(t, int64(-3), must(At(v, "neg", Value.Int)))
	require.Equal(t, 1e-05, must(At(v, "f", Value.Float)))
	require.Equal(t, "a\tb", must(At(v, "s", Value.Str)))
	require.Equal(t, true, must(At(v, "b", Value.Bool)))
	require.Equal(t, []string{"x", "y"}, must(At(v, "l", Value.Strings)))
	require.Equal(t, []int64{1, 2}, must(At(v, "d", Value.Ints)))
	require.Equal(t, int64(9), must(v.Path("o", "deep", "er").Int()))
	require.Equal(t, int64(5), must(Or(v, "n", 5, Value.Int)), "null takes the default")
	require.Equal(t, int64(5), must(Or(v, "absent", 5, Value.Int)))
	require.Equal(t, 14, v.Len())
	require.Equal(t, 2, v.Get("l").Len())
	require.False(t, v.Get("n").Exists())
	require.Equal(t, Invalid, v.Path("o", "x", "y").Kind())

	for _, key := range []string{"s", "f", "exp", "frac", "mz", "big", "n", "absent", "l"} {
		_, err := At(v, key, Value.Int)
		require.ErrorIs(t, err, ErrCorrupt, key)
		require.ErrorContains(t, err, `"`+key+`"`)
	}
	_, err = At(v, "huge", Value.Float)
	require.ErrorIs(t, err, ErrCorrupt)
	_, err = At(v, "l", Value.Ints)
	require.ErrorIs(t, err, ErrCorrupt)
	_, err = At(v, "i", Value.Bool)
	require.ErrorIs(t, err, ErrCorrupt)
	_, err = At(v, "i", Value.Str)
	require.ErrorIs(t, err, ErrCorrupt)
}

func TestRewriteKeepsEverythingElse(t *testing.T) {
	const doc = "{\n  \"z\": 1e-05,\n  \"quantization_config\": {\"bits\": 4},\n  \"a\": [1, 2]\n}"
	v, err := ParseJSON(doc)
	require.NoError(t, err)
	q, err := EncodeJSON(struct {
		Method string `json:"quant_method"`
		Bits   int    `json:"bits"`
	}{"awq <gemm>", 4})
	require.NoError(t, err)
	pretty := "{\n    \"quant_method\": \"awq <gemm>\",\n    \"bits\": 4\n  }"

	replaced := v.With("quantization_config", q)
	require.Equal(t, strings.Replace(doc, `{"bits": 4}`, pretty, 1), replaced.Text())
	added := v.Without("quantization_config").With("quantization_config", q)
	require.Equal(t, "{\n  \"z\": 1e-05,\n  \"a\": [1, 2],\n  \"quantization_config\": "+pretty+"\n}", added.Text())

	small, err := ParseJSON(`{}`)
	require.NoError(t, err)
	require.Equal(t, `{"k":{"quant_method":"awq <gemm>","bits":4}}`, small.With("k", q).Text())
	require.Equal(t, `{}`, small.With("k", q).Without("k").Text())
	require.Equal(t, `{"a":1,"b":2}`, mustParse(t, `{"a":1,"c":3,"b":2}`).Without("c").Text())
	require.Equal(t, `{"b":2}`, mustParse(t, `{"a":1,"b":2}`).Without("a").Text())
	require.Equal(t, `{"a":1}`, mustParse(t, `{"a":1,"b":2}`).Without("b").Text())
	require.Equal(t, `{"a":1}`, mustParse(t, `{"a":1}`).Without("absent").Text())
	require.Equal(t, "{\n  \"a\": 1\n}\n", string(mustParse(t, `{"a":1}`).Indent()))

	o, err := NewObject(Member{"b", q}, Member{"a\"\n\x01", small})
	require.NoError(t, err)
	require.Equal(t, `{"b":{"quant_method":"awq <gemm>","bits":4},"a\"\n\u0001":{}}`, o.Text())
	_, err = NewObject(Member{"b", q}, Member{"b", q})
	require.Error(t, err)
}

func mustParse(t *testing.T, s string) Value {
	v, err := ParseJSON(s)
	require.NoError(t, err)
	return v
}

// FuzzJSONDifferential: whatever is accepted, encoding/json accepts too and reads as the same tree; whatever is
// refused although encoding/json accepts it, is refused for one of the reasons that make us stricter. Accepted objects
// survive being rewritten.
func FuzzJSONDifferential(f *testing.F) {
	for _, s := range goodJSON {
		f.Add([]byte(s))
	}
	for _, c := range badJSON {
		if len(c.text) < 1000 {
			f.Add([]byte(c.text))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var v Value
		var err error
		safeiotest.CheckAllocation(t, len(data), func() { v, err = ParseJSON(data) })
		if err == nil {
			sameTree(t, v, string(data))
			if v.Kind() == Object {
				sameTree(t, v.With("quantization_config", v), v.With("quantization_config", v).Compact())
				require.Equal(t, Invalid, v.With("\x01k", v).Without("\x01k").Get("\x01k").Kind())
			}
			return
		}
		if json.Valid(data) {
			stricter := []string{"duplicate key", "invalid UTF-8", "unpaired surrogate", "nested deeper"}
			for _, why := range stricter {
				if strings.Contains(err.Error(), why) {
					return
				}
			}
			t.Fatalf("refused %q: %v", data, err)
		}
	})
}

// sameTree compares v with what encoding/json makes of text.
func sameTree(t *testing.T, v Value, text string) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var want any
	require.NoError(t, dec.Decode(&want))
	require.Equal(t, want, tree(t, v))
	var compact bytes.Buffer
	require.NoError(t, json.Compact(&compact, []byte(text)))
	require.Equal(t, compact.String(), v.Compact())
}

func tree(t *testing.T, v Value) any {
	switch v.Kind() {
	case Object:
		m := map[string]any{}
		for k, x := range v.Members() {
			m[k] = tree(t, x)
		}
		return m
	case Array:
		l := []any{}
		for x := range v.Items() {
			l = append(l, tree(t, x))
		}
		return l
	case String:
		s, err := v.Str()
		require.NoError(t, err)
		return s
	case Bool:
		b, err := v.Bool()
		require.NoError(t, err)
		return b
	case Number:
		return json.Number(v.Text())
	}
	return nil
}

// Half a character needs its other half spelled as one, an exponent may be written large, and what is missing is said to be.
func TestJSONDetails(t *testing.T) {
	for _, text := range []string{`"\ud83dXude00"`, `"\ud83d\xde00"`, `"\ud83d\\ude00"`, `"\ud83d\ud83d"`, `"\ud83d"`, `"\ude00"`, `1E`, `1e+`} {
		_, err := ParseJSON(text)
		require.ErrorIs(t, err, ErrCorrupt, text)
	}
	for text, want := range map[string]float64{`1E2`: 100, `1e2`: 100, `1E+2`: 100, `5E-1`: 0.5} {
		v, err := ParseJSON(text)
		require.NoError(t, err, text)
		f, err := v.Float()
		require.NoError(t, err, text)
		require.Equal(t, want, f)
	}
	v, err := ParseJSON(`{"a":1}`)
	require.NoError(t, err)
	_, err = v.Get("b").Str()
	require.ErrorContains(t, err, "missing (expected")
	_, err = v.Get("a").Str()
	require.ErrorContains(t, err, "found a number 1")
}
