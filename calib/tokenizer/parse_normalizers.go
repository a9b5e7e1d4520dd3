package tokenizer

import (
	"fmt"

	"github.com/llmquant/quantize/formats/safeio"
)

// readForm reads one of the Unicode normalization forms.
func readForm(p *parser, v safeio.Value) error {
	kind, _ := typeOf(v)
	if err := only(v, kind, "type"); err != nil {
		return err
	}
	return p.addNormalizer(forms[kind].apply, kind, 1)
}

// readPrepend reads Prepend, the dummy prefix of converted SentencePiece models.
func readPrepend(p *parser, v safeio.Value) error {
	if err := only(v, "Prepend", "type", "prepend"); err != nil {
		return err
	}
	s, err := safeio.At(v, "prepend", safeio.Value.Str)
	if err != nil {
		return err
	}
	if len(s) > maxPrepend {
		return safeio.Limitf("Prepend of more than %d bytes", maxPrepend)
	}
	p.prefixSpace = p.prefixSpace || s == metaspace
	return p.addNormalizer(prependText(s), fmt.Sprintf("Prepend(%q)", s), 1)
}

// readReplace reads Replace with a literal pattern.
func readReplace(p *parser, v safeio.Value) error {
	old, with, err := replacement(v)
	if err != nil {
		return err
	}
	return p.addNormalizer(replaceText(old, with), fmt.Sprintf("Replace(%q,%q)", old, with), growth(old, with))
}

// Limits on how much longer a tokenizer may make text. A chain of replacements could otherwise turn one letter into
// gigabytes. Known files replace a blank by three bytes.
const (
	maxPrepend = 64
	maxGrowth  = 64
)

// growth is the factor by which replacing old can lengthen a text.
func growth(old, with string) float64 { return max(1, float64(len(with))/float64(len(old))) }

// multiply keeps account of growth along a chain.
func multiply(total *float64, factor float64) error {
	if *total = max(1, *total) * factor; *total > maxGrowth {
		return safeio.Limitf("replacements that make text more than %d times longer", maxGrowth)
	}
	return nil
}

// replacement reads the fields of a Replace with a literal pattern.
func replacement(v safeio.Value) (old, with string, err error) {
	if err := only(v, "Replace", "type", "pattern", "content"); err != nil {
		return "", "", err
	}
	if r := v.Path("pattern", "Regex"); r.Exists() {
		return "", "", safeio.Unsupportedf("Replace with the regular expression %s", clip(r.Text()))
	}
	if err := only(v.Get("pattern"), "a pattern", "String"); err != nil {
		return "", "", err
	}
	if old, err = safeio.At(v.Get("pattern"), "String", safeio.Value.Str); err != nil {
		return "", "", err
	}
	if old == "" {
		return "", "", safeio.Unsupportedf("Replace with an empty pattern")
	}
	with, err = safeio.At(v, "content", safeio.Value.Str)
	return old, with, err
}

// readStrip reads Strip.
func readStrip(p *parser, v safeio.Value) error {
	if err := only(v, "Strip", "type", "strip_left", "strip_right"); err != nil {
		return err
	}
	left, err := safeio.At(v, "strip_left", safeio.Value.Bool)
	if err != nil {
		return err
	}
	right, err := safeio.At(v, "strip_right", safeio.Value.Bool)
	if err != nil {
		return err
	}
	return p.addNormalizer(stripSpace(left, right), fmt.Sprintf("Strip(%t,%t)", left, right), 1)
}
