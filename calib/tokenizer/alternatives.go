package tokenizer

import (
	"math"
	"strings"
)

// An alternative is one branch of a split pattern that this package understands.
type alternative struct {
	text  string // as patterns spell it, with CR and LF as \r and \n
	build func(t *categories) matcher
}

// alternatives is the closed list of what split patterns may consist of. The comments name the tokenizers in which
// the pattern was met. A new one is a row here, a matcher, and a line in the tests that compare each row with a slow
// reading of its text.
var alternatives = [...]alternative{
	// Contractions.
	{`'s`, lit("'s")}, // GPT-2 and its descendants list them one by one
	{`'t`, lit("'t")},
	{`'re`, lit("'re")},
	{`'ve`, lit("'ve")},
	{`'m`, lit("'m")},
	{`'ll`, lit("'ll")},
	{`'d`, lit("'d")},
	{`(?i:'s|'t|'re|'ve|'m|'ll|'d)`, foldedContraction},                             // cl100k, Llama 3, Qwen 2
	{`'(?i:[sdmt]|ll|ve|re)`, foldedContraction},                                    // cl100k as tiktoken spells it now
	{`(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])`, asciiContraction}, // llama.cpp's spelling

	// Words.
	{` ?\p{L}+`, func(t *categories) matcher { return t.spaced(classL, "", 0) }},                                // GPT-2
	{`[^\r\n\p{L}\p{N}]?\p{L}+`, func(t *categories) matcher { return t.prefixed(notLetterNumber, classL) }},    // cl100k, Qwen 2
	{`[^\r\n\p{L}\p{N}]?+\p{L}+`, func(t *categories) matcher { return t.prefixed(notLetterNumber, classL) }},   // cl100k, possessive
	{`[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+`, func(t *categories) matcher { return t.prefixed(notLetterNumber, lm) }}, // Qwen 3.5
	{`[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+`, func(t *categories) matcher { return t.prefixed(notLPS, lm) }},     // DeepSeek V3
	{`\s?\p{L}+`, func(t *categories) matcher { return t.prefixed(classSpace, classL) }},                        // DeepSeek Coder
	{"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+", func(*categories) matcher { return punctuationWord }},
	{upperLower0 + `(?i:'s|'t|'re|'ve|'m|'ll|'d)?`, func(t *categories) matcher { return t.caseWord(true, contraction(true)) }}, // o200k
	{upperLower1 + `(?i:'s|'t|'re|'ve|'m|'ll|'d)?`, func(t *categories) matcher { return t.caseWord(false, contraction(true)) }},
	{upperLower0, func(t *categories) matcher { return t.caseWord(true, nil) }}, // Tekken
	{upperLower1, func(t *categories) matcher { return t.caseWord(false, nil) }},
	{`[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+`, func(t *categories) matcher { return t.phrase }}, // EXAONE 4

	// Numbers.
	{`\p{N}`, func(t *categories) matcher { return t.exactly(classN, 1) }},    // Qwen 2
	{`\p{N}{1}`, func(t *categories) matcher { return t.exactly(classN, 1) }}, // Seed Coder
	{`\p{N}{1,2}`, func(t *categories) matcher { return t.repeat(classN, 1, 2) }},
	{`\p{N}{1,3}`, func(t *categories) matcher { return t.repeat(classN, 1, 3) }}, // cl100k, Llama 3
	{`\p{N}+`, func(t *categories) matcher { return t.runOf(classN) }},
	{`\d`, func(t *categories) matcher { return t.exactly(1<<catNd, 1) }},
	{`\d+`, func(t *categories) matcher { return t.runOf(1 << catNd) }},
	{`\d{1,3}`, func(t *categories) matcher { return t.repeat(1<<catNd, 1, 3) }},
	{`[0-9]`, func(*categories) matcher { return asciiDigits(1) }},
	{` ?\p{N}+`, func(t *categories) matcher { return t.spaced(classN, "", 0) }}, // GPT-2
	{`[0-9][0-9][0-9]`, func(*categories) matcher { return asciiDigits(3) }},     // Falcon

	// Punctuation and symbols.
	{` ?[^\s\p{L}\p{N}]+`, func(t *categories) matcher { return t.spaced(other, "", 0) }},                                   // GPT-2
	{` ?[^\s\p{L}\p{N}]+[\r\n]*`, func(t *categories) matcher { return t.spaced(other, "\r\n", math.MaxInt) }},              // cl100k
	{` ?[^\s\p{L}\p{N}]++[\r\n]*`, func(t *categories) matcher { return t.spaced(other, "\r\n", math.MaxInt) }},             // cl100k, possessive
	{` ?[^\s\p{L}\p{N}]+[\r\n/]*`, func(t *categories) matcher { return t.spaced(other, "\r\n/", math.MaxInt) }},            // o200k, Tekken
	{` ?[^\s\p{L}\p{N}]+[\r\n/]?`, func(t *categories) matcher { return t.spaced(other, "\r\n/", 1) }},                      // EXAONE 4
	{` ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*`, func(t *categories) matcher { return t.spaced(other&^classM, "\r\n", math.MaxInt) }}, // Qwen 3.5
	{` ?[^\s\p{L}\p{N}\r\n]+`, func(t *categories) matcher { return t.spaced(other, "", 0) }},                               // Seed Coder
	{` ?[\p{P}\p{S}]+[\r\n]*`, func(t *categories) matcher { return t.spaced(classP|classS, "\r\n", math.MaxInt) }},         // DeepSeek V3
	{`\s?\p{P}+`, func(t *categories) matcher { return t.prefixed(classSpace, classP) }},                                    // DeepSeek Coder

	// White space.
	{`\s+(?!\S)`, func(t *categories) matcher { return t.spaceBeforeSpace }},
	{`\s+`, func(t *categories) matcher { return t.runOf(classSpace) }},
	{`\s+$`, func(t *categories) matcher { return t.spaceAtEnd }}, // DeepSeek LLM, after a step that isolates line ends
	{`\s*[\r\n]+`, func(t *categories) matcher { return t.lineEnds }},
	{`\s*[\r\n]`, func(t *categories) matcher { return t.lineEnds }}, // the greedy \s* leaves exactly the last line end
	{`[\r\n]`, func(t *categories) matcher { return t.exactly(classNewline, 1) }},
	{`[^\n]+`, func(t *categories) matcher { return t.runIn(0, parseRunes("\n"), true) }}, // Gemma 4
	{`[\n]+`, func(t *categories) matcher { return t.runIn(0, parseRunes("\n"), false) }},

	// Runs of given characters: scripts written without blanks, and lists of letters.
	{`[一-龥぀-ゟ゠-ヿ]+`, inside("一-龥぀-ゟ゠-ヿ")}, // DeepSeek V3
	{`[一-龥ࠀ-一가-퟿]+`, inside("一-龥ࠀ-一가-퟿")}, // DeepSeek LLM and Coder
	{`[가-힣ㄱ-ㆎ]+`, inside("가-힣ㄱ-ㆎ")},       // Youtu
	{`[！…“”‘’—：；，、-〿︰-﹏]+`, inside("！…“”‘’—：；，、-〿︰-﹏")},
	{`[ㄅ-ㄯ]+`, inside("ㄅ-ㄯ")},
	{` ?[^(\s|.,!?…。，、।۔،)]+`, func(t *categories) matcher { return t.bloomWord }}, // BLOOM, Viking
	{`\s?[` + deepSeekLetters + `]+`, func(t *categories) matcher { // DeepSeek LLM
		return t.runIn(classSpace, parseRunes(deepSeekLetters), false)
	}},
	{`\s?[` + deepSeekPunctuation + `]+`, func(t *categories) matcher { // DeepSeek LLM
		return t.runIn(classSpace, parseRunes(deepSeekPunctuation), false)
	}},
}

