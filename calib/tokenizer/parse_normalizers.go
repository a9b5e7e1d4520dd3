package tokenizer

import (
	"fmt"

	"github.com/llmquant/quantize/formats/safeio"
)

func readForm(p *parser, v safeio.Value) error {
	kind, _ := typeOf(v)
	if err := only(v, kind, "type"); err != nil {
		return err
	}
	return p.addNormalizer(forms[kind].apply, kind)
}

func readPrepend(p *parser, v safeio.Value) error {
	if err := only(v, "Prepend", "type", "prepend"); err != nil {
		return err
	}
	s, err := safeio.At(v, "prepend", safeio.Value.Str)
	if err != nil {
		return err
	}
	p.prefixSpace = p.prefixSpace || s == metaspace
	return p.addNormalizer(prependText(s), fmt.Sprintf("Prepend(%q)", s))
}

func readReplace(p *parser, v safeio.Value) error {
	old, with, err := replacement(v)
	if err != nil {
		return err
	}
	return p.addNormalizer(replaceText(old, with), fmt.Sprintf("Replace(%q,%q)", old, with))
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
	return p.addNormalizer(stripSpace(left, right), fmt.Sprintf("Strip(%t,%t)", left, right))
}
