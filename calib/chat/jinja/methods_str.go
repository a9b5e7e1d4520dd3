package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// strFunc adapts a function of the string alone.
func strFunc(f func(s string) Value) builtin {
	return builtin{nil, func(in *interp, self Value, _ []Value) (Value, error) {
		return f(self.(string)), in.charge(len(self.(string)))
	}}
}

// stripFunc adapts strip and its one-sided kin: the argument is a set of characters, None means white space.
func stripFunc(left, right bool) builtin {
	return builtin{[]string{"chars"}, func(in *interp, self Value, a []Value) (Value, error) {
		s := self.(string)
		cut := isSpace
		if v := orNone(a[0]); v != nil {
			set, err := strArg(v, "")
			if err != nil {
				return nil, err
			}
			cut = func(r rune) bool { return strings.ContainsRune(set, r) }
		}
		if left {
			s = strings.TrimLeftFunc(s, cut)
		}
		if right {
			s = strings.TrimRightFunc(s, cut)
		}
		return s, in.steps(len(self.(string)) / 256)
	}}
}

// window applies the optional start and end of find, count, startswith and endswith.
func window(s string, start, end Value) (string, int64, bool, error) {
	n := int64(utf8.RuneCountInString(s))
	r, err := sliceIndices([3]Value{orNone(start), orNone(end), nil}, n)
	if err != nil {
		return "", 0, false, err
	}
	if v, _ := number(orNone(start)); v != nil && v.(int64) > n {
		return "", 0, false, nil
	}
	return substring(s, int(r.start), int(r.start+r.n)), r.start, r.start <= r.stop, nil
}

// affix is startswith or endswith, which also take a tuple of candidates.
func affix(has func(s, x string) bool) builtin {
	return builtin{[]string{"prefix", "start", "end"}, func(_ *interp, self Value, a []Value) (Value, error) {
		s, _, ok, err := window(self.(string), a[1], a[2])
		if err != nil || !ok {
			return false, err
		}
		candidates := []Value{a[0]}
		if l, isList := a[0].(*List); isList && l.Tuple {
			candidates = l.Items
		}
		for _, c := range candidates {
			x, isStr := c.(string)
			if !isStr {
				return nil, badOperand(c, "a prefix or suffix must be a string or a tuple of them, not")
			}
			if has(s, x) {
				return true, nil
			}
		}
		return false, nil
	}}
}

// search is find, rfind, index or rindex; fail makes a miss an error.
func search(at func(s, x string) int, fail bool) builtin {
	return builtin{[]string{"sub", "start", "end"}, func(in *interp, self Value, a []Value) (Value, error) {
		x, ok := a[0].(string)
		if !ok {
			return nil, badOperand(a[0], "expected a string, not")
		}
		s, start, ok, err := window(self.(string), a[1], a[2])
		if err != nil {
			return nil, err
		}
		i := -1
		if ok {
			i = at(s, x)
		}
		if i < 0 {
			if fail {
				return nil, typeErrorf("substring not found")
			}
			return int64(-1), nil
		}
		return start + int64(utf8.RuneCountInString(s[:i])), in.steps(len(s) / 256)
	}}
}

// classFunc is isalpha and its kin: true when the string is not empty and every character is of the class.
func classFunc(class func(r rune) bool) builtin {
	return strFunc(func(s string) Value {
		return s != "" && strings.IndexFunc(s, func(r rune) bool { return !class(r) }) < 0
	})
}

// caseFunc is islower or isupper: at least one cased character and none of the other case.
func caseFunc(want, other func(r rune) bool) builtin {
	return strFunc(func(s string) Value {
		return strings.IndexFunc(s, want) >= 0 && strings.IndexFunc(s, func(r rune) bool { return other(r) || unicode.IsTitle(r) }) < 0
	})
}

