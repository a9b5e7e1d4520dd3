package jinja

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

type kind uint8

const (
	tData kind = iota
	tVarBegin
	tVarEnd
	tBlockBegin
	tBlockEnd
	tName
	tString
	tInt
	tFloat
	tOp
	tEOF
)

// token is one lexical unit. For strings val holds the raw text between the quotes.
type token struct {
	kind kind
	val  string
	line int
}

// lexer cuts a template into tokens under trim_blocks and lstrip_blocks.
type lexer struct {
	src     string
	pos     int
	toks    []token
	counted int // bytes of src whose newlines are in line
	line    int // newlines so far
	// lineStart tells whether the last tag swallowed a newline, so that the text after it begins a line.
	lineStart bool
}

// normalize brings line ends to \n and removes one newline at the end, as Jinja2 does before it reads a template.
func normalize(src string) string {
	if strings.ContainsRune(src, '\r') {
		src = strings.ReplaceAll(src, "\r\n", "\n")
		src = strings.ReplaceAll(src, "\r", "\n")
	}
	return strings.TrimSuffix(src, "\n")
}

// lex cuts a normalized template into tokens.
func lex(src string) ([]token, error) {
	l := &lexer{src: src, lineStart: true}
	for {
		more, err := l.text()
		if err != nil {
			return nil, err
		}
		if !more {
			l.emit(tEOF, "", len(src))
			return l.toks, nil
		}
	}
}

// emit appends a token; positions never go back, so counting lines takes one pass.
func (l *lexer) emit(k kind, val string, pos int) {
	l.line += strings.Count(l.src[l.counted:pos], "\n")
	l.counted = pos
	l.toks = append(l.toks, token{k, val, 1 + l.line})
}

// errorf is a syntax error at a byte offset.
func (l *lexer) errorf(pos int, format string, args ...any) error {
	return &SyntaxError{Line: 1 + strings.Count(l.src[:pos], "\n"), Msg: fmt.Sprintf(format, args...)}
}

// text consumes literal text and the tag that ends it; false at the end of the template.
func (l *lexer) text() (bool, error) {
	open := nextTag(l.src, l.pos)
	if open < 0 {
		l.data(l.src[l.pos:])
		return false, nil
	}
	mark, after := l.src[open+1], open+2
	sign := byte(0)
	if after < len(l.src) && (l.src[after] == '-' || l.src[after] == '+') {
		sign = l.src[after]
		after++
	}
	l.data(l.stripBefore(l.src[l.pos:open], sign, mark == '{'))
	switch mark {
	case '#':
		return true, l.comment(open, after)
	case '%':
		if end, ok := rawBegin(l.src, after); ok {
			return true, l.raw(open, end)
		}
		l.emit(tBlockBegin, "", open)
		l.pos = after
		return true, l.inside(tBlockEnd, "%}", open)
	default:
		l.emit(tVarBegin, "", open)
		l.pos = after
		return true, l.inside(tVarEnd, "}}", open)
	}
}

// data emits literal text, if there is any left after stripping.
func (l *lexer) data(s string) {
	if s != "" {
		l.emit(tData, s, l.pos)
	}
}

// stripBefore applies the sign of an opening tag, or lstrip_blocks, to the text in front of it.
func (l *lexer) stripBefore(text string, sign byte, variable bool) string {
	switch {
	case sign == '-':
		return strings.TrimRightFunc(text, isSpace)
	case sign == '+' || variable:
		return text
	}
	line := strings.LastIndexByte(text, '\n') + 1
	if (line > 0 || l.lineStart) && strings.TrimFunc(text[line:], isSpace) == "" {
		return text[:line]
	}
	return text
}

// nextTag finds the next "{{", "{%" or "{#" at or after pos, or -1.
func nextTag(src string, pos int) int {
	for pos < len(src)-1 {
		i := strings.IndexByte(src[pos:len(src)-1], '{')
		if i < 0 {
			return -1
		}
		pos += i
		switch src[pos+1] {
		case '{', '%', '#':
			return pos
		}
		pos++
	}
	return -1
}

