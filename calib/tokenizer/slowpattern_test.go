package tokenizer

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// slowPattern is a plain backtracking reading of the small regular expression language that split patterns use. It
// knows nothing of the scanners: it takes the pattern text at its word, which is what they are compared with.
//
// A node tries to match at i and calls next with every end it can reach, in order of preference, until next accepts.
type slowPattern struct{ root slowNode }

type slowNode func(s string, i int, next func(int) bool) bool

// slowParser reads a pattern; fold is set inside of (?i:…).
type slowParser struct {
	in   []rune
	at   int
	fold bool
	t    *categories
}

func newSlowPattern(pattern string) *slowPattern {
	p := &slowParser{in: []rune(pattern), t: loadCategories()}
	root := p.alternation()
	if p.at != len(p.in) {
		panic("pattern not read to its end: " + pattern)
	}
	return &slowPattern{root}
}

// match returns the end of the preferred match that starts at i, -1 when there is none.
func (p *slowPattern) match(s string, i int) int {
	end := -1
	p.root(s, i, func(e int) bool { end = e; return true })
	return end
}

// next is scanner.next.
func (p *slowPattern) next(s string, i int) (start, end int) {
	for ; i < len(s); i++ {
		if !utf8.RuneStart(s[i]) {
			continue
		}
		if end := p.match(s, i); end > i {
			return i, end
		}
	}
	return -1, -1
}

func (p *slowParser) peek() rune {
	if p.at < len(p.in) {
		return p.in[p.at]
	}
	return 0
}

func (p *slowParser) take(text string) bool {
	if strings.HasPrefix(string(p.in[p.at:]), text) {
		p.at += len([]rune(text))
		return true
	}
	return false
}

func (p *slowParser) alternation() slowNode {
	branches := []slowNode{p.concatenation()}
	for p.take("|") {
		branches = append(branches, p.concatenation())
	}
	return func(s string, i int, next func(int) bool) bool {
		for _, b := range branches {
			if b(s, i, next) {
				return true
			}
		}
		return false
	}
}

func (p *slowParser) concatenation() slowNode {
	var parts []slowNode
	for p.at < len(p.in) && p.peek() != '|' && p.peek() != ')' {
		parts = append(parts, p.quantified())
	}
	var run func(k int, s string, i int, next func(int) bool) bool
	run = func(k int, s string, i int, next func(int) bool) bool {
		if k == len(parts) {
			return next(i)
		}
		return parts[k](s, i, func(j int) bool { return run(k+1, s, j, next) })
	}
	return func(s string, i int, next func(int) bool) bool { return run(0, s, i, next) }
}

func (p *slowParser) quantified() slowNode {
	atom := p.atom()
	low, high := 1, 1
	switch {
	case p.take("?"):
		low = 0
	case p.take("*"):
		low, high = 0, 1<<30
	case p.take("+"):
		high = 1 << 30
	case p.peek() == '{':
		end := p.at
		for p.in[end] != '}' {
			end++
		}
		a, b, ranged := strings.Cut(string(p.in[p.at+1:end]), ",")
		low, _ = strconv.Atoi(a)
		high = low
		if ranged {
			high, _ = strconv.Atoi(b)
		}
		p.at = end + 1
	default:
		return atom
	}
	possessive := p.take("+")
	var times func(n int, s string, i int, next func(int) bool) bool
	times = func(n int, s string, i int, next func(int) bool) bool {
		if n < high && atom(s, i, func(j int) bool { return j > i && times(n+1, s, j, next) }) {
			return true
		}
		return n >= low && next(i)
	}
	return func(s string, i int, next func(int) bool) bool {
		if !possessive {
			return times(0, s, i, next)
		}
		end := -1
		times(0, s, i, func(j int) bool { end = j; return true })
		return end >= 0 && next(end)
	}
}

func (p *slowParser) atom() slowNode {
	switch {
	case p.take("(?!"):
		inner := p.alternation()
		p.take(")")
		return func(s string, i int, next func(int) bool) bool {
			return !inner(s, i, func(int) bool { return true }) && next(i)
		}
	case p.take("(?i:"):
		outer := p.fold
		p.fold = true
		return p.group(outer)
	case p.take("(?:"):
		return p.group(p.fold)
	case p.take("$"): // Ruby syntax: the end of a line
		return func(s string, i int, next func(int) bool) bool {
			return (i == len(s) || s[i] == '\n') && next(i)
		}
	}
	in := p.class()
	return func(s string, i int, next func(int) bool) bool {
		if i >= len(s) {
			return false
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		return in(r) && next(i+n)
	}
}

func (p *slowParser) group(outer bool) slowNode {
	inner := p.alternation()
	p.take(")")
	p.fold = outer
	return inner
}

// class reads one character, escape or bracket expression as a test on runes.
func (p *slowParser) class() func(rune) bool {
	if !p.take("[") {
		in, _ := p.item()
		return in
	}
	negated := p.take("^")
	var items []func(rune) bool
	for !p.take("]") {
		in, lo := p.item()
		if lo >= 0 && p.peek() == '-' && p.in[p.at+1] != ']' {
			p.at++
			_, hi := p.item()
			in = func(r rune) bool { return lo <= r && r <= hi }
		}
		items = append(items, in)
	}
	return func(r rune) bool {
		for _, in := range items {
			if in(r) {
				return !negated
			}
		}
		return negated
	}
}

// item reads one character or escape; char is -1 when it stands for a set.
func (p *slowParser) item() (in func(rune) bool, char rune) {
	c := p.in[p.at]
	p.at++
	if c == '\\' {
		c = p.in[p.at]
		p.at++
		switch c {
		case 'r':
			c = '\r'
		case 'n':
			c = '\n'
		case 's':
			return func(r rune) bool { return p.t.is(r, classSpace) }, -1
		case 'd':
			return func(r rune) bool { return p.t.is(r, 1<<catNd) }, -1
		case 'S':
			return func(r rune) bool { return !p.t.is(r, classSpace) }, -1
		case 'p':
			end := p.at
			for p.in[end] != '}' {
				end++
			}
			set := slowProperty(string(p.in[p.at+1 : end]))
			p.at = end + 1
			return func(r rune) bool { return p.t.is(r, set) }, -1
		}
	}
	if fold := p.fold; fold {
		return func(r rune) bool { return foldsTo(r, c) }, c
	}
	return func(r rune) bool { return r == c }, c
}

func slowProperty(name string) class {
	return map[string]class{"L": classL, "M": classM, "N": classN, "P": classP, "S": classS,
		"Lu": 1 << catLu, "Ll": 1 << catLl, "Lt": 1 << catLt, "Lm": 1 << catLm, "Lo": 1 << catLo}[name]
}

func foldsTo(r, c rune) bool {
	for x := unicode.SimpleFold(c); ; x = unicode.SimpleFold(x) {
		if x == r {
			return true
		}
		if x == c {
			return r == c
		}
	}
}