var strMethods = map[string]builtin{
	"strip": stripFunc(true, true), "lstrip": stripFunc(true, false), "rstrip": stripFunc(false, true),
	"upper":      strFunc(func(s string) Value { return upper(s) }),
	"lower":      strFunc(func(s string) Value { return strings.ToLower(s) }),
	"title":      strFunc(func(s string) Value { return title(s) }),
	"capitalize": strFunc(func(s string) Value { return capitalize(s) }),
	"startswith": affix(strings.HasPrefix), "endswith": affix(strings.HasSuffix),
	"find": search(strings.Index, false), "rfind": search(strings.LastIndex, false),
	"index": search(strings.Index, true), "rindex": search(strings.LastIndex, true),
	"isalpha": classFunc(unicode.IsLetter), "isspace": classFunc(isSpace), "isdigit": classFunc(unicode.IsDigit),
	"isalnum": classFunc(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
	"isascii": strFunc(func(s string) Value { return strings.IndexFunc(s, func(r rune) bool { return r > 127 }) < 0 }),
	"islower": caseFunc(unicode.IsLower, unicode.IsUpper), "isupper": caseFunc(unicode.IsUpper, unicode.IsLower),
	"split": {[]string{"sep", "maxsplit"}, split(false)}, "rsplit": {[]string{"sep", "maxsplit"}, split(true)},
	"splitlines": {[]string{"keepends"}, splitLines},
	"partition":  {[]string{"sep"}, partition(strings.Index)}, "rpartition": {[]string{"sep"}, partition(strings.LastIndex)},
	"removeprefix": {[]string{"prefix"}, remove(strings.TrimPrefix)}, "removesuffix": {[]string{"suffix"}, remove(strings.TrimSuffix)},
	"replace": {[]string{"old", "new", "count"}, replace}, "join": {[]string{"iterable"}, join},
	"count": {[]string{"sub", "start", "end"}, count},
}

// remove is removeprefix or removesuffix.
func remove(trim func(s, x string) string) func(*interp, Value, []Value) (Value, error) {
	return func(_ *interp, self Value, a []Value) (Value, error) {
		x, ok := a[0].(string)
		if !ok {
			return nil, badOperand(a[0], "expected a string, not")
		}
		return trim(self.(string), x), nil
	}
}

// replace counts the occurrences first: what the result will take is charged before it is made.
func replace(in *interp, self Value, a []Value) (Value, error) {
	s := self.(string)
	old, ok1 := a[0].(string)
	with, ok2 := a[1].(string)
	if !ok1 || !ok2 {
		return nil, typeErrorf("replace() takes two strings")
	}
	n, err := intArg(a[2], -1)
	if err != nil {
		return nil, err
	}
	times := strings.Count(s, old)
	if n >= 0 && int64(times) > n {
		times = int(n)
	}
	if len(with) > 0 && times > in.lim.Bytes/len(with) {
		return nil, in.charge(in.lim.Bytes + 1)
	}
	if err := in.charge(len(s) + times*len(with)); err != nil {
		return nil, err
	}
	return strings.Replace(s, old, with, times), nil
}

// count counts occurrences that do not overlap.
func count(in *interp, self Value, a []Value) (Value, error) {
	x, ok := a[0].(string)
	if !ok {
		return nil, badOperand(a[0], "expected a string, not")
	}
	s, _, ok, err := window(self.(string), a[1], a[2])
	if err != nil || !ok {
		return int64(0), err
	}
	return int64(strings.Count(s, x)), in.steps(len(s) / 256)
}

// join is str.join, which accepts nothing but strings.
func join(in *interp, self Value, a []Value) (Value, error) {
	items, err := in.iterate(a[0])
	if err != nil {
		return nil, err
	}
	b := &buffer{in: in}
	for i, v := range items {
		s, ok := v.(string)
		if !ok {
			return nil, typeErrorf("sequence item %d: expected str instance, %s found", i, typeName(v))
		}
		if i > 0 {
			s = self.(string) + s
		}
		if err := b.add(s); err != nil {
			return nil, err
		}
	}
	return b.String(), nil
}

// partition is partition or rpartition, told apart by which of two separators is found.
func partition(at func(s, sep string) int) func(*interp, Value, []Value) (Value, error) {
	last := at("aa", "a") == 1
	return func(in *interp, self Value, a []Value) (Value, error) {
		s := self.(string)
		sep, ok := a[0].(string)
		if !ok || sep == "" {
			return nil, typeErrorf("partition needs a separator that is not empty")
		}
		parts := []Value{s, "", ""}
		if i := at(s, sep); i >= 0 {
			parts = []Value{s[:i], sep, s[i+len(sep):]}
		} else if last {
			parts = []Value{"", "", s}
		}
		return &List{Items: parts, Tuple: true}, in.charge(48 + len(s))
	}
}

// split is split or rsplit.
func split(fromRight bool) func(*interp, Value, []Value) (Value, error) {
	return func(in *interp, self Value, a []Value) (Value, error) {
		s := self.(string)
		limit, err := intArg(a[1], -1)
		if err != nil {
			return nil, err
		}
		var parts []string
		if v := orNone(a[0]); v == nil {
			parts = fields(s, limit, fromRight)
		} else {
			sep, err := strArg(v, "")
			if err != nil {
				return nil, err
			}
			if sep == "" {
				return nil, typeErrorf("empty separator")
			}
			parts = splitOn(s, sep, limit, fromRight)
		}
		return in.strings(parts)
	}
}

// strings makes a list of strings.
func (in *interp) strings(parts []string) (Value, error) {
	size := 32 * len(parts)
	out := &List{Items: make([]Value, len(parts))}
	for i, p := range parts {
		out.Items[i] = p
		size += len(p)
	}
	return out, in.charge(size)
}

// splitOn splits at a separator, at most limit times when that is not negative.
func splitOn(s, sep string, limit int64, fromRight bool) []string {
	if limit < 0 || limit >= int64(strings.Count(s, sep)) {
		return strings.Split(s, sep)
	}
	if !fromRight {
		return strings.SplitN(s, sep, int(limit)+1)
	}
	var tail []string
	for range limit {
		i := strings.LastIndex(s, sep)
		tail = append(tail, s[i+len(sep):])
		s = s[:i]
	}
	return reversed(append(tail, s))
}

// fields splits at runs of white space.
func fields(s string, limit int64, fromRight bool) []string {
	if limit < 0 {
		return strings.FieldsFunc(s, isSpace)
	}
	var out []string
	if fromRight {
		for s = strings.TrimRightFunc(s, isSpace); s != "" && limit > 0; limit-- {
			i := strings.LastIndexFunc(s, isSpace) // -1: s is one word
			_, w := utf8.DecodeRuneInString(s[max(i, 0):])
			if i < 0 {
				w = 1
			}
			out = append(out, s[i+w:])
			s = strings.TrimRightFunc(s[:max(i, 0)], isSpace)
		}
		if s != "" {
			out = append(out, s)
		}
		return reversed(out)
	}
	for s = strings.TrimLeftFunc(s, isSpace); s != "" && limit > 0; limit-- {
		i := strings.IndexFunc(s, isSpace)
		if i < 0 {
			i = len(s)
		}
		out = append(out, s[:i])
		s = strings.TrimLeftFunc(s[i:], isSpace)
	}
	if s != "" {
		out = append(out, s)
	}
	return out
}

func reversed(s []string) []string {
	for i, j := 0, len(s)-1; i < j; i, j = i+1, j-1 {
		s[i], s[j] = s[j], s[i]
	}
	return s
}

// lineEnds are the characters str.splitlines cuts at; \r\n counts as one.
const lineEnds = "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029"

// splitLines is str.splitlines.
func splitLines(in *interp, self Value, a []Value) (Value, error) {
	lines, err := in.lines(self.(string), boolArg(a[0], false))
	if err != nil {
		return nil, err
	}
	return in.strings(lines)
}

// lines cuts s at its line ends, which keep leaves on the lines.
func (in *interp) lines(s string, keep bool) ([]string, error) {
	var out []string
	for s != "" {
		i := strings.IndexAny(s, lineEnds)
		if i < 0 {
			out = append(out, s)
			break
		}
		_, w := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			w = 2
		}
		line := s[:i]
		if keep {
			line = s[:i+w]
		}
		out = append(out, line)
		s = s[i+w:]
		if err := in.charge(16); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// upper maps with the full rule for the one letter that chat text is likely to hold and Go maps to itself.
func upper(s string) string { return strings.ReplaceAll(strings.ToUpper(s), "ß", "SS") }

// capitalize is str.capitalize: the rest becomes lower case.
func capitalize(s string) string {
	r, w := utf8.DecodeRuneInString(s)
	if w == 0 {
		return s
	}
	return string(unicode.ToTitle(r)) + strings.ToLower(s[w:])
}

// title is str.title: a letter after a letter is lower case, every other one title case.
func title(s string) string {
	prev := false
	return strings.Map(func(r rune) rune {
		cased := unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r)
		switch {
		case !cased:
		case prev:
			r = unicode.ToLower(r)
		default:
			r = unicode.ToTitle(r)
		}
		prev = cased
		return r
	}, s)
}
