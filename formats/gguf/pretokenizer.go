package gguf

import (
	"slices"
	"strconv"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
)

// llama.cpp does not read split patterns from files; it implements a fixed set of them and a file names one. So does this
// package: the table below maps the pre_tokenizer object of tokenizer.json, normalised, to the name of the implementation
// that splits the same way. The reference finds the name by encoding a sample text with the real tokenizer and looking up
// a hash of the ids, which works for the published vocabularies it knows and fails for every other; the description works
// for any vocabulary that is split in a known way.

// The split patterns of byte-level tokenizers, as they stand in tokenizer.json.
const (
	contractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	patternTail  = ` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	slashTail    = ` ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	upperLower   = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	lowerUpper   = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`

	splitLlama3 = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|` + patternTail
	splitQwen2  = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|` + patternTail
	splitQwen35 = contractions + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	splitTekken = upperLower + `|` + lowerUpper + `|\p{N}|` + slashTail
	splitGPT4o  = upperLower + contractions + `?|` + lowerUpper + contractions + `?|\p{N}{1,3}|` + slashTail
	splitSeed   = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// The steps of DeepSeek's tokenizers; the classes of letters and punctuation are spelled out in their files.
const (
	cjk      = `[一-龥ࠀ-一가-퟿]+`
	cjkV3    = `[一-龥぀-ゟ゠-ヿ]+`
	asciiV3  = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
	wordsV3  = `|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	newlines = `[\r\n]`
)

// pre is one row of the table: a pre-tokenizer and the name under which llama.cpp knows its behaviour. Several names of
// llama.cpp share one behaviour; the table has the plainest.
type pre struct {
	steps        []string // in the spelling of describe
	ignoreMerges bool     // whole words that are tokens are not merged together first
	name         string
	addsBOS      bool // llama.cpp adds BOS under this name unless tokenizer.ggml.add_bos_token says otherwise
}

const (
	byteLevel = "bytes"     // ByteLevel that only maps bytes to characters
	gpt2Split = "bytes:gpt" // ByteLevel with its built-in split pattern
	digits    = "digits"    // every digit alone
)

// bySplit names a step that keeps the matches of a pattern as pieces. Files spell line breaks in patterns as escapes or as
// the characters themselves; both mean the same.
func bySplit(pattern string) string {
	return "split:" + strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(pattern)
}

var pres = [...]pre{
	{[]string{bySplit(splitLlama3), byteLevel}, true, "llama-bpe", true},
	{[]string{bySplit(splitLlama3), byteLevel}, false, "smaug-bpe", false},
	{[]string{bySplit(splitQwen2), byteLevel}, false, "qwen2", false},
	{[]string{bySplit(splitQwen35), byteLevel}, false, "qwen35", false},
	{[]string{bySplit(splitTekken), byteLevel}, true, "tekken", true},
	{[]string{bySplit(splitGPT4o), byteLevel}, false, "gpt-4o", false},
	{[]string{bySplit(splitSeed), byteLevel}, false, "seed-coder", false},
	{[]string{bySplit(`\p{N}{1,3}`), bySplit(cjkV3), bySplit(asciiV3 + wordsV3), byteLevel}, false, "deepseek-v3", false},
	{[]string{bySplit(newlines), bySplit(`\s?\p{L}+`), bySplit(`\s?\p{P}+`), bySplit(cjk), digits, byteLevel}, false, "deepseek-coder", false},
	{[]string{gpt2Split}, false, "gpt-2", false},
	{[]string{digits, gpt2Split}, false, "smollm", false},
}

// PreTokenizer is one pre-tokenizer that has a name in GGUF.
type PreTokenizer struct {
	Name         string   // value of tokenizer.ggml.pre
	Steps        []string // normalised description of tokenizer.json's pre_tokenizer
	IgnoreMerges bool
}

