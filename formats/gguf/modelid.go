package gguf

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// llama.cpp's converter names a file's contents after its directory or Hub repository. The parts are guesses by pattern,
// kept here because model catalogues group files by them; nothing in a model's behaviour depends on them.

// modelID holds the parts of a model's name, as llama.cpp's converter guesses them from the name of its directory or of
// its Hub repository: "org/Basename-7B-Instruct-v0.2".
type modelID struct {
	name, organization, basename, finetune, version, size string
}

// part is one hyphen-separated piece of the name and what it was taken for.
type part struct {
	text string
	is   map[string]bool
}

// The patterns that give a piece its meaning; a piece can be several things.
var (
	versionPart  = regexp.MustCompile(`(?i)^(v|iter)?\d+([.]\d+)*$`)
	typePart     = regexp.MustCompile(`(?i)^(i?q\d(_\w)*|b?fp?(16|32))$`)
	sizePart     = regexp.MustCompile(`(?i)^(([A]|\d+[x])?\d+([._]\d+)?[KMBT][\d]?|small|mini|medium|large|x?xl)$`)
	finetunePart = regexp.MustCompile(`(?i)^(chat|instruct|vision|lora)$`)
	keepCase     = regexp.MustCompile(`^(v\d+(?:\.\d+)*|\d.*)$`)
)

// parseModelID takes a name apart. params is the number of weights: a size far from it is a context length.
func parseModelID(id string, params int64) modelID {
	if strings.Contains(id, " ") { // a sentence, not an identifier
		return modelID{name: id}
	}
	var m modelID
	if org, name, ok := strings.Cut(id, "/"); ok {
		m.name = name
		if !strings.HasPrefix(org, ".") {
			m.organization = org
		}
	} else {
		m.name = id
	}
	var parts []part
	for _, text := range strings.Split(m.name, "-") {
		if text != "" {
			parts = append(parts, part{text, map[string]bool{}})
		}
	}
	for i := range parts {
		annotate(parts, i, params)
	}
	dropWordSizes(parts)
	markBasename(parts)
	m.size = join(parts, true, func(p part) bool { return p.is["size"] })
	m.basename = join(parts, false, func(p part) bool { return p.is["basename"] })
	m.finetune = join(parts, false, func(p part) bool { return p.is["finetune"] })
	m.version = join(parts, false, func(p part) bool { return p.is["version"] && !p.is["basename"] })
	if m.size == "" && m.finetune == "" && m.version == "" {
		m.basename = "" // a bare word says too little
	}
	return m
}

// annotate decides what piece i can be. The first piece is never a size or a finetune: a name starts with a name.
func annotate(parts []part, i int, params int64) {
	p := &parts[i]
	switch {
	case versionPart.MatchString(p.text):
		p.is["version"] = true
	case typePart.MatchString(p.text):
		p.is["type"] = true
		p.text = strings.ToUpper(p.text)
	case i > 0 && sizePart.MatchString(p.text):
		p.text = normalizeSize(p.text)
		n, numeric := sizeParams(p.text)
		if numeric && params > 0 && math.Abs(n-float64(params)) > float64(7*params/8) {
			p.is["finetune"] = true
			last := len(p.text) - 1
			p.text = p.text[:last] + strings.ToLower(p.text[last:])
			return
		}
		p.is["size"] = true
	case i > 0 && finetunePart.MatchString(p.text):
		p.is["finetune"] = true
	}
}

// normalizeSize spells a size with a point and a capital suffix; "7b1" is BLOOM's way of writing 7.1B.
func normalizeSize(s string) string {
	s = strings.ReplaceAll(s, "_", ".")
	n := len(s)
	if last := s[n-1]; last >= '0' && last <= '9' {
		s = s[:n-2] + "." + s[n-1:] + s[n-2:n-1]
		n = len(s)
	}
	if n > 1 && s[n-2] >= '0' && s[n-2] <= '9' && strings.IndexByte("kmbt", s[n-1]) >= 0 {
		s = s[:n-1] + strings.ToUpper(s[n-1:])
	}
	return s
}

// sizeParams returns the number of weights that "7B" means.
func sizeParams(s string) (n float64, ok bool) {
	exponent := strings.IndexByte(" KMBT", s[len(s)-1])
	x, err := strconv.ParseFloat(s[:len(s)-1], 64)
	if exponent < 0 || err != nil {
		return 0, false
	}
	return x * math.Pow(1000, float64(exponent)), true
}

// dropWordSizes keeps "small" and "large" only where no number states the size.
func dropWordSizes(parts []part) {
	hasDigit := func(p part) bool { return p.is["size"] && strings.ContainsFunc(p.text, unicode.IsDigit) }
	if !slices.ContainsFunc(parts, hasDigit) {
		return
	}
	for _, p := range parts {
		if !strings.ContainsFunc(p.text, func(r rune) bool { return !unicode.IsLetter(r) }) {
			delete(p.is, "size")
		}
	}
}

// markBasename takes the leading words and versions for the base name, the other unmarked pieces for the finetune.
func markBasename(parts []part) {
	start := true
	for _, p := range parts {
		letter := unicode.IsLetter([]rune(p.text)[0])
		switch {
		case start && (len(p.is) == 0 && letter || p.is["version"]):
			p.is["basename"] = true
		default:
			start = false
			if len(p.is) == 0 {
				p.is["finetune"] = true
			}
		}
	}
	for _, p := range slices.Backward(parts) { // a version at the end is no part of the base name
		if !p.is["basename"] || len(p.is) == 1 {
			break
		}
		delete(p.is, "basename")
	}
}

// join puts the pieces that keep accepts together again.
func join(parts []part, once bool, keep func(part) bool) string {
	var kept []string
	for _, p := range parts {
		if keep(p) && !(once && slices.Contains(kept, p.text)) {
			kept = append(kept, p.text)
		}
	}
	return strings.Join(kept, "-")
}

// title turns an identifier into words: "golm-llama" into "Golm Llama". Words with capitals, versions and words that
// start with a digit stay as they are.
func title(id string) string {
	words := strings.Fields(strings.ReplaceAll(strings.TrimSpace(id), "-", " "))
	for i, w := range words {
		if isLower(w) && !keepCase.MatchString(w) {
			words[i] = capitalize(w)
		}
	}
	return strings.Join(words, " ")
}

// isLower reports whether a word has small letters and no capitals, Python's islower.
func isLower(s string) bool {
	return strings.ContainsFunc(s, unicode.IsLower) && !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsUpper(r) || unicode.IsTitle(r) })
}

// capitalize puts every letter that follows no letter in title case.
func capitalize(s string) string {
	after := false
	return strings.Map(func(r rune) rune {
		letter := unicode.IsLower(r) || unicode.IsUpper(r) || unicode.IsTitle(r)
		if letter && !after {
			r = unicode.ToTitle(r)
		}
		after = letter
		return r
	}, s)
}
