package tokenizer

import (
	"strings"
	"unicode/utf8"

	"github.com/llmquant/quantize/formats/safeio"
)

// A decoder is one step on the way from tokens back to text; the strings that remain at the end are joined.
type decoder func(tokens []string) []string

// decoderReaders reads one decoder each.
var decoderReaders = map[string]func(v safeio.Value) (decoder, error){
	"ByteLevel":    readByteLevelDecoder,
	"ByteFallback": readByteFallbackDecoder,
	"Fuse":         readFuse,
	"Strip":        readStripDecoder,
	"Replace":      readReplaceDecoder,
	"Metaspace":    readMetaspaceDecoder,
}

// readDecoder reads one decoder or a Sequence of them. Without any, tokens are joined by blanks, as the library does.
func (p *parser) readDecoder(v safeio.Value) error {
	p.hasDecoder = true
	kind, err := typeOf(v)
	if err != nil {
		return err
	}
	if kind == "Sequence" {
		if err := only(v, "Sequence", "type", "decoders"); err != nil {
			return err
		}
		for item := range v.Get("decoders").Items() {
			if err := p.readDecoder(item); err != nil {
				return err
			}
		}
		return nil
	}
	read, ok := decoderReaders[kind]
	if !ok {
		return safeio.Unsupportedf("the decoder %q", clip(kind))
	}
	if len(p.decoders) == maxSteps {
		return safeio.Limitf("more than %d decoders", maxSteps)
	}
	d, err := read(v)
	if err != nil {
		return err
	}
	p.decoders = append(p.decoders, d)
	if kind != "Replace" {
		return nil
	}
	old, with, err := replacement(v)
	if err != nil {
		return err
	}
	return multiply(&p.regrowth, growth(old, with))
}

// eachToken applies f to every token.
func eachToken(f func(i int, token string) string) decoder {
	return func(tokens []string) []string {
		for i, t := range tokens {
			tokens[i] = f(i, t)
		}
		return tokens
	}
}

// readByteLevelDecoder: the options concern encoding only.
func readByteLevelDecoder(v safeio.Value) (decoder, error) {
	return decodeByteLevel, only(v, "ByteLevel", "type", "add_prefix_space", "trim_offsets", "use_regex")
}

// decodeByteLevel turns visible characters back into bytes; a token with any other character stands for its own.
func decodeByteLevel(tokens []string) []string {
	a := loadAlphabet()
	var b strings.Builder
	for _, t := range tokens {
		if raw, ok := a.raw(t); ok {
			t = raw
		}
		b.WriteString(t)
	}
	return []string{validUTF8(b.String())}
}

// readByteFallbackDecoder reads the decoder that undoes byte fallback.
func readByteFallbackDecoder(v safeio.Value) (decoder, error) {
	return decodeByteFallback, only(v, "ByteFallback", "type")
}

// decodeByteFallback joins runs of <0xNN> into text. A run that is not valid UTF-8 as a whole becomes one U+FFFD per
// byte.
func decodeByteFallback(tokens []string) []string {
	var out []string
	var run []byte
	flush := func() {
		switch {
		case len(run) == 0:
		case utf8.Valid(run):
			out = append(out, string(run))
		default:
			out = append(out, strings.Repeat("\uFFFD", len(run)))
		}
		run = run[:0]
	}
	for _, t := range tokens {
		if b, ok := byteToken(t); ok {
			run = append(run, b)
			continue
		}
		flush()
		out = append(out, t)
	}
	flush()
	return out
}

// byteToken reads <0xNN>. The digits may be of either case, as the library reads them.
func byteToken(t string) (byte, bool) {
	if len(t) != 6 || t[:3] != "<0x" || t[5] != '>' {
		return 0, false
	}
	hi, lo := hexDigit(t[3]), hexDigit(t[4])
	return byte(hi<<4 | lo), hi|lo >= 0
}

// hexDigit returns the value of a hexadecimal digit, -1 for anything else (signs and blanks included).
func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// readFuse reads the decoder that makes one token of all, so that the next one sees where the text begins.
func readFuse(v safeio.Value) (decoder, error) {
	return func(tokens []string) []string { return []string{strings.Join(tokens, "")} }, only(v, "Fuse", "type")
}

// readStripDecoder reads the decoder that removes up to start characters at the beginning and up to stop at the end of
// every token.
func readStripDecoder(v safeio.Value) (decoder, error) {
	if err := only(v, "Strip", "type", "content", "start", "stop"); err != nil {
		return nil, err
	}
	what, err := safeio.At(v, "content", safeio.Value.Str)
	if err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(what) != 1 {
		return nil, safeio.Corruptf("the content %q of Strip is not one character", clip(what))
	}
	start, err := safeio.At(v, "start", safeio.Value.Int)
	if err != nil {
		return nil, err
	}
	stop, err := safeio.At(v, "stop", safeio.Value.Int)
	if err != nil {
		return nil, err
	}
	if start < 0 || stop < 0 || stop > 0 && start > 0 {
		return nil, safeio.Unsupportedf("a Strip decoder with start %d and stop %d", start, stop)
	}
	return eachToken(func(_ int, t string) string {
		for n := int64(0); n < start && strings.HasPrefix(t, what); n++ {
			t = t[len(what):]
		}
		for n := int64(0); n < stop && strings.HasSuffix(t, what); n++ {
			t = t[:len(t)-len(what)]
		}
		return t
	}), nil
}

// readReplaceDecoder reads the decoder that replaces a text inside of every token.
func readReplaceDecoder(v safeio.Value) (decoder, error) {
	old, with, err := replacement(v)
	return eachToken(func(_ int, t string) string { return strings.ReplaceAll(t, old, with) }), err
}

// readMetaspaceDecoder reads the decoder that turns the replacement back into a blank, and drops it in the first token
// when the pre-tokenizer put one there.
func readMetaspaceDecoder(v safeio.Value) (decoder, error) {
	if err := only(v, "Metaspace", "type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"); err != nil {
		return nil, err
	}
	with, scheme, err := metaspaceOptions(v)
	return eachToken(func(i int, t string) string {
		blank := " "
		if i == 0 && scheme != prependNever {
			blank = ""
		}
		return strings.ReplaceAll(t, with, blank)
	}), err
}

// validUTF8 replaces every maximal invalid part of s by U+FFFD: the longest prefix of a well-formed sequence, or one
// byte. (strings.ToValidUTF8 replaces whole runs, and a range loop every byte; readers in other languages do this.)
func validUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 2)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n <= 1 {
			n = invalidPart(s[i:])
		}
		b.WriteRune(r)
		i += n
	}
	return b.String()
}

// invalidPart returns the length of the invalid part at the beginning of s: as many bytes as could have begun a
// character, at least one.
func invalidPart(s string) int {
	want := 0
	lo, hi := byte(0x80), byte(0xbf) // allowed second bytes
	switch c := s[0]; {
	case c >= 0xc2 && c <= 0xdf:
		want = 2
	case c >= 0xe0 && c <= 0xef:
		want = 3
		if c == 0xe0 {
			lo = 0xa0
		} else if c == 0xed {
			hi = 0x9f
		}
	case c >= 0xf0 && c <= 0xf4:
		want = 4
		if c == 0xf0 {
			lo = 0x90
		} else if c == 0xf4 {
			hi = 0x8f
		}
	}
	n := 1
	for n < want && n < len(s) && s[n] >= lo && s[n] <= hi {
		lo, hi = 0x80, 0xbf
		n++
	}
	return n
}
