package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safeio/safeiotest"
)

// protoWriter writes protocol buffer messages field by field.
type protoWriter struct{ b []byte }

func (w *protoWriter) varint(num int, x uint64) *protoWriter {
	w.b = binary.AppendUvarint(w.b, uint64(num)<<3)
	w.b = binary.AppendUvarint(w.b, x)
	return w
}

func (w *protoWriter) bytes(num int, p []byte) *protoWriter {
	w.b = binary.AppendUvarint(w.b, uint64(num)<<3|2)
	w.b = binary.AppendUvarint(w.b, uint64(len(p)))
	w.b = append(w.b, p...)
	return w
}

func (w *protoWriter) float(num int, x float32) *protoWriter {
	w.b = binary.AppendUvarint(w.b, uint64(num)<<3|5)
	w.b = binary.LittleEndian.AppendUint32(w.b, math.Float32bits(x))
	return w
}

func pieceBytes(p spPiece) []byte {
	return new(protoWriter).bytes(1, []byte(p.text)).float(2, p.score).varint(3, uint64(p.kind)).b
}

// smallModel writes a BPE model with the given pieces and trainer and normalizer messages.
func smallModel(trainer, normalizer func(*protoWriter), pieces ...spPiece) []byte {
	w := &protoWriter{}
	for _, p := range pieces {
		w.bytes(1, pieceBytes(p))
	}
	tr := new(protoWriter).varint(3, 2)
	if trainer != nil {
		trainer(tr)
	}
	no := &protoWriter{}
	if normalizer != nil {
		normalizer(no)
	}
	return w.bytes(2, tr.b).bytes(3, no.b).b
}

var somePieces = []spPiece{{"<unk>", 0, TypeUnknown}, {"<s>", 0, TypeControl}, {"▁", -3, TypeNormal}, {"a", -4, TypeNormal}, {"b", -5, TypeNormal},
	{"ab", -1, TypeNormal}, {"▁ab", -2, TypeNormal}}

func TestSmallModel(t *testing.T) {
	tok, err := ParseSentencePiece(smallModel(nil, nil, somePieces...))
	require.NoError(t, err)
	require.Equal(t, []int32{6, 5, 0, 3}, tok.Encode("  abab\u00e9\u00e9a ", false))
	require.Equal(t, "abab \u2047 a", tok.Decode([]int32{1, 6, 5, 0, 3}))
	id, ok := tok.BOS()
	require.True(t, ok)
	require.EqualValues(t, 1, id)
	_, ok = tok.EOS() // piece 2, which the format's default names, is no control piece, but it exists
	require.True(t, ok)

	// Scores decide, not lengths: with ab last, ▁a wins nothing and b stays.
	tok, err = ParseSentencePiece(smallModel(nil, nil, append(somePieces[:5:5], spPiece{"▁a", -1, TypeNormal}, spPiece{"ab", -2, TypeNormal})...))
	require.NoError(t, err)
	require.Equal(t, []int32{5, 4}, tok.Encode("ab", false))
}

