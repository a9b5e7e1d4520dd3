package tokenizer

import (
	"strings"
	"unicode/utf8"

	"github.com/llmquant/quantize/formats/safeio"
)

// maxSteps bounds the components of one pipeline: each costs time on every piece of text.
const maxSteps = 32

// readers of components by type, one table per section of the file. Sequences call back into their table.
var (
	normalizers = map[string]func(p *parser, v safeio.Value) error{
		"NFC": readForm, "NFD": readForm, "NFKC": readForm, "NFKD": readForm,
		"Prepend": readPrepend,
		"Replace": readReplace,
		"Strip":   readStrip,
	}
	preTokenizers = map[string]func(p *parser, v safeio.Value) error{
		"ByteLevel":       readByteLevel,
		"Split":           readSplit,
		"Digits":          readDigits,
		"Punctuation":     readPunctuation,
		"Metaspace":       readMetaspace,
		"Whitespace":      readWhitespace,
		"WhitespaceSplit": readWhitespaceSplit,
	}
)

// readNormalizer reads the normalizer section.
func (p *parser) readNormalizer(v safeio.Value) error {
	return p.readComponent(v, "normalizer", "normalizers", normalizers)
}

// readPreTokenizer reads the pre_tokenizer section. A ByteLevel step makes the model byte-level; only where other
// steps follow it (Falcon) do they have to see bytes as visible characters.
func (p *parser) readPreTokenizer(v safeio.Value) error {
	if err := p.readComponent(v, "pre-tokenizer", "pretokenizers", preTokenizers); err != nil {
		return err
	}
	for i, s := range p.steps {
		b, ok := s.(*byteLevelStep)
		if !ok {
			continue
		}
		if i+1 < len(p.steps) { // what follows splits the visible characters, not the text
			b.visible = true
			p.steps = append(p.steps, rawStep{})
			for _, later := range p.steps[i+1:] {
				if _, twice := later.(*byteLevelStep); twice {
					return safeio.Unsupportedf("two ByteLevel pre-tokenizers")
				}
			}
		}
		p.byteLevel = true
		break
	}
	return nil
}

// readComponent reads one component or a Sequence of them; the depth of Sequences is that of the JSON document.
func (p *parser) readComponent(v safeio.Value, what, list string, table map[string]func(*parser, safeio.Value) error) error {
	kind, err := typeOf(v)
	if err != nil {
		return err
	}
	if kind == "Sequence" {
		if err := only(v, "Sequence", "type", list); err != nil {
			return err
		}
		items := v.Get(list)
		if items.Kind() != safeio.Array {
			return safeio.Corruptf("the %s of a Sequence are %s", list, items.Kind())
		}
		for item := range items.Items() {
			if err := p.readComponent(item, what, list, table); err != nil {
				return err
			}
		}
		return nil
	}
	read, ok := table[kind]
	if !ok {
		return safeio.Unsupportedf("the %s %q", what, clip(kind))
	}
	if len(p.steps) == maxSteps || len(p.norms) == maxSteps {
		return safeio.Limitf("more than %d components", maxSteps)
	}
	return read(p, v)
}

// addNormalizer appends a normalizer under a name for messages. grows is the factor by which it may lengthen text.
func (p *parser) addNormalizer(n normalizer, name string, grows float64) error {
	p.norms = append(p.norms, n)
	p.normNames = append(p.normNames, name)
	return multiply(&p.growth, grows)
}

// addStep appends a pre-tokenizer step. Names identify steps: preNames compares them.
func (p *parser) addStep(s step, name string) error {
	p.steps = append(p.steps, s)
	p.stepNames = append(p.stepNames, name)
	return nil
}

// readByteLevel reads ByteLevel, with GPT-2's pattern unless use_regex is false. (trim_offsets is about offsets.)
func readByteLevel(p *parser, v safeio.Value) error {
	if err := only(v, "ByteLevel", "type", "add_prefix_space", "trim_offsets", "use_regex"); err != nil {
		return err
	}
	prefix, err := safeio.At(v, "add_prefix_space", safeio.Value.Bool)
	if err != nil {
		return err
	}
	split, err := safeio.Or(v, "use_regex", true, safeio.Value.Bool)
	if err != nil {
		return err
	}
	b := &byteLevelStep{prefixSpace: prefix}
	name := "ByteLevel"
	if prefix {
		name = "ByteLevel(prefix)"
	}
	if split {
		sc, err := newScanner(gpt2Pattern)
		if err != nil {
			return err
		}
		b.cut = &splitter{find: sc.next}
		name += "+GPT2"
	}
	p.rewritten = p.rewritten || prefix
	p.prefixSpace = p.prefixSpace || prefix
	return p.addStep(b, name)
}

// gpt2Pattern is the pattern built into ByteLevel.
const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// readSplit reads Split.
func readSplit(p *parser, v safeio.Value) error {
	if err := only(v, "Split", "type", "pattern", "behavior", "invert"); err != nil {
		return err
	}
	invert, err := safeio.Or(v, "invert", false, safeio.Value.Bool)
	if err != nil {
		return err
	}
	how, err := readBehavior(v, "")
	if err != nil {
		return err
	}
	pattern := v.Get("pattern")
	if err := only(pattern, "a pattern", "String", "Regex"); err != nil {
		return err
	}
	find, text, err := readPattern(pattern)
	if err != nil {
		return err
	}
	behavior, err := v.Get("behavior").Str()
	if err != nil {
		return err
	}
	if how == removed && invert {
		behavior = "Isolated" // the same pieces, as the known patterns leave nothing between their matches
	}
	return p.addStep(&splitStep{splitter{find, how, invert}}, splitName(text, behavior))
}