// The pieces of long patterns and the classes in them.
const (
	upperLower0 = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	upperLower1 = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`

	// Cased letters as DeepSeek LLM lists them (Unicode 11), and its punctuation.
	deepSeekLetters = "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373" +
		"\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f" +
		"\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77" +
		"\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d" +
		"\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4" +
		"\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139" +
		"\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d" +
		"\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a" +
		"\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2" +
		"\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
	deepSeekPunctuation = "!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002"

	lm              = classL | classM
	other           = ^(classSpace | classL | classN)
	notLetterNumber = ^(classNewline | classL | classN)
	notLPS          = ^(classNewline | classL | classP | classS)
)

// lit is a row's builder for a fixed text.
func lit(text string) func(*categories) matcher {
	return func(*categories) matcher { return literal(text) }
}

// inside is a row's builder for a run of listed characters.
func inside(set string) func(*categories) matcher {
	return func(t *categories) matcher { return t.runIn(0, parseRunes(set), false) }
}

// foldedContraction compares as (?i:…) does, by Unicode case folding.
func foldedContraction(*categories) matcher { return contraction(true) }

// asciiContraction compares as [sS] does.
func asciiContraction(*categories) matcher { return contraction(false) }

// asciiDigits matches exactly n of 0 to 9.
func asciiDigits(n int) matcher {
	return func(s string, i int) int {
		if i+n > len(s) {
			return -1
		}
		for _, b := range []byte(s[i : i+n]) {
			if b < '0' || b > '9' {
				return -1
			}
		}
		return i + n
	}
}

// bloomWord matches ` ?[^(\s|.,!?…。，、।۔،)]+`: the class also excludes parentheses and the bar.
func (t *categories) bloomWord(s string, i int) int {
	const excluded = "(|.,!?…。，、।۔،)"
	if s[i] == ' ' {
		i++
	}
	start := i
	for _, r := range s[i:] {
		if t.is(r, classSpace) || strings.ContainsRune(excluded, r) {
			break
		}
		i += len(string(r))
	}
	if i == start {
		return -1
	}
	return i
}

// alternativesOf cuts a pattern at its top-level bars. CR and LF are written as escapes first: both spellings occur
// in files and mean the same.
func alternativesOf(pattern string) []string {
	pattern = strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(pattern)
	var out []string
	depth, start := 0, 0
	inClass := false
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\':
			i++
		case inClass:
			inClass = c != ']'
		case c == '[':
			inClass = true
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == '|' && depth == 0:
			out = append(out, pattern[start:i])
			start = i + 1
		}
	}
	return append(out, pattern[start:])
}
