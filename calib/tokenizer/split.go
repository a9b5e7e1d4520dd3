package tokenizer

import "strings"

// A behavior says what becomes of the matches of a pattern when text is split at them.
type behavior uint8

// The behaviors, by the library's names.
const (
	isolated           behavior = iota // matches and what lies between are pieces
	removed                            // only what lies between
	contiguous                         // adjacent matches form one piece
	mergedWithPrevious                 // a match ends the piece before it
	mergedWithNext                     // a match begins the piece behind it
)

// behaviors by the names that files use.
var behaviors = map[string]behavior{
	"Isolated":           isolated,
	"Removed":            removed,
	"Contiguous":         contiguous,
	"MergedWithPrevious": mergedWithPrevious,
	"MergedWithNext":     mergedWithNext,
}

// A finder returns the first match in s at or after i; start is -1 when there is none. Matches are never empty.
type finder func(s string, i int) (start, end int)

// findLiteral finds a fixed text.
func findLiteral(text string) finder {
	return func(s string, i int) (int, int) {
		at := strings.Index(s[i:], text)
		if at < 0 {
			return -1, -1
		}
		return i + at, i + at + len(text)
	}
}

// findClass finds single characters for which in is true.
func findFunc(in func(rune) bool) finder {
	return func(s string, i int) (int, int) {
		at := strings.IndexFunc(s[i:], in)
		if at < 0 {
			return -1, -1
		}
		start := i + at
		for _, r := range s[start:] {
			return start, start + len(string(r))
		}
		return -1, -1
	}
}

// splitter cuts pieces at the matches of find.
type splitter struct {
	find   finder
	how    behavior
	invert bool // matches and the stretches between them change places
}

// split calls emit for every piece, from left to right.
func (p *splitter) split(s string, emit func(start, end int)) {
	if p.how == isolated { // the common case: every stretch is a piece, matching or not
		last := 0
		for last < len(s) {
			start, end := p.find(s, last)
			if start < 0 {
				break
			}
			if start > last {
				emit(last, start)
			}
			emit(start, end)
			last = end
		}
		if last < len(s) {
			emit(last, len(s))
		}
		return
	}
	m := merger{how: p.how, emit: emit}
	last := 0
	for last < len(s) {
		start, end := p.find(s, last)
		if start < 0 {
			break
		}
		if start > last {
			m.add(last, start, p.invert)
		}
		m.add(start, end, !p.invert)
		last = end
	}
	if last < len(s) {
		m.add(last, len(s), p.invert)
	}
	m.flush()
}

// merger joins the stretches of a split into pieces. It holds back one piece, which later stretches may extend.
type merger struct {
	how        behavior
	emit       func(start, end int)
	start, end int // the piece held back
	held       bool
	matched    bool // the previous stretch was a match
}

// add takes the next stretch; stretches are adjacent and come from left to right.
func (m *merger) add(start, end int, match bool) {
	var extend bool
	switch m.how {
	case removed:
		if !match {
			m.emit(start, end)
		}
		return
	case contiguous:
		extend = match == m.matched
	case mergedWithPrevious:
		extend = match && !m.matched
	case mergedWithNext:
		extend = !match && m.matched
	}
	m.matched = match
	if m.held && extend {
		m.end = end
		return
	}
	m.flush()
	m.start, m.end, m.held = start, end, true
}

// flush lets go of the piece held back.
func (m *merger) flush() {
	if m.held {
		m.emit(m.start, m.end)
		m.held = false
	}
}
