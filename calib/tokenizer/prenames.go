package tokenizer

import "slices"

// Patterns by the models that made them known, as tokenizer.json spells them.
const (
	cl100kContraction = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|`
	cl100kTail        = ` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	o200kSuffix       = `(?i:'s|'t|'re|'ve|'m|'ll|'d)?|`
	o200kTail         = ` ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	llama3Pattern = cl100kContraction + `[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|` + cl100kTail
	qwen2Pattern  = cl100kContraction + `[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|` + cl100kTail
	cl100kRuns    = cl100kContraction + `[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+|` + cl100kTail
	qwen35Pattern = cl100kContraction + `[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	seedPattern   = cl100kContraction + `[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+`
	bailing       = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`
	tekkenPattern = upperLower0 + `|` + upperLower1 + `|\p{N}|` + o200kTail
	o200kPattern  = upperLower0 + o200kSuffix + upperLower1 + o200kSuffix + `\p{N}{1,3}|` + o200kTail
	deepSeekV3    = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" +
		`|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	exaoneMoE = cl100kContraction + `[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+`
	bloomText = ` ?[^(\s|.,!?…。，、।۔،)]+`
)

// preNames gives llama.cpp's name to sequences of pre-tokenizer steps. Several of its names stand for the same
// splitting; the one without side effects on other text handling is listed. whole limits a name to tokenizers with or
// without ignore_merges, which some names imply.
var preNames = [...]struct {
	name  string
	whole string // "yes", "no", "" when it does not matter
	steps []string
}{
	{"gpt-2", "", []string{"ByteLevel+GPT2"}},
	{"smollm", "", []string{"Digits(each)", "ByteLevel+GPT2"}}, // also StarCoder 2, Command R, Refact, CodeShell
	{"llama-bpe", "yes", []string{isolatedSplit(llama3Pattern), "ByteLevel"}},
	{"dbrx", "no", []string{isolatedSplit(llama3Pattern), "ByteLevel"}},
	{"qwen2", "no", []string{isolatedSplit(qwen2Pattern), "ByteLevel"}},
	{"qwen35", "no", []string{isolatedSplit(qwen35Pattern), "ByteLevel"}},
	{"gpt-4o", "", []string{isolatedSplit(o200kPattern), "ByteLevel"}},
	{"tekken", "yes", []string{isolatedSplit(tekkenPattern), "ByteLevel"}},
	{"deepseek-v3", "no", []string{isolatedSplit(`\p{N}{1,3}`), isolatedSplit(`[一-龥぀-ゟ゠-ヿ]+`), isolatedSplit(deepSeekV3), "ByteLevel"}},
	{"deepseek-llm", "no", []string{isolatedSplit(`[\r\n]`), isolatedSplit(`\s?[` + deepSeekLetters + `]+`),
		isolatedSplit(`\s?[` + deepSeekPunctuation + `]+`), isolatedSplit(`\s+$`), isolatedSplit(`[一-龥ࠀ-一가-퟿]+`), "Digits", "ByteLevel"}},
	{"deepseek-coder", "no", []string{isolatedSplit(`[\r\n]`), isolatedSplit(`\s?\p{L}+`), isolatedSplit(`\s?\p{P}+`),
		isolatedSplit(`[一-龥ࠀ-一가-퟿]+`), "Digits(each)", "ByteLevel"}},
	{"falcon", "no", []string{`Punctuation("Contiguous")`, "ByteLevel+GPT2", "Digits", isolatedSplit(`[0-9][0-9][0-9]`)}},
	{"bloom", "no", []string{isolatedSplit(bloomText), "ByteLevel"}},
	{"seed-coder", "no", []string{isolatedSplit(seedPattern), "ByteLevel"}},
	{"bailingmoe", "no", []string{isolatedSplit(bailing), "ByteLevel"}},
	{"exaone-moe", "no", []string{isolatedSplit(exaoneMoE), "ByteLevel"}},
	{"minicpm5", "yes", []string{isolatedSplit(`\p{N}{1,3}`), isolatedSplit(cl100kRuns), "ByteLevel"}},
}

// isolatedSplit names a Split step that keeps matches as pieces; see readSplit.
func isolatedSplit(pattern string) string { return splitName(pattern, "Isolated") }

// splitName is the name under which a Split step is known.
func splitName(pattern, behavior string) string { return "Split(/" + pattern + "/," + behavior + ")" }

// preName returns llama.cpp's name for the way a byte-level tokenizer splits, "" when it has none.
func preName(a *about) string {
	for _, p := range preNames {
		whole := p.whole == "" || (p.whole == "yes") == a.model.ignoreMerges
		if whole && slices.Equal(p.steps, a.steps) {
			return p.name
		}
	}
	return ""
}