// comment passes over a comment. A sign belongs to its end only when it is not the one of its beginning.
func (l *lexer) comment(open, after int) error {
	i := strings.Index(l.src[after:], "#}")
	if i < 0 {
		return l.errorf(open, "a comment is not closed")
	}
	end := after + i
	sign := byte(0)
	if end > after {
		sign = l.src[end-1]
	}
	l.closeTag(end+2, sign, true)
	return nil
}

// closeTag moves behind a closing tag that ends at end: "-" strips all white space, trim removes one newline.
func (l *lexer) closeTag(end int, sign byte, trim bool) {
	start := end
	switch {
	case sign == '-':
		end += len(l.src[end:]) - len(strings.TrimLeftFunc(l.src[end:], isSpace))
	case sign != '+' && trim && strings.HasPrefix(l.src[end:], "\n"):
		end++
	}
	l.pos = end
	l.lineStart = end > start && l.src[end-1] == '\n'
}

// rawBegin recognises the rest of "{% raw %}" behind the sign and returns its end.
func rawBegin(src string, pos int) (int, bool) {
	pos, ok := word(src, pos, "raw")
	if !ok {
		return 0, false
	}
	if strings.HasPrefix(src[pos:], "-%}") {
		rest := src[pos+3:]
		return len(src) - len(strings.TrimLeftFunc(rest, isSpace)), true
	}
	return pos + 2, strings.HasPrefix(src[pos:], "%}")
}

// word matches white space, w, white space and returns the offset behind them.
func word(src string, pos int, w string) (int, bool) {
	pos = skipSpace(src, pos)
	if !strings.HasPrefix(src[pos:], w) {
		return 0, false
	}
	return skipSpace(src, pos+len(w)), true
}

// skipSpace returns the offset behind white space.
func skipSpace(src string, pos int) int {
	return len(src) - len(strings.TrimLeftFunc(src[pos:], isSpace))
}

// raw emits everything up to the matching endraw as text.
func (l *lexer) raw(open, begin int) error {
	l.lineStart = begin > 0 && l.src[begin-1] == '\n'
	for at := begin; ; at += 2 {
		i := strings.Index(l.src[at:], "{%")
		if i < 0 {
			return l.errorf(open, "a raw block is not closed")
		}
		at += i
		after, sign := at+2, byte(0)
		if after < len(l.src) && (l.src[after] == '-' || l.src[after] == '+') {
			sign = l.src[after]
			after++
		}
		end, ok := word(l.src, after, "endraw")
		if !ok {
			continue
		}
		closing := byte(0)
		if end < len(l.src) && (l.src[end] == '-' || l.src[end] == '+') {
			closing = l.src[end]
			end++
		}
		if !strings.HasPrefix(l.src[end:], "%}") {
			continue
		}
		l.pos = begin
		l.data(l.stripBefore(l.src[begin:at], sign, false))
		l.closeTag(end+2, closing, true)
		return nil
	}
}

// operators, longest first.
var operators = [...]string{
	"//", "**", "==", "!=", ">=", "<=",
	"+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";",
}

var closer = map[byte]byte{'(': ')', '[': ']', '{': '}'}

// inside lexes the expression part of a tag up to its closing mark.
func (l *lexer) inside(end kind, mark string, open int) error {
	var stack []byte // brackets that are open: a closing mark inside of them is part of the expression
	for l.pos < len(l.src) {
		if len(stack) == 0 && l.tagEnd(end, mark) {
			return nil
		}
		rest := l.src[l.pos:]
		r, _ := utf8.DecodeRuneInString(rest)
		switch {
		case isSpace(r):
			l.pos = skipSpace(l.src, l.pos)
		case r >= '0' && r <= '9':
			l.number()
		case r == '_' || unicode.IsLetter(r):
			n := strings.IndexFunc(rest, func(r rune) bool { return !isNameRune(r) })
			if n < 0 {
				n = len(rest)
			}
			l.emit(tName, rest[:n], l.pos)
			l.pos += n
		case r == '\'' || r == '"':
			if err := l.str(byte(r)); err != nil {
				return err
			}
		default:
			var err error
			if stack, err = l.operator(stack); err != nil {
				return err
			}
		}
	}
	return l.errorf(open, "a tag is not closed: %q is missing", mark)
}