// PreTokenizers lists the pre-tokenizers that can be stored.
func PreTokenizers() []PreTokenizer {
	out := make([]PreTokenizer, len(pres))
	for i, p := range pres {
		out[i] = PreTokenizer{p.name, slices.Clone(p.steps), p.ignoreMerges}
	}
	return out
}

// readPre finds the name of the pre-tokenizer. An unknown one is refused: under a wrong name the model would see other
// tokens than it was trained on, without any error.
func (t *TokenizerInfo) readPre(doc safeio.Value) error {
	steps, err := describe(doc.Get("pre_tokenizer"))
	if err != nil {
		return err
	}
	if err := checkNormalizer(doc.Get("normalizer")); err != nil {
		return err
	}
	ignore, _ := doc.Path("model", "ignore_merges").Bool()
	for _, p := range pres {
		if p.ignoreMerges == ignore && slices.Equal(p.steps, steps) {
			t.Pre, t.DefaultBOS = p.name, p.addsBOS
			return nil
		}
	}
	return safeio.Unsupportedf("llama.cpp has no name for this pre-tokenizer (ignore_merges %v): %s", ignore, strings.Join(steps, " · "))
}

// describe normalises a pre_tokenizer to one line per step.
func describe(v safeio.Value) ([]string, error) {
	kind, _ := v.Get("type").Str()
	switch kind {
	case "":
		return nil, nil
	case "Sequence":
		var steps []string
		for item := range v.Get("pretokenizers").Items() {
			inner, err := describe(item)
			if err != nil {
				return nil, err
			}
			steps = append(steps, inner...)
		}
		return steps, nil
	case "ByteLevel":
		return describeByteLevel(v)
	case "Digits":
		if each, _ := v.Get("individual_digits").Bool(); each {
			return []string{digits}, nil
		}
		return []string{"digit runs"}, nil
	case "Split":
		return describeSplit(v)
	}
	return []string{kind}, nil
}

// describeByteLevel tells the two uses of ByteLevel apart: with its own split pattern, or as a mere change of alphabet.
func describeByteLevel(v safeio.Value) ([]string, error) {
	prefix, err := safeio.Or(v, "add_prefix_space", true, safeio.Value.Bool)
	if err != nil {
		return nil, err
	}
	regex, err := safeio.Or(v, "use_regex", true, safeio.Value.Bool)
	if err != nil {
		return nil, err
	}
	step := byteLevel
	if regex {
		step = gpt2Split
	}
	if prefix { // no byte-level pre-tokenizer of llama.cpp puts a space in front
		step += " with a leading space"
	}
	return []string{step}, nil
}

// describeSplit names a Split step; forms that are not in the table get a description for the error message.
func describeSplit(v safeio.Value) ([]string, error) {
	pattern, err := v.Path("pattern", "Regex").Str()
	if err != nil {
		text, err := v.Path("pattern", "String").Str()
		if err != nil {
			return nil, safeio.Corruptf("a Split pre-tokenizer has no pattern")
		}
		return []string{"split at " + strconv.Quote(text)}, nil
	}
	behavior, _ := v.Get("behavior").Str()
	invert, _ := v.Get("invert").Bool()
	// Keeping the matches alone is the same as isolating them for patterns that match every character.
	if behavior == "Isolated" && !invert || behavior == "Removed" && invert {
		return []string{bySplit(pattern)}, nil
	}
	return []string{"split (" + behavior + ", invert " + strconv.FormatBool(invert) + "): " + pattern}, nil
}

// checkNormalizer accepts what llama.cpp leaves out without harm: nothing, and Unicode composition.
func checkNormalizer(v safeio.Value) error {
	kind, _ := v.Get("type").Str()
	list := v.Get("normalizers")
	switch {
	case kind == "" || kind == "NFC" || kind == "Sequence" && list.Len() == 0:
		return nil
	case kind == "Sequence" && list.Len() == 1:
		for item := range list.Items() {
			return checkNormalizer(item)
		}
	}
	return safeio.Unsupportedf("the normalizer %s of the tokenizer cannot be stored in GGUF", kind)
}