func TestSentencePieceRefusals(t *testing.T) {
	with := func(extra ...spPiece) []spPiece {
		return append(somePieces[:len(somePieces):len(somePieces)], extra...)
	}
	flag := func(num int, x uint64) func(*protoWriter) { return func(w *protoWriter) { w.varint(num, x) } }
	for _, c := range []struct {
		class error
		says  string
		data  []byte
	}{
		{safeio.ErrUnsupported, "unigram", smallModel(flag(3, 1), nil, somePieces...)},
		{safeio.ErrUnsupported, "char", smallModel(flag(3, 4), nil, somePieces...)},
		{safeio.ErrUnsupported, "treat_whitespace_as_suffix", smallModel(flag(24, 1), nil, somePieces...)},
		{safeio.ErrUnsupported, "denormalizer", append(smallModel(nil, nil, somePieces...), new(protoWriter).bytes(5, new(protoWriter).bytes(2, []byte("x")).b).b...)},
		{safeio.ErrUnsupported, "tiktoken", []byte("IQ== 0\nIg== 1\n")},
		{safeio.ErrCorrupt, "no pieces", smallModel(nil, nil)},
		{safeio.ErrCorrupt, "no unknown piece", smallModel(nil, nil, somePieces[1:]...)},
		{safeio.ErrCorrupt, "both the unknown", smallModel(nil, nil, with(spPiece{"<unk2>", 0, TypeUnknown})...)},
		{safeio.ErrCorrupt, "occurs twice", smallModel(nil, nil, with(spPiece{"ab", 0, TypeNormal})...)},
		{safeio.ErrCorrupt, "is empty", smallModel(nil, nil, with(spPiece{"", 0, TypeNormal})...)},
		{safeio.ErrLimit, "longer than", smallModel(nil, nil, with(spPiece{strings.Repeat("x", 2000), 0, TypeNormal})...)},
		{safeio.ErrCorrupt, "unknown type", smallModel(nil, nil, with(spPiece{"x", 0, 9})...)},
		{safeio.ErrCorrupt, "not a number", smallModel(nil, nil, with(spPiece{"x", float32(math.NaN()), TypeNormal})...)},
		{safeio.ErrCorrupt, "byte piece", smallModel(nil, nil, with(spPiece{"<0x41>", 0, TypeByte})...)},
		{safeio.ErrCorrupt, "byte piece", smallModel(flag(35, 1), nil, with(spPiece{"<0x-1>", 0, TypeByte})...)},
		{safeio.ErrCorrupt, "byte piece", smallModel(flag(35, 1), nil, with(spPiece{"<0xaf>", 0, TypeByte})...)},
		{safeio.ErrCorrupt, "no piece for the byte", smallModel(flag(35, 1), nil, somePieces...)},
		{safeio.ErrCorrupt, "character map", smallModel(nil, func(w *protoWriter) { w.bytes(2, []byte("abc")) }, somePieces...)},
		{safeio.ErrCorrupt, "character map", smallModel(nil, func(w *protoWriter) { w.bytes(2, []byte("\xff\xff\xff\xffabc")) }, somePieces...)},
		{safeio.ErrLimit, "replacement", smallModel(nil, func(w *protoWriter) { w.bytes(2, charsmapBytes([]uint32{0}, strings.Repeat("x", 300))) }, somePieces...)},
		{safeio.ErrCorrupt, "UTF-8", smallModel(nil, nil, with(spPiece{"\xff", 0, TypeNormal})...)},
		{safeio.ErrCorrupt, "longer than the message", []byte{0x0a, 0xff, 0xff, 0xff, 0x7f}},
		{safeio.ErrCorrupt, "malformed", []byte{0xff, 0xff}},
		{safeio.ErrCorrupt, "wire type", []byte{0x0b}},
		{safeio.ErrCorrupt, "cut off", []byte{0x0d, 1}},
		{safeio.ErrCorrupt, "wire type", []byte{0x08, 1}},
	} {
		_, err := ParseSentencePiece(c.data)
		require.Error(t, err, c.says)
		require.Truef(t, errors.Is(err, c.class), "%v is not of class %v", err, c.class)
		require.Contains(t, err.Error(), c.says)
	}
}

// buildTrie writes a double-array trie for a few keys the slow way: every node takes the first offset at which all its
// children fit.
func buildTrie(keys map[string]uint32) []uint32 {
	units := make([]uint32, 1<<16)
	taken := make([]bool, len(units))
	taken[0] = true
	var place func(at uint32, prefix string)
	place = func(at uint32, prefix string) {
		children := map[byte]bool{}
		_, leaf := keys[prefix]
		for k := range keys {
			if len(k) > len(prefix) && strings.HasPrefix(k, prefix) {
				children[k[len(prefix)]] = true
			}
		}
		base := uint32(1)
		for ; ; base++ {
			free := !leaf || !taken[at^base]
			for c := range children {
				free = free && !taken[at^base^uint32(c)]
			}
			if free {
				break
			}
		}
		units[at] |= base << 10
		next := at ^ base
		if leaf {
			units[at] |= 1 << 8
			units[next], taken[next] = keys[prefix]|1<<31, true
		}
		for c := range children {
			units[next^uint32(c)], taken[next^uint32(c)] = uint32(c), true
		}
		for c := range children {
			place(next^uint32(c), prefix+string(c))
		}
	}
	place(0, "")
	return units
}

func charsmapBytes(units []uint32, replacements string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(4*len(units)))
	for _, u := range units {
		b = binary.LittleEndian.AppendUint32(b, u)
	}
	return append(b, replacements...)
}