// isNameRune tells what may stand in a name behind its first letter; names may be in any script.
func isNameRune(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
}

// tagEnd recognises the end of a tag, with its sign, and trims behind it.
func (l *lexer) tagEnd(end kind, mark string) bool {
	rest := l.src[l.pos:]
	sign := byte(0)
	if rest[0] == '-' || (rest[0] == '+' && end == tBlockEnd) {
		sign = rest[0]
		rest = rest[1:]
	}
	if !strings.HasPrefix(rest, mark) {
		return false
	}
	l.emit(end, "", l.pos)
	l.closeTag(len(l.src)-len(rest)+2, sign, end == tBlockEnd)
	return true
}

// operator emits an operator and keeps track of brackets.
func (l *lexer) operator(stack []byte) ([]byte, error) {
	for _, op := range operators {
		if !strings.HasPrefix(l.src[l.pos:], op) {
			continue
		}
		switch op {
		case "(", "[", "{":
			stack = append(stack, closer[op[0]])
		case ")", "]", "}":
			if len(stack) == 0 || stack[len(stack)-1] != op[0] {
				return nil, l.errorf(l.pos, "unexpected %q", op)
			}
			stack = stack[:len(stack)-1]
		}
		l.emit(tOp, op, l.pos)
		l.pos += len(op)
		return stack, nil
	}
	r, _ := utf8.DecodeRuneInString(l.src[l.pos:])
	return nil, l.errorf(l.pos, "unexpected character %q", r)
}

// str consumes a quoted string; escapes are resolved by the parser.
func (l *lexer) str(quote byte) error {
	for i := l.pos + 1; i < len(l.src); i++ {
		switch l.src[i] {
		case '\\':
			i++
		case quote:
			l.emit(tString, l.src[l.pos+1:i], l.pos)
			l.pos = i + 1
			return nil
		}
	}
	return l.errorf(l.pos, "a string is not closed")
}

// number consumes an integer (decimal, 0x, 0o, 0b) or a float. "1.e" stays an integer followed by a dot.
func (l *lexer) number() {
	s, start := l.src, l.pos
	digits := func(i int) int {
		for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '_' && i+1 < len(s) && s[i+1] >= '0' && s[i+1] <= '9') {
			i++
		}
		return i
	}
	if s[start] == '0' && start+1 < len(s) && strings.IndexByte("xXoObB", s[start+1]) >= 0 {
		i := start + 2
		for i < len(s) && (s[i] == '_' || s[i] < 0x80 && (unicode.IsLetter(rune(s[i])) || unicode.IsDigit(rune(s[i])))) {
			i++
		}
		l.emit(tInt, s[start:i], start)
		l.pos = i
		return
	}
	i, k := digits(start), tInt
	afterDot := start > 0 && s[start-1] == '.' // x.0.1 is two subscripts, not a float
	if !afterDot {
		if i+1 < len(s) && s[i] == '.' && s[i+1] >= '0' && s[i+1] <= '9' {
			i, k = digits(i+1), tFloat
		}
		if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
			j := i + 1
			if j < len(s) && (s[j] == '+' || s[j] == '-') {
				j++
			}
			if n := digits(j); n > j {
				i, k = n, tFloat
			}
		}
	}
	l.emit(k, s[start:i], start)
	l.pos = i
}

// isSpace is str.isspace of Python: Unicode white space and the four ASCII separators.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
