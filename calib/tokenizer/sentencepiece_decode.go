package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// decode follows SentencePiece's Decode: control pieces are invisible, the unknown piece has its own surface, runs of
// byte pieces become characters or one U+FFFD per byte, and blanks at the beginning go away as the normalizer put them
// there.
func (e *spEngine) decode(ids []int32) string {
	var b strings.Builder
	var run []byte
	begin := true // a blank put before the text is still expected
	swallowed := false
	for _, id := range ids {
		if id < 0 || int(id) >= len(e.model.pieces) {
			continue
		}
		p := &e.model.pieces[id]
		if p.kind == TypeByte {
			c, _ := byteToken(p.text)
			run = append(run, c)
			continue
		}
		writeBytes(&b, run)
		run = run[:0]
		if swallowed || b.Len() > 0 {
			begin = false
		}
		swallowed = e.writePiece(&b, p, begin)
	}
	writeBytes(&b, run)
	return b.String()
}

// writePiece writes one piece and reports whether it swallowed the one blank that the dummy prefix had added.
func (e *spEngine) writePiece(b *strings.Builder, p *spPiece, begin bool) bool {
	m := e.model
	text, swallowed := p.text, false
	switch p.kind {
	case TypeControl:
		return false
	case TypeUnknown:
		b.WriteString(m.unkSurface)
		return false
	}
	if begin && (m.dummyPrefix || m.removeExtra) {
		text, swallowed = strings.CutPrefix(text, metaspace)
		swallowed = swallowed && !m.removeExtra // with that flag all leading blanks go
	}
	b.WriteString(strings.ReplaceAll(text, metaspace, " "))
	return swallowed
}

// writeBytes writes a run of byte pieces, every byte that is part of no character as U+FFFD.
func writeBytes(b *strings.Builder, run []byte) {
	for len(run) > 0 {
		r, n := utf8.DecodeRune(run)
		b.WriteRune(r)
		run = run[n:]
	}
}