// TestCharsmap applies rules of a character map: longest first, blanks collapsed afterwards, user-defined pieces kept.
func TestCharsmap(t *testing.T) {
	// "x" to "ab", "xy" to "b", TAB to a blank, "z" to nothing; offsets into the replacements.
	units := buildTrie(map[string]uint32{"x": 0, "xy": 3, "\t": 5, "z": 7})
	blob := charsmapBytes(units, "ab\x00b\x00 \x00\x00")
	c, err := newCharsmap(blob)
	require.NoError(t, err)
	for in, want := range map[string]string{"xyz": "b/2", "xz": "ab/1", "\tx": " /1", "zz": "/1", "a": "/0", "": "/0"} {
		with, n := c.longest(in)
		require.Equal(t, want, fmt.Sprintf("%s/%d", with, n), "%q", in)
	}
	pieces := append(somePieces[:len(somePieces):len(somePieces)], spPiece{"xz", 0, TypeUserDefined})
	tok, err := ParseSentencePiece(smallModel(nil, func(w *protoWriter) { w.bytes(2, blob) }, pieces...))
	require.NoError(t, err)
	require.Equal(t, tok.Encode("ab b", false), tok.Encode("\t\tx\t\txy\t", false))
	require.Equal(t, []int32{2, 7, 4}, tok.Encode("xzxy", false))
}

// TestHostileCharsmap: whatever the trie holds, looking up stays inside of it.
func TestHostileCharsmap(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	for range 2000 {
		units := make([]uint32, rng.IntN(40))
		for i := range units {
			units[i] = rng.Uint32() >> rng.IntN(32)
		}
		c, err := newCharsmap(charsmapBytes(units, "some\x00text"))
		require.NoError(t, err)
		for range 20 {
			c.longest(string([]byte{byte(rng.IntN(256)), byte(rng.IntN(256)), byte(rng.IntN(256)), byte(rng.IntN(256))}))
		}
	}
}

// naivePieces joins the best pair by scanning, and takes unused pieces apart, as the definition says.
func naivePieces(e *spEngine, text string) []string {
	var parts []string
	for i := 0; i < len(text); {
		n := 1
		for i+n < len(text) && text[i+n]&0xc0 == 0x80 {
			n++
		}
		parts = append(parts, text[i:i+n])
		i += n
	}
	for {
		best, at := float32(math.Inf(-1)), -1
		for i := 0; i+1 < len(parts); i++ {
			if id, ok := e.normal[parts[i]+parts[i+1]]; ok && e.model.pieces[id].score > best {
				best, at = e.model.pieces[id].score, i
			}
		}
		if at < 0 {
			return parts
		}
		parts[at] += parts[at+1]
		parts = append(parts[:at+1], parts[at+2:]...)
	}
}

// TestJoiningAgainstDefinition compares the heap with the scan on random small models.
func TestJoiningAgainstDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	for range 300 {
		pieces := []spPiece{{"<unk>", 0, TypeUnknown}, {"▁", -1, TypeNormal}, {"a", -1, TypeNormal}}
		seen := map[string]bool{"▁": true, "a": true}
		for range 2 + rng.IntN(20) {
			p := ""
			for range 2 + rng.IntN(4) {
				p += []string{"a", "b", "▁", "é"}[rng.IntN(4)]
			}
			if !seen[p] {
				seen[p] = true
				pieces = append(pieces, spPiece{p, -float32(rng.IntN(12)), TypeNormal})
			}
		}
		tok, err := ParseSentencePiece(smallModel(nil, func(w *protoWriter) { w.varint(4, 0) }, pieces...))
		require.NoError(t, err)
		e := tok.engine.(*spEngine)
		text := ""
		for range 1 + rng.IntN(40) {
			text += []string{"a", "b", " ", "é"}[rng.IntN(4)]
		}
		var want []int32
		for _, p := range naivePieces(e, e.normalize(text)) {
			id, ok := e.normal[p]
			if !ok {
				id = 0
			}
			if id != 0 || len(want) == 0 || want[len(want)-1] != 0 {
				want = append(want, id)
			}
		}
		require.Equal(t, want, tok.Encode(text, false), "%q with %v", text, pieces)
	}
}

func FuzzSentencePiece(f *testing.F) {
	f.Add(smallModel(nil, nil, somePieces...))
	f.Add(smallModel(nil, func(w *protoWriter) {
		w.bytes(2, charsmapBytes(buildTrie(map[string]uint32{"x": 0})[:512], "ab\x00")).varint(3, 0).varint(4, 0).varint(5, 0)
	}, append(somePieces[:7:7], spPiece{"b ", -7, TypeUnused}, spPiece{"aab", 1, TypeUserDefined}, spPiece{"bab", 1, TypeUnused})...))
	for _, c := range loadReference(f).Cases {
		if c.Model != "" {
			model, err := base64.StdEncoding.DecodeString(c.Model)
			require.NoError(f, err)
			f.Add(model)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var tok *Tokenizer
		safeiotest.CheckAllocation(t, len(data), func() { tok, _ = ParseSentencePiece(data) })
		if tok != nil {
			exercise(t, tok)
		}
	})
}