// readPattern reads {"String": …} or {"Regex": …}; text identifies it.
func readPattern(v safeio.Value) (find finder, text string, err error) {
	if lit := v.Get("String"); lit.Exists() && v.Len() == 1 {
		text, err := lit.Str()
		if err == nil && text == "" {
			err = safeio.Unsupportedf("Split at an empty text")
		}
		return findLiteral(text), text, err
	}
	if v.Len() != 1 {
		return nil, "", safeio.Corruptf("a pattern has %d members", v.Len())
	}
	text, err = safeio.At(v, "Regex", safeio.Value.Str)
	if err != nil {
		return nil, "", err
	}
	sc, err := newScanner(text)
	if err != nil {
		return nil, "", err
	}
	return sc.next, strings.Join(alternativesOf(text), "|"), nil
}

// readBehavior reads the behavior of a split; def is its default, "" for none.
func readBehavior(v safeio.Value, def string) (behavior, error) {
	name, err := safeio.At(v, "behavior", safeio.Value.Str)
	if !v.Get("behavior").Exists() && def != "" {
		name, err = def, nil
	}
	if err != nil {
		return 0, err
	}
	how, ok := behaviors[name]
	if !ok {
		return 0, safeio.Unsupportedf("the split behavior %q", clip(name))
	}
	return how, nil
}

// readDigits reads Digits: numbers apart from text, each digit apart when individual_digits.
func readDigits(p *parser, v safeio.Value) error {
	if err := only(v, "Digits", "type", "individual_digits"); err != nil {
		return err
	}
	each, err := safeio.At(v, "individual_digits", safeio.Value.Bool)
	if err != nil {
		return err
	}
	how, name := contiguous, "Digits"
	if each {
		how, name = isolated, "Digits(each)"
	}
	return p.addStep(&splitStep{splitter{find: findFunc(isNumeric(loadCategories())), how: how}}, name)
}

// readPunctuation reads Punctuation.
func readPunctuation(p *parser, v safeio.Value) error {
	if err := only(v, "Punctuation", "type", "behavior"); err != nil {
		return err
	}
	how, err := readBehavior(v, "Isolated")
	if err != nil {
		return err
	}
	return p.addStep(&splitStep{splitter{find: findFunc(isPunctuation(loadCategories())), how: how}}, "Punctuation("+v.Get("behavior").Text()+")")
}

// readWhitespace reads Whitespace, which despite its name splits into words and symbols.
func readWhitespace(p *parser, v safeio.Value) error {
	if err := only(v, "Whitespace", "type"); err != nil {
		return err
	}
	return p.addStep(&splitStep{splitter{find: findWordRuns(loadCategories()), how: removed, invert: true}}, "Whitespace")
}

// readWhitespaceSplit reads WhitespaceSplit.
func readWhitespaceSplit(p *parser, v safeio.Value) error {
	if err := only(v, "WhitespaceSplit", "type"); err != nil {
		return err
	}
	t := loadCategories()
	space := func(r rune) bool { return t.is(r, classSpace) }
	return p.addStep(&splitStep{splitter{find: findFunc(space), how: removed}}, "WhitespaceSplit")
}

// readMetaspace reads the Metaspace pre-tokenizer. "first" asks where in the input a piece begins, which is known only
// as long as nothing before has changed the text.
func readMetaspace(p *parser, v safeio.Value) error {
	if err := only(v, "Metaspace", "type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"); err != nil {
		return err
	}
	with, scheme, err := metaspaceOptions(v)
	if err != nil {
		return err
	}
	split, err := safeio.Or(v, "split", true, safeio.Value.Bool)
	if err != nil {
		return err
	}
	if scheme == prependFirst {
		if p.rewritten {
			return safeio.Unsupportedf("Metaspace with prepend_scheme \"first\" behind a step that changes text")
		}
		p.firstScheme = true
	}
	p.rewritten = true
	p.prefixSpace = p.prefixSpace || scheme != prependNever
	return p.addStep(newMetaspace(with, scheme, split), "Metaspace")
}

// metaspaceOptions reads what the pre-tokenizer and the decoder of that name share. add_prefix_space is the older
// spelling of the scheme "never".
func metaspaceOptions(v safeio.Value) (with string, scheme prependScheme, err error) {
	if with, err = safeio.At(v, "replacement", safeio.Value.Str); err != nil {
		return "", 0, err
	}
	if utf8.RuneCountInString(with) != 1 {
		return "", 0, safeio.Corruptf("the replacement %q of Metaspace is not one character", clip(with))
	}
	name, err := safeio.Or(v, "prepend_scheme", "always", safeio.Value.Str)
	if err != nil {
		return "", 0, err
	}
	scheme, ok := prependSchemes[name]
	if !ok {
		return "", 0, safeio.Unsupportedf("the prepend_scheme %q of Metaspace", clip(name))
	}
	prefix, err := safeio.Or(v, "add_prefix_space", true, safeio.Value.Bool)
	if err != nil {
		return "", 0, err
	}
	if !prefix && scheme != prependNever {
		if v.Get("prepend_scheme").Exists() {
			return "", 0, safeio.Corruptf("add_prefix_space of Metaspace contradicts its prepend_scheme")
		}
		return "", 0, safeio.Corruptf("add_prefix_space of Metaspace is false without a prepend_scheme, which the library refuses")
	}
	return with, scheme, nil
}
