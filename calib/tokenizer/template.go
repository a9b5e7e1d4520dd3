package tokenizer

import (
	"slices"

	"github.com/llmquant/quantize/formats/safeio"
)

// maxTemplate bounds the ids a template adds to one text.
const maxTemplate = 1024

// postProcessors are the readers of post-processors. Each wraps the ids that the earlier ones produced.
var postProcessors = map[string]func(p *parser, v safeio.Value) error{
	"ByteLevel":          readByteLevelPost,
	"TemplateProcessing": readTemplate,
	"RobertaProcessing":  readPairPost,
	"BertProcessing":     readPairPost,
}

// readPostProcessor reads the post_processor section: one post-processor or a Sequence of them. Sequences do not nest.
func (p *parser) readPostProcessor(v safeio.Value) error {
	p.hasTemplate = true
	if kind, err := typeOf(v); err != nil || kind != "Sequence" {
		return p.readPost(v)
	}
	return p.readPosts(v)
}

// readPosts reads a Sequence.
func (p *parser) readPosts(v safeio.Value) error {
	if err := only(v, "Sequence", "type", "processors"); err != nil {
		return err
	}
	list := v.Get("processors")
	if list.Kind() != safeio.Array {
		return safeio.Corruptf("the processors of a Sequence are %s", list.Kind())
	}
	for item := range list.Items() {
		if err := p.readPost(item); err != nil {
			return err
		}
	}
	return nil
}

// readPost reads one post-processor.
func (p *parser) readPost(v safeio.Value) error {
	kind, err := typeOf(v)
	if err != nil {
		return err
	}
	read, ok := postProcessors[kind]
	if !ok {
		return safeio.Unsupportedf("the post-processor %q", clip(kind))
	}
	return read(p, v)
}

// wrap puts ids around what earlier post-processors left.
func (p *parser) wrap(before, after []int32) error {
	p.prefix = append(slices.Clone(before), p.prefix...)
	p.suffix = append(p.suffix, after...)
	if len(p.prefix)+len(p.suffix) > maxTemplate {
		return safeio.Limitf("the post-processors add more than %d ids", maxTemplate)
	}
	return nil
}

// readByteLevelPost checks a post-processor that only corrects offsets, which nobody asks for here.
func readByteLevelPost(_ *parser, v safeio.Value) error {
	return only(v, "ByteLevel", "type", "add_prefix_space", "trim_offsets", "use_regex")
}

// readTemplate reads the template for single texts; the one for pairs is not used.
func readTemplate(p *parser, v safeio.Value) error {
	if err := only(v, "TemplateProcessing", "type", "single", "pair", "special_tokens"); err != nil {
		return err
	}
	single := v.Get("single")
	if single.Kind() != safeio.Array {
		return safeio.Corruptf("the single template is %s", single.Kind())
	}
	var before, after []int32
	placed := false
	for piece := range single.Items() {
		if err := only(piece, "a template", "Sequence", "SpecialToken"); err != nil {
			return err
		}
		if seq := piece.Get("Sequence"); seq.Exists() {
			if id, err := safeio.At(seq, "id", safeio.Value.Str); err != nil || id != "A" || placed {
				return safeio.Unsupportedf("a template for single texts that does not hold the text exactly once")
			}
			placed = true
			continue
		}
		name, err := safeio.At(piece.Get("SpecialToken"), "id", safeio.Value.Str)
		if err != nil {
			return err
		}
		ids, err := p.idList(v.Path("special_tokens", name, "ids"))
		if err != nil {
			return &safeio.Error{Op: "template token " + clip(name), Off: -1, Err: err}
		}
		if placed {
			after = append(after, ids...)
		} else {
			before = append(before, ids...)
		}
	}
	if !placed {
		return safeio.Unsupportedf("a template for single texts that does not hold the text exactly once")
	}
	return p.wrap(before, after)
}

// readPairPost reads the fixed template cls … sep of BERT and RoBERTa.
func readPairPost(p *parser, v safeio.Value) error {
	if err := only(v, "the post-processor", "type", "cls", "sep", "trim_offsets", "add_prefix_space"); err != nil {
		return err
	}
	var ids [2]int32
	for i, key := range [...]string{"cls", "sep"} {
		var at safeio.Value
		n := 0
		for item := range v.Get(key).Items() {
			at = item
			n++
		}
		id, err := at.Int()
		if err != nil || n != 2 || id < 0 || id >= maxVocab || !p.vocab.has(int32(id)) {
			return safeio.Corruptf("the %s token of the post-processor is not [token, id]", key)
		}
		ids[i] = int32(id)
	}
	return p.wrap(ids[:1], ids[1:])
}
