package gguf

import (
	"strings"
)

// card is the YAML front matter of a model card (README.md): the scalars and the lists of scalars at its top level.
// Nested mappings (model-index and the like) hold nothing that GGUF records and are skipped.
type card map[string][]string

// readCard reads the block between the first two "---" lines. It understands the YAML that model cards use: plain and
// quoted scalars, flow and block lists, folded and literal texts, comments. A card without front matter is empty.
func readCard(text []byte) card {
	lines := strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")
	if strings.TrimPrefix(lines[0], "\ufeff") != "---" {
		return nil
	}
	lines = lines[1:]
	for i, l := range lines {
		if l == "---" {
			lines = lines[:i]
			break
		}
	}
	c := card{}
	for i := 0; i < len(lines); {
		key, rest, ok := splitKey(lines[i])
		i++
		if !ok {
			continue
		}
		start := i
		for i < len(lines) && (lines[i] == "" || strings.ContainsAny(lines[i][:1], " \t-#")) {
			i++
		}
		if values, ok := cardValue(rest, lines[start:i]); ok {
			c[key] = values
		}
	}
	return c
}

// splitKey takes "key: rest" at the left margin apart.
func splitKey(line string) (key, rest string, ok bool) {
	if line == "" || strings.ContainsAny(line[:1], " \t-#[]{}") {
		return "", "", false
	}
	key, rest, ok = strings.Cut(line, ":")
	if !ok || rest != "" && rest[0] != ' ' && rest[0] != '\t' {
		return "", "", false
	}
	return strings.Trim(strings.TrimSpace(key), `"'`), strings.TrimSpace(uncomment(rest)), true
}

// cardValue reads the value of a key from the rest of its line and the lines below it.
func cardValue(rest string, below []string) (values []string, ok bool) {
	switch {
	case rest == "":
		return blockList(below)
	case rest[0] == '|' || rest[0] == '>':
		return []string{blockText(rest[0], below)}, true
	case rest[0] == '[':
		for _, l := range below { // a flow list may go on below
			rest += " " + strings.TrimSpace(uncomment(l))
		}
		return flowList(rest), true
	case rest[0] == '{' || rest == "null" || rest == "~":
		return nil, false
	}
	for _, l := range below { // a plain scalar may go on, indented
		if l = strings.TrimSpace(uncomment(l)); l != "" {
			rest += " " + l
		}
	}
	return []string{scalar(rest)}, true
}

// blockList reads "- item" lines. Items that are mappings (data sets with revisions, evaluation results) make the whole list
// count as absent, since GGUF has no place for them.
func blockList(lines []string) (values []string, ok bool) {
	for _, l := range lines {
		item := strings.TrimSpace(uncomment(l))
		if item == "" {
			continue
		}
		text, isItem := strings.CutPrefix(item, "-")
		text = strings.TrimSpace(text)
		if !isItem || text == "" || strings.HasPrefix(text, "- ") {
			return nil, false // a mapping or a list of lists
		}
		if quoted := text[0] == '"' || text[0] == '\''; !quoted && (strings.Contains(text, ": ") || strings.HasSuffix(text, ":")) {
			return nil, false // a list of mappings
		}
		values = append(values, scalar(text))
	}
	return values, values != nil
}

// flowList splits "[a, 'b', c]".
func flowList(text string) []string {
	inner := strings.TrimPrefix(text, "[")
	if end := strings.LastIndexByte(inner, ']'); end >= 0 {
		inner = inner[:end]
	}
	var values []string
	for _, part := range splitOutsideQuotes(inner) {
		if part = strings.TrimSpace(part); part != "" {
			values = append(values, scalar(part))
		}
	}
	return values
}

// splitOutsideQuotes splits at commas; a quoted item may contain one.
func splitOutsideQuotes(s string) []string {
	var parts []string
	start, quote := 0, byte(0)
	for i := range len(s) {
		switch {
		case quote != 0:
			if s[i] == quote {
				quote = 0
			}
		case s[i] == '"' || s[i] == '\'':
			quote = s[i]
		case s[i] == ',':
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:])
}

// blockText joins an indented text: lines kept for "|", folded for ">".
func blockText(style byte, lines []string) string {
	sep := "\n"
	if style == '>' {
		sep = " "
	}
	indent := -1
	var out []string
	for _, l := range lines {
		trimmed := strings.TrimLeft(l, " ")
		if trimmed != "" && indent < 0 {
			indent = len(l) - len(trimmed)
		}
		if indent > 0 && len(l) >= indent {
			l = l[indent:]
		} else {
			l = trimmed
		}
		out = append(out, l)
	}
	return strings.TrimRight(strings.Join(out, sep), " \n") + "\n"
}

// scalar removes quotes and their escapes.
func scalar(s string) string {
	if len(s) < 2 || s[0] != s[len(s)-1] {
		return s
	}
	switch s[0] {
	case '\'':
		return strings.ReplaceAll(s[1:len(s)-1], "''", "'")
	case '"':
		return strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\n`, "\n", `\t`, "\t").Replace(s[1 : len(s)-1])
	}
	return s
}

// uncomment cuts " # …" outside quotes.
func uncomment(s string) string {
	quote := byte(0)
	for i := 0; i < len(s); i++ {
		switch {
		case quote == '"' && s[i] == '\\':
			i++
		case quote != 0:
			if s[i] == quote {
				quote = 0
			}
		case (s[i] == '"' || s[i] == '\'') && (i == 0 || strings.IndexByte(" [,-", s[i-1]) >= 0):
			quote = s[i]
		case s[i] == '#' && (i == 0 || s[i-1] == ' ' || s[i-1] == '\t'):
			return s[:i]
		}
	}
	return s
}

// one returns a scalar; a list counts as absent.
func (c card) one(key string) string {
	if v := c[key]; len(v) == 1 {
		return v[0]
	}
	return ""
}
